#!/usr/bin/env bash
# Ours, node:http alone, and node:sqlite where Node.js has it, one after the other.
set -euo pipefail
servers="src/main test/bench/bare"
if node -e 'require("node:sqlite")' 2> /dev/null; then
  servers+=" test/bench/sqlite"
fi
for server in $servers; do
  printf '\n%s\n' "$server"
  SERVER=build/test/$server.js node build/test/test/bench/run.js "$@"
done

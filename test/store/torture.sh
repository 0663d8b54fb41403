#!/usr/bin/env bash
# The tests of crashes with one seed after another, with more lives and power
# cuts of each store than in `npm test`, and with real power cuts on ext4 and XFS
# where root may mount loops: npm run torture -- [--seed=N] [--minutes=N]
set -eu
seed=1
minutes=10
for word; do
  case $word in
    --seed=*) seed=${word#*=} ;;
    --minutes=*) minutes=${word#*=} ;;
    *) echo "torture: unknown option $word" >&2; exit 2 ;;
  esac
done
tests=build/test/test
folder=$(mktemp -d)
trap 'umount -l "$folder/point" 2> /dev/null || true; rm -rf "$folder"' EXIT

# Has clients write to a file system whose power is cut: what has not reached its image is gone,
# and what the kernel still knows of it must be gone too before it is mounted again.
cut_power() {
  if ! { truncate -s 512M "$folder/image" && "mkfs.$1" -q "$folder/image" &&
    mkdir -p "$folder/point" && xfs_io -V &&
    mount -o loop "$folder/image" "$folder/point"; } > /dev/null 2>&1; then
    echo "SKIPPED: power cuts of $1 need root, loop mounts, mkfs.$1 and xfs_io"
    return
  fi
  echo "power cuts of $1"
  TMPDIR=$folder/point CUT="xfs_io -x -c shutdown $folder/point" \
    REMOUNT="umount $folder/point && while losetup -j $folder/image | grep -q .; do sleep 0.1; done && mount -o loop $folder/image $folder/point" \
    node --test $tests/features/crash.test.js
  umount -l "$folder/point"
  rm "$folder/image"
}

end=$(($(date +%s) + 60 * minutes))
took=0
while [ $(($(date +%s) + took)) -lt $end ]; do
  begin=$(date +%s)
  echo "SEED=$seed LIVES=3 node --test $tests/store/crash.test.js"
  SEED=$seed LIVES=3 node --test $tests/store/crash.test.js &
  cut_power ext4
  cut_power xfs
  wait $!
  took=$(($(date +%s) - begin))
  seed=$((seed + 1))
done

// @ts-check
/**
 * Ten lessons: predict, send the requests, see the exchanges, read why. They work
 * on records of the learner's own, in any collection where they may create and
 * delete one, and delete them at the end.
 */

import {
  a,
  button,
  div,
  fill,
  h,
  h1,
  h2,
  label,
  li,
  local,
  main,
  ol,
  optionsOf,
  p,
  root,
  send,
  start,
  store,
  stored,
} from "./page.js";

const state = {
  collection: "",
  content: {},
  created: [],
  ...stored("course"),
};

/**
 * Title, question, wrong and right answer, requests with the status that shows
 * that they worked, reason. Requests are about `c`, the collection, and `r`, the
 * record that was created last.
 */
const lessons = [
  [
    "Resources and URLs",
    "A resource is anything that has a URL. How does a program find the URL of a collection?",
    "By rules from a manual",
    "From a response",
    "GET root 200; GET c 200",
    "A program needs to know only the URL of the root document, which contains the others. What the server sends is a representation of the resource: JSON for programs, this page for you.",
  ],
  [
    "Safe and idempotent methods",
    "You send the same PUT twice. How many records are there then?",
    "Two",
    "One, the same as after the first",
    "POST c 201; PUT r 201; PUT r 201",
    "PUT is idempotent: it states what the record should be, so sending it twice has the same effect as once (see updated_at). Safe methods such as GET never change anything. POST is neither: each POST creates a record.",
  ],
  [
    "Classes of status codes",
    "A status code begins with 4. Who has to change something?",
    "The server",
    "The client",
    "GET c?colour=red 400; GET c/9007199254740991 404; GET c 200",
    "2xx: success. 3xx: go to another URL, or use your copy. 4xx: the client has to change something before it tries again. 5xx: the server failed; the same request may work later.",
  ],
  [
    "Content negotiation",
    "Two requests for one URL differ in Accept. Can the responses differ?",
    "No, a URL is one file",
    "Yes, each client gets a format that it can use",
    "GET c Accept:text/html 200; GET c Accept:application/json 200; GET c Accept:image/png 406",
    "Accept lists the formats that the client can use, Content-Type names the one that was sent, and Vary tells caches that the response depends on Accept. 406: none of the formats is available.",
  ],
  [
    "Validation",
    "You send a record without any properties. What does the response contain?",
    "The first error",
    "All errors at once",
    "POST c {} 422",
    "400: the request cannot be parsed. 422: it was understood, but breaks a rule. Each error has a code for programs and a message for people.",
  ],
  [
    "Conditional requests",
    "You have a copy and ask whether it is current. It is. What is sent?",
    "The whole record again",
    "Only a header, without content",
    "POST c 201; GET r 200; GET r If-None-Match:etag 304",
    "ETag names a version of the resource, If-None-Match the version that you have. 304: it is still current.",
  ],
  [
    "Lost updates",
    "Two people read a record and change it, both with If-Match. What happens to the first change?",
    "The second one overwrites it",
    "It is kept; the second one is refused",
    "POST c 201; PATCH r If-Match:etag 201; PATCH r If-Match:etag 412",
    "If-Match names the version that was read. After the first PATCH a newer one is current: 412, nothing is changed, nobody's work is lost unnoticed.",
  ],
  [
    "Retries",
    "The response to a POST is lost, and you send it again. How do you avoid creating two records?",
    "It cannot be avoided",
    "By sending the same Idempotency-Key",
    "POST c Idempotency-Key:key 201; POST c Idempotency-Key:key 201",
    "The server stores its first response with the key and sends it again, byte for byte. There is one record.",
  ],
  [
    "Paging and filters",
    "A collection has a million records. What does GET send?",
    "All of them",
    "A few, and the URLs of the other pages",
    "POST c 201; POST c 201; GET c?limit=1 200; GET next 200",
    "Link has the URLs of the other pages, and X-Total-Count is the number of matching records. Filters and sort order are parameters, so each selection has its own URL.",
  ],
  [
    "Hypermedia",
    "A record was deleted. What is the response at its URL?",
    "404: there is nothing",
    "410: it existed, and was permanently deleted",
    "POST c 201; DELETE r 204; GET r 410; GET c 200",
    "Each response says what can be done next: url, link, Location, Link, Allow. Programs that follow these still work when URLs change. Ids are never reused, so an old link never leads to a different record.",
  ],
];

const names = {
  root: "the root document",
  c: "the collection",
  r: "the record",
  next: "the next page",
};

const newText = () => `Lesson ${Math.random().toString(36).slice(2, 8)}`;

/** Sends a request of a lesson, such as `GET r If-None-Match:etag`; returns its status, 0 if it did not do what the lesson shows. */
async function run(words, memory) {
  const [method = "", target = "", option = ""] = words;
  const [, base = "", rest = ""] = /^(\w+)(.*)$/.exec(target) ?? [];
  const url = { ...memory, c: state.collection, r: memory.url }[base];
  const [name = "", value] = option.split(":");
  const fields = value ? { [name]: memory[value] ?? value } : {};
  const text = Object.keys(state.content).find((each) =>
    String(state.content[each]).startsWith("Lesson")
  );
  const content = option === "{}"
    ? {}
    : method === "PATCH" && text
    ? { [text]: newText() }
    : state.content;
  const hasBody = /^P/.test(method);
  const response = await send(method, url + rest, {
    fields,
    ...(hasBody && { body: JSON.stringify(content) }),
  });
  const { status, headers, body } = response;
  memory.next = /<([^>]*)>; rel="next"/.exec(headers.get("link") ?? "")?.[1];
  if (/^(?:GET|POST)$/.test(method)) memory.etag = headers.get("etag");
  if (method !== "POST" || status !== 201) return status;
  const isSecond = name === "Idempotency-Key" && memory.isSent;
  if (isSecond && body.url !== memory.url) return 0;
  memory.isSent = true;
  memory.url = body.url;
  if (!isSecond) state.created.push(body.url);
  store("course", state);
  return status;
}

/** Makes up a value. What only a pattern describes is taken from an existing record. */
function sample(
  { type, format, pattern = "", enum: choices, maxLength, minimum = 1 },
  existing,
) {
  if (choices) return choices[0];
  if (format === "email") return `${newText().replace(" ", ".")}@example.com`;
  if (maxLength > 15 && !format && /^(\^\[\^|$)/.test(pattern)) {
    return newText();
  }
  return existing ??
    (type === "boolean"
      ? true
      : format === "date"
      ? "2001-01-01"
      : type === "string"
      ? "AA"
      : Math.max(minimum, 1));
}

/** Finds a collection in which this caller can create and delete a record. */
async function prepare() {
  if (state.collection) return true;
  for (const href of Object.values(root)) {
    const url = local(href);
    const { methods, writable, schema: { properties, required } } =
      await optionsOf(url ?? "/");
    const isHidden = writable.some((name) => properties[name].writeOnly);
    if (isHidden || !methods.includes("POST") || !methods.includes("GET")) {
      continue;
    }
    const one = await optionsOf(`${url}/1`);
    if (!one.methods.includes("DELETE")) continue;
    const { body } = await send("GET", `${url}?limit=1`);
    state.content = Object.fromEntries(
      required.map((name) => [name, sample(properties[name], body[0]?.[name])]),
    );
    state.collection = url;
    const memory = {};
    if (await run(["POST", "c"], memory) === 201) return true;
    state.collection = "";
  }
  return false;
}

async function cleanUp() {
  for (const url of state.created) await send("DELETE", url);
  Object.assign(state, { collection: "", created: [] });
  store("course", state);
}

export function showCourse() {
  const number = Number(/-(\d+)$/.exec(location.hash)?.[1] ?? 0);
  if (lessons[number - 1]) return showLesson(number);
  const status = p({ role: "status" });
  fill(
    h1("A course of ten lessons"),
    p("In each lesson you predict what happens, send requests, look at the exchanges and read why. First sign in as a user who may create and delete records: the course uses its own."),
    ol(
      lessons.map(([title], at) => li(a({ href: `#course-${at + 1}` }, title))),
    ),
    button("Delete the records of the course", async () => {
      await cleanUp();
      status.textContent = "Deleted.";
    }, "clean-up"),
    status,
  );
}

function showLesson(number) {
  const [title, question, wrong, right, requests = "", why] =
    lessons[number - 1] ?? [];
  const memory = {
    key: newText().replace(" ", "-"),
    root: start.href,
  };
  const verdict = p({ role: "status", id: "verdict" });
  const result = div({ id: "why" });
  const enable = (at) => steps[at]?.removeAttribute("disabled");
  // The right answer is first in every other lesson.
  const answers = [wrong, right].sort(() => number % 2 ? 1 : -1);
  const steps = requests.split("; ").map((request, at, all) => {
    const words = request.split(" ");
    const expected = Number(words.pop());
    const [method, target = "", option = ""] = words;
    const place = target.replace(/^\w+/, (name) => names[name]);
    const text = `${method} ${place} ${option}`;
    const step = button(text, async () => {
      if (!(await prepare())) {
        return void (verdict.textContent =
          "Sign in first, as a user who may create and delete records.");
      }
      const status = await run(words, memory);
      const isDone = status === expected;
      const mark = isDone
        ? "✓"
        : "✗: the lesson expects a different response; look at the exchange";
      step.after(` ${status} ${mark}`);
      if (!isDone) return;
      step.disabled = true;
      document.querySelector("#exchanges details")?.setAttribute("open", "");
      enable(at + 1);
      if (at + 1 < all.length) return steps[at + 1].focus();
      if (number === 10) await cleanUp();
      const guess = main.querySelector("[name=guess]:checked")?.value;
      verdict.textContent = guess === right
        ? "As you predicted."
        : `You predicted something else. The right answer is: ${right}.`;
      result.append(
        h2("Why"),
        p(why),
        a(
          { href: number < 10 ? `#course-${number + 1}` : "#course" },
          number < 10 ? "Next lesson" : "All lessons",
        ),
      );
    });
    step.disabled = true;
    return step;
  });
  fill(
    h1(`Lesson ${number}: ${title}`),
    a({ href: "#course" }, "All lessons"),
    h(
      "fieldset",
      h("legend", question),
      answers.map((answer) =>
        label(
          h("input", {
            type: "radio",
            name: "guess",
            value: answer,
            onchange: () => enable(0),
          }),
          ` ${answer} `,
        )
      ),
    ),
    p("Predict, then send the requests:"),
    ol(steps.map((step) => li(step))),
    verdict,
    result,
  );
}

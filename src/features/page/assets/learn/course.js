// @ts-check
/**
 * The course: predict, send the requests, see the exchanges, read why. It works
 * on records of the learner's own, in any collection where they may create and
 * delete one, and deletes them when the next lesson begins.
 */

import {
  a,
  button,
  div,
  fieldset,
  h,
  h1,
  h2,
  icon,
  label,
  legend,
  li,
  methodTag,
  ol,
  p,
  section,
  span,
  statusTag,
} from "../base/dom.js";
import { main, root } from "../base/frame.js";
import { local, optionsOf, send, start, store, stored } from "../base/http.js";
import { fill } from "../base/view.js";
import { lessons } from "./lessons.js";

/** @typedef {import("../base/http.js").Json} Json */

/** The records of the lessons, until they are deleted. @type {string[]} */
let created = stored("course") ?? [];

/** The collection of the lessons; empty until they have one. */
let collection = "";

/** Returns the content of a new record. @returns {Json} */
let newContent = () => ({});

/** The titles of the lessons that were done, in this browser. @returns {string[]} */
const doneLessons = () => stored("lessons", "localStorage") ?? [];

const newText = () => `Lesson ${Math.random().toString(36).slice(2, 8)}`;

/** Returns the body of a request: nothing, an empty object, a change of one text, or a whole record, the same as before in a PUT and in a retry. */
function bodyOf(method, { isEmpty, isRetry, memory }) {
  if (!/^P/.test(method)) return undefined;
  if (isEmpty) return "{}";
  const fresh = newContent();
  const isKept = memory.content && (isRetry || method === "PUT");
  if (method === "PATCH") {
    const text = Object.keys(fresh).find((each) => /^Lesson/.test(fresh[each]));
    return JSON.stringify(text ? { [text]: fresh[text] } : memory.content);
  }
  if (!isKept) memory.content = fresh;
  return JSON.stringify(memory.content);
}

/** Sends a request of a lesson, such as `GET r If-None-Match:etag`; returns its status, 0 if it did not do what the lesson shows. */
async function run(words, memory) {
  const [method = "", target = "", ...options] = words;
  const [, base = "", rest = ""] = /^(\w+)(.*)$/.exec(target) ?? [];
  const url = { ...memory, c: collection, r: memory.url }[base];
  const fields = Object.fromEntries(
    options.filter((each) => each.includes(":")).map((each) => {
      const [name = "", value = ""] = each.split(":");
      return [name, memory[value] ?? value];
    }),
  );
  const isRetry = "Idempotency-Key" in fields && memory.isSent;
  const isEmpty = options.includes("{}");
  const body = bodyOf(method, { isEmpty, isRetry, memory });
  const response = await send(method, url + rest, {
    fields,
    ...(body && { body }),
  });
  const { status, headers, body: record } = response;
  memory.next = /<([^>]*)>; rel="next"/.exec(headers.get("link") ?? "")?.[1];
  if (/^(?:GET|POST)$/.test(method)) memory.etag = headers.get("etag");
  if (method !== "POST" || status !== 201) return status;
  if (isRetry && record.url !== memory.url) return 0;
  memory.isSent = true;
  memory.url = record.url;
  if (!isRetry) remember(record.url);
  return status;
}

/** Makes up a value: a new text, as some must be unique. What only a pattern describes is taken from an existing record. */
function sample(
  { type, format, pattern = "", enum: choices, maxLength, minimum = 1 },
  existing,
) {
  if (choices) return choices[0];
  if (format === "email") {
    return `${newText().replace(" ", ".")}@example.com`;
  }
  if (maxLength > 15 && !format && /^(\^\[\^|$)/.test(pattern)) {
    return newText();
  }
  if (existing != null) return existing;
  if (type === "boolean") return true;
  if (type !== "string") return Math.max(minimum, 1);
  return format === "date" ? "2001-01-01" : "AA";
}

function remember(url) {
  created.push(url);
  store("course", created);
}

/** Finds a collection in which this caller can create and delete a record. */
async function prepare() {
  if (collection) return true;
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
    const { body } = await send("GET", `${url}?limit=1`, { isQuiet: true });
    newContent = () =>
      Object.fromEntries(
        required.map((name) => [
          name,
          sample(properties[name], body[0]?.[name]),
        ]),
      );
    const { status, body: record } = await send("POST", url ?? "", {
      body: JSON.stringify(newContent()),
      isQuiet: true,
    });
    if (status !== 201) continue;
    collection = url ?? "";
    remember(record.url);
    return true;
  }
  return false;
}

/** Deletes the records of former lessons, without showing that as what is to be read. */
async function cleanUp() {
  const urls = created;
  collection = "";
  created = [];
  store("course", created);
  for (const url of urls) await send("DELETE", url, { isQuiet: true });
}

export async function showCourse() {
  await cleanUp();
  const number = Number(/-(\d+)$/.exec(location.hash)?.[1] ?? 0);
  const lesson = lessons[number - 1];
  if (lesson) return showLesson(lesson, number);
  const done = doneLessons();
  fill(
    h1("A course of twelve lessons"),
    p.prose(
      "In each lesson you predict what happens, send requests, look at the exchanges and read why. First sign in as a user who may create and delete records: the course uses its own, and deletes them.",
    ),
    ol.steps(lessons.map(({ title }, at) =>
      li.row(
        { class: done.includes(title) && "done" },
        icon("paw"),
        a({ href: `#course-${at + 1}` }, title),
      )
    )),
  );
}

/** Creates the step of a lesson, which calls `onDone` once its request has done what it should. */
function stepOf([sentence, request], { memory, verdict, onDone }) {
  const words = request.split(" ");
  const expected = Number(words.pop());
  const [method] = words;
  const result = span();
  const press = button(
    "Send",
    async () => {
      if (!(await prepare())) {
        verdict.textContent =
          "Sign in first, as a user who may create and delete records.";
        return;
      }
      const status = await run(words, memory);
      const isDone = status === expected;
      result.replaceChildren(
        statusTag(status),
        isDone
          ? ""
          : " ✗: the lesson expects a different response; look at the exchange",
      );
      if (!isDone) return;
      item.classList.add("done");
      press.disabled = true;
      onDone();
    },
    undefined,
    { "aria-label": `Send: ${sentence}` },
  );
  press.disabled = true;
  const item = li.row(
    icon("paw"),
    span(sentence),
    methodTag(method),
    press,
    result,
  );
  return { item, press };
}

/** @param {import("./lessons.js").Lesson} lesson @param {number} number */
function showLesson({ title, question, wrong, right, steps, why }, number) {
  const memory = { key: newText().replace(" ", "-"), root: start.href };
  const verdict = div({ id: "verdict", role: "status" });
  const result = div.stack({ id: "why" });
  const next = number < lessons.length ? `#course-${number + 1}` : "#course";
  const conclude = () => {
    const guess = main.querySelector("[name=guess]:checked")?.value;
    verdict.replaceChildren(
      h2(
        guess === right
          ? "As you predicted"
          : `You predicted something else. The right answer is: ${right}`,
      ),
    );
    const done = new Set(doneLessons()).add(title);
    store("lessons", [...done], "localStorage");
    const following = lessons[number]?.title;
    const text = following ? `Next: ${following}` : "All lessons";
    result.append(p(why), a.button.primary({ href: next }, text));
  };
  const enable = (at) => {
    const press = made[at]?.press;
    if (!press) return conclude();
    press.disabled = false;
    if (at > 0) press.focus();
  };
  const made = steps.map((each, at) =>
    stepOf(each, { memory, verdict, onDone: () => enable(at + 1) })
  );
  // The right answer is first in every other lesson.
  const answers = [wrong, right].sort(() => number % 2 ? 1 : -1);
  const choose = () => {
    if (!made[0]?.item.classList.contains("done")) enable(0);
  };
  fill(
    p(a({ href: "#course" }, "All lessons")),
    p.soft(
      `Lesson ${number} of ${lessons.length}, ${doneLessons().length} done`,
    ),
    h1(title),
    div.prose.stack(
      fieldset.card.near(
        legend("First predict"),
        p(question),
        answers.map((answer) => {
          const field = { type: "radio", name: "guess", value: answer };
          const input = h("input", { ...field, onchange: choose });
          return label.choice.row(input, answer);
        }),
      ),
      section.card.stack(
        h2("Then send"),
        ol.steps(made.map(({ item }) => item)),
      ),
      section.stack(verdict, result),
    ),
  );
}

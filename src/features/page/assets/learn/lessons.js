// @ts-check
/** The lessons of the course. */

/**
 * A request of a lesson ends with the status that shows that it worked. It is
 * about `c`, the collection, `r`, the record that was created last, `root` or
 * `next`, the next page.
 *
 * @typedef {[sentence: string, request: string]} Step
 * @typedef {{title: string, question: string, wrong: string, right: string, steps: Step[], why: string}} Lesson
 */

/** @type {Step} */
const create = ["Create a record to play with", "POST c 201"];

/** @type {Step} */
const createWithKey = [
  "Create a record, with a key that you make up",
  "POST c Idempotency-Key:key 201",
];

/** @type {readonly Lesson[]} */
export const lessons = [
  {
    title: "Resources and URLs",
    question:
      "A resource is anything that has a URL. How does a program find the URL of a collection?",
    wrong: "By rules from a manual.",
    right: "From a response.",
    steps: [
      ["Ask for the root document", "GET root 200"],
      ["Follow one of the URLs in it", "GET c 200"],
    ],
    why:
      "A program needs only the URL of the root document, which has the others. What the server sends is a representation of the resource: JSON for programs, this page for you.",
  },
  {
    title: "Safe and idempotent methods",
    question: "You send the same PUT twice. How many records are there then?",
    wrong: "Two.",
    right: "One, the same as after the first.",
    steps: [
      create,
      ["Replace it", "PUT r 201"],
      ["Replace it once more, by the same", "PUT r 201"],
    ],
    why:
      "PUT is idempotent: it says what the record should be, so twice has the same effect as once. Safe methods such as GET change nothing. POST is neither: each creates a record.",
  },
  {
    title: "Replace or change",
    question:
      "You send a PATCH with a single property. What happens to the other ones?",
    wrong: "They get their defaults, as nothing was sent for them.",
    right: "They stay as they were.",
    steps: [
      create,
      ["Send one property of it", "PATCH r 201"],
      ["Send an empty object instead of the whole record", "PUT r {} 422"],
    ],
    why:
      "PATCH sends only what changes (RFC 7396); null removes a value. PUT sends the whole record: what it lacks gets its default, and what is required must be there.",
  },
  {
    title: "Classes of status codes",
    question: "A status code begins with 4. Who has to change something?",
    wrong: "The server.",
    right: "The client.",
    steps: [
      ["Misspell a parameter", "GET c?colour=red 400"],
      ["Ask for a record that never was", "GET c/9007199254740991 404"],
      ["Ask for what is there", "GET c 200"],
    ],
    why:
      "2xx: success. 3xx: go to another URL, or use your copy. 4xx: change something before you try again. 5xx: the server failed, and the same request may work later.",
  },
  {
    title: "Content negotiation",
    question:
      "Two requests for one URL differ in Accept. Can the responses differ?",
    wrong: "No, a URL is one file.",
    right: "Yes, each client gets a format that it can use.",
    steps: [
      ["Ask as a browser does", "GET c Accept:text/html 200"],
      ["Ask as a program does", "GET c Accept:application/json 200"],
      ["Ask for a picture", "GET c Accept:image/png 406"],
    ],
    why:
      "Accept lists the formats that the client can use, and Content-Type names the one that was sent. 406: there is none of these. Vary tells caches that the response depends on Accept.",
  },
  {
    title: "Validation",
    question:
      "You send a record without any properties. What does the response contain?",
    wrong: "The first error.",
    right: "All errors at once.",
    steps: [["Send an empty object", "POST c {} 422"]],
    why:
      "400: the request cannot be parsed. 422: it was understood, but breaks a rule. Each error has a code for programs and a message for people.",
  },
  {
    title: "Conditional requests",
    question: "You ask whether your copy is current, and it is. What is sent?",
    wrong: "The whole record again.",
    right: "Only a header, without content.",
    steps: [
      create,
      ["Read it, and keep its ETag", "GET r 200"],
      ["Ask for it only if it has changed", "GET r If-None-Match:etag 304"],
    ],
    why:
      "ETag names a version, and If-None-Match the one that you have. 304: it is still current.",
  },
  {
    title: "Lost updates",
    question:
      "Two people read a record, and both change it with If-Match. What becomes of the first change?",
    wrong: "The second one overwrites it.",
    right: "It stays, and the second one is refused.",
    steps: [
      create,
      [
        "The first person changes it, naming its version",
        "PATCH r If-Match:etag 201",
      ],
      ["The second person names the same version", "PATCH r If-Match:etag 412"],
    ],
    why:
      "If-Match names the version that was read. After the first PATCH another one is current: 412, and nobody's work is lost unnoticed.",
  },
  {
    title: "Safe retries",
    question:
      "The response to a POST is lost, and you send it again. How do you avoid creating two records?",
    wrong: "It cannot be avoided.",
    right: "By sending the same Idempotency-Key.",
    steps: [
      createWithKey,
      [
        "Send the same again, as if nothing had come back",
        "POST c Idempotency-Key:key 201",
      ],
    ],
    why:
      "The server stores the first response with the key, and sends it again. There is one record.",
  },
  {
    title: "One key, one request",
    question: "You send another record with the same key. What happens?",
    wrong: "It is created.",
    right: "It is refused: a key stands for one request.",
    steps: [
      createWithKey,
      [
        "Send something else with that key",
        "POST c {} Idempotency-Key:key 422",
      ],
    ],
    why:
      "Otherwise a program that gives two things one key by mistake would believe that both exist.",
  },
  {
    title: "Paging and filters",
    question: "A collection has a million records. What does GET send?",
    wrong: "All of them.",
    right: "A few, and the URLs of the other pages.",
    steps: [
      ["Create a record", "POST c 201"],
      ["Create a second one", "POST c 201"],
      ["Ask for a page of one", "GET c?limit=1 200"],
      ["Follow the URL of the next page", "GET next 200"],
    ],
    why:
      "Link has the URLs of the other pages, and X-Total-Count the number of matching records. Filters and order are parameters, so each selection has its own URL.",
  },
  {
    title: "Hypermedia",
    question: "A record was deleted. What is the response at its URL?",
    wrong: "404: there is nothing.",
    right: "410: it existed, and was permanently deleted.",
    steps: [
      create,
      ["Delete it", "DELETE r 204"],
      ["Ask for it again", "GET r 410"],
      ["Ask for its collection", "GET c 200"],
    ],
    why:
      "Responses say what can be done next: url, link, Location, Link, Allow. Programs that follow these still work when URLs change. An id is never reused, so no old link leads to a different record.",
  },
];

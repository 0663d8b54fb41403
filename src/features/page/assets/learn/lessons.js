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
      "A program needs to know only the URL of the root document, which contains the others. What the server sends is a representation of the resource: JSON for programs, this page for you.",
  },
  {
    title: "Safe and idempotent methods",
    question: "You send the same PUT twice. How many records are there then?",
    wrong: "Two.",
    right: "One, the same as after the first.",
    steps: [
      ["Create a record to play with", "POST c 201"],
      ["Replace it", "PUT r 201"],
      ["Replace it once more, by the same", "PUT r 201"],
    ],
    why:
      "PUT is idempotent: it states what the record should be, so sending it twice has the same effect as once (see updated_at). Safe methods such as GET never change anything. POST is neither: each POST creates a record.",
  },
  {
    title: "Replace or change",
    question:
      "You send a PATCH with a single property. What happens to the other ones?",
    wrong: "They get their defaults, as nothing was sent for them.",
    right: "They stay as they were.",
    steps: [
      ["Create a record to play with", "POST c 201"],
      ["Send one property of it", "PATCH r 201"],
      ["Send an empty object instead of the whole record", "PUT r {} 422"],
    ],
    why:
      "PATCH sends only what changes (JSON Merge Patch, RFC 7396): null removes a value. PUT sends the whole record, so what it lacks gets its default, and what is required must be there.",
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
      "2xx: success. 3xx: go to another URL, or use your copy. 4xx: the client has to change something before it tries again. 5xx: the server failed; the same request may work later.",
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
      "Accept lists the formats that the client can use, Content-Type names the one that was sent, and Vary tells caches that the response depends on Accept. 406: none of the formats is available.",
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
    question:
      "You have a copy and ask whether it is current. It is. What is sent?",
    wrong: "The whole record again.",
    right: "Only a header, without content.",
    steps: [
      ["Create a record to play with", "POST c 201"],
      ["Read it, and keep its ETag", "GET r 200"],
      ["Ask for it only if it has changed", "GET r If-None-Match:etag 304"],
    ],
    why:
      "ETag names a version of the resource, If-None-Match the version that you have. 304: it is still current.",
  },
  {
    title: "Lost updates",
    question:
      "Two people read a record, and both change it with If-Match. What happens to the first change?",
    wrong: "The second one overwrites it.",
    right: "It stays, and the second one is refused.",
    steps: [
      ["Create a record to play with", "POST c 201"],
      [
        "The first person changes it, naming its version",
        "PATCH r If-Match:etag 201",
      ],
      ["The second person names the same version", "PATCH r If-Match:etag 412"],
    ],
    why:
      "If-Match names the version that was read. After the first PATCH a newer one is current: 412, nothing is changed, nobody's work is lost unnoticed.",
  },
  {
    title: "Safe retries",
    question:
      "The response to a POST is lost, and you send it again. How do you avoid creating two records?",
    wrong: "It cannot be avoided.",
    right: "By sending the same Idempotency-Key.",
    steps: [
      [
        "Create a record, with a key that you make up",
        "POST c Idempotency-Key:key 201",
      ],
      [
        "Send the same again, as if nothing had come back",
        "POST c Idempotency-Key:key 201",
      ],
    ],
    why:
      "The server stores its first response with the key and sends it again, byte for byte. There is one record.",
  },
  {
    title: "One key, one request",
    question:
      "You send another record with a key that was used already. What happens?",
    wrong: "It is created.",
    right: "It is refused: a key stands for one request.",
    steps: [
      [
        "Create a record, with a key that you make up",
        "POST c Idempotency-Key:key 201",
      ],
      [
        "Send something else with that key",
        "POST c {} Idempotency-Key:key 422",
      ],
    ],
    why:
      "Without this, a program that gives two things the same key by mistake would believe that both exist. The error says which mistake it is; a new key helps.",
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
      "Link has the URLs of the other pages, and X-Total-Count is the number of matching records. Filters and sort order are parameters, so each selection has its own URL.",
  },
  {
    title: "Hypermedia",
    question: "A record was deleted. What is the response at its URL?",
    wrong: "404: there is nothing.",
    right: "410: it existed, and was permanently deleted.",
    steps: [
      ["Create a record to play with", "POST c 201"],
      ["Delete it", "DELETE r 204"],
      ["Ask for it again", "GET r 410"],
      ["Ask for its collection", "GET c 200"],
    ],
    why:
      "Each response says what can be done next: url, link, Location, Link, Allow. Programs that follow these still work when URLs change. Ids are never reused, so an old link never leads to a different record.",
  },
];

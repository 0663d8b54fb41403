/** A declaration of measurements, which expire, long texts and a pattern that takes its time. */

import type { Words } from "../library.ts";

export default (
  { collection, string, text, number, timestamp, optional, reference }: Words,
) => {
  const access = { read: "viewer", write: "keeper", delete: "keeper" };
  return {
    title: "Größe",
    collections: [
      collection({
        name: "articles",
        singular: "article",
        access,
        properties: {
          title: string({ maxLength: 100 }),
          body: text({ maxLength: 200_000 }),
        },
      }),
      collection({
        name: "codes",
        singular: "code",
        access: { ...access, read: "anyone" },
        properties: {
          code: string({ maxLength: 1000, pattern: /^[a-z]*[a-z]*!$/ }),
        },
      }),
      collection({
        name: "readings",
        singular: "reading",
        access: { ...access, read: "anyone" },
        keep: { days: 30, by: "taken_at" },
        properties: {
          article_id: optional(reference("articles")),
          reading_id: optional(reference("readings")),
          value: optional(number()),
          taken_at: optional(timestamp()),
        },
      }),
      collection({
        name: "marks",
        singular: "mark",
        access: { ...access, delete: "admin" },
        check: (mark: Record<string, number | null>) =>
          mark["reading_id"] === null ? { reading_id: "is needed" } : undefined,
        properties: {
          reading_id: optional(reference("readings")),
          mark_id: optional(reference("marks")),
          proof_id: reference("proofs"),
        },
      }),
      collection({
        name: "proofs",
        singular: "proof",
        access: { ...access, delete: "admin" },
        properties: { reading_id: reference("readings") },
      }),
      collection({
        name: "alarms",
        singular: "alarm",
        private: true,
        access: { read: "viewer", write: "viewer", delete: "viewer" },
        properties: { reading_id: optional(reference("readings")) },
      }),
    ],
  };
};

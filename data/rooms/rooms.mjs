/**
 * Rooms that members book by the hour. Two bookings of one room and hour are
 * impossible: `unique` is judged in the transaction of the booking itself.
 *
 *     zoo-api --collections rooms.mjs --base-url /api/ --public public
 */

/** @type {import("zoo-api").DeclareApi} */
export default (
  { collection, string, integer, date, reference, unique },
) => ({
  title: "Rooms",
  roles: ["member", "manager", "admin"],
  collections: [
    collection({
      name: "rooms",
      singular: "room",
      access: { read: "anyone", write: "manager", delete: "admin" },
      properties: {
        name: unique(string({ maxLength: 50 })),
        seats: integer({ minimum: 1, maximum: 1000 }),
      },
      sort: ["name"],
    }),
    collection({
      name: "bookings",
      singular: "booking",
      access: { read: "member", write: "member", delete: "manager" },
      properties: {
        room_id: reference("rooms"),
        day: date(),
        hour: integer({ minimum: 0, maximum: 23 }),
        purpose: string({ maxLength: 100 }),
      },
      unique: [["room_id", "day", "hour"]],
      sort: ["day", "hour"],
      keep: { days: 365, by: "day" },
    }),
  ],
});

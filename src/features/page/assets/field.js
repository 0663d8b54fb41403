/** Fields of forms: a property with its control and its rules, and the choice of a record that it refers to. */

/**
 * Requests the records whose title is a text or, with an operator, has it; returns their ids with their titles.
 *
 * @param {string} text
 * @param {string} collection
 */
async function search(text, collection, operator = "") {
  const title = titleNameOf((await optionsOf(collection)).properties);
  const query = text && `${title}${operator}=${encodeURIComponent(text)}`;
  const { body } = await get(`${collection}?${query}`, true);
  /** @type {Values[]} */
  const records = Array.isArray(body) ? body : [];
  return records.map((record) => [`#${record.id}`, record[title]]);
}

/**
 * Creates the suggestions for a field: the records whose title has what is typed.
 *
 * @param {ReturnType<typeof control>} input
 * @param {string} collection
 */
function suggestionsFor(input, collection) {
  const list = h("datalist", { id: `list-${input.name}` });
  input.oninput = input.onfocus = async () => {
    const typed = input.value;
    const found = await search(typed, collection, ":contains");
    if (typed !== input.value) return;
    list.replaceChildren(
      ...found.map(([id, title]) => h("option", { value: title ?? id }, id)),
    );
  };
  return list;
}

/**
 * Returns the id of the record that the text of a field names, and throws an error unless it is exactly one: #7 may be an id, and the title of another record.
 *
 * @param {string} text
 * @param {string} collection
 */
async function readReference(text, collection) {
  const found = await search(text, collection);
  const ids = found.flatMap(([id, title]) =>
    title === text && id !== text ? id : []
  );
  if (/^#\d+$/.test(text)) ids.push(text);
  if (ids.length === 1) return Number(ids[0].slice(1));
  throw new Error(
    ids[0]
      ? `Several records have this title or id: write one of ${ids.join(", ")}.`
      : "No record has this title: choose one of the list.",
  );
}

/**
 * A property with its control; `read` returns its JSON value.
 *
 * @param {string} name
 * @param {Schema} schema
 * @param {Values[string]} value
 * @param {boolean} isRequired
 */
export function fieldOf(name, schema, value, isRequired) {
  const collection = collectionOf(schema);
  const target = `${collection}/${value}`;
  const text = collection && value ? titles.get(target) ?? `#${value}` : value;
  const input = control(schema, {
    id: `field-${name}`,
    name,
    dir: "auto",
    autocomplete: "off",
    placeholder: collection && "A title, or an id such as #7",
    list: `list-${name}`,
    "aria-describedby": `hint-${name} error-${name}`,
    "aria-required": isRequired,
    ...(schema.writeOnly && { type: "password" }),
  }, String(text ?? ""));
  const before = input.value;
  const error = h("p.wrong", { id: `error-${name}` });
  const mark = (message = "") => {
    error.textContent = message;
    input.ariaInvalid = String(message !== "");
  };
  const read = async () => {
    const typed = textOf(input);
    if (typed === "") return isOfType(schema, /null/) ? null : "";
    if (collection) return await readReference(typed.trim(), collection);
    if (isOfType(schema, /boolean/)) return typed === "true";
    const number = isNumeric(schema) && parse(typed);
    return Number.isFinite(number) ? number : typed;
  };
  const row = h(
    "div.field",
    { oninput: () => mark() }, // until the next save judges it
    h("label", { for: input.id }, nameOf(name), h("span.name", name)),
    input,
    collection && suggestionsFor(input, collection),
    error,
    h("p.hint", { id: `hint-${name}` }, rulesOf(schema, isRequired)),
  );
  return { name, row, mark, read, isChanged: () => input.value !== before };
}

/** JSON Schema as the profile builder needs it: what kind of field a value has, and what a new value is. No DOM. */

/** @typedef {Array<string | number>} Path */

/** As the server names a place: `groups[0].model.http.interval`. @param {Path} path */
export const place = (path) => path.reduce((/** @type {string} */ text, key) => (typeof key === "number" ? `${text}[${key}]` : text ? `${text}.${key}` : key), "");

/** The value at a place. @param {any} whole @param {Path} path */
export const at = (whole, path) => path.reduce((value, key) => (value === null || value === undefined ? undefined : value[key]), whole);

/** The same document with another value at a place; `undefined` takes the key away. @param {any} whole @param {Path} path @param {any} value @returns {any} */
export function put(whole, [key, ...rest], value) {
  if (key === undefined) return value;
  const made = Array.isArray(whole) ? [...whole] : { ...whole };
  const next = rest.length ? put(made[key] ?? (typeof rest[0] === "number" ? [] : {}), rest, value) : value;
  if (next === undefined && Array.isArray(made)) made.splice(Number(key), 1);
  else if (next === undefined) delete made[key];
  else made[key] = next;
  return made;
}

/** A map with a key renamed, in its place. @param {any} map @param {string} from @param {string} to */
export const renamed = (map, from, to) => Object.fromEntries(Object.entries(map).map(([key, value]) => [key === from ? to : key, value]));

/** Every place where a document has a value. @param {any} value @param {Path} path @returns {Set<string>} */
export function places(value, path = [], found = new Set()) {
  found.add(place(path));
  if (value && typeof value === "object") for (const [key, one] of Object.entries(value)) places(one, [...path, Array.isArray(value) ? Number(key) : key], found);
  return found;
}

const isNull = (/** @type {any} */ one) => one.type === "null";

/** A schema with its references followed and `null` taken out. @param {any} root @param {any} schema @returns {any} */
export function resolved(root, schema) {
  let found = schema;
  for (let deep = 0; deep < 20; deep += 1) {
    if (found.$ref) {
      const { $ref, ...own } = found;
      found = { ...at(root, $ref.replace("#/", "").split("/")), ...own };
      continue;
    }
    const choices = found.anyOf ?? found.oneOf;
    if (choices?.some(isNull) || choices?.length === 1) {
      const { anyOf, oneOf, ...own } = found;
      const left = choices.filter((/** @type {any} */ one) => !isNull(one));
      found = left.length === 1 ? { ...left[0], ...own } : { ...own, anyOf: left };
      continue;
    }
    if (Array.isArray(found.type)) {
      const left = found.type.filter((/** @type {string} */ one) => one !== "null");
      found = { ...found, type: left.length === 1 ? left[0] : undefined, anyOf: left.length > 1 ? left.map((/** @type {string} */ type) => ({ type })) : undefined };
    }
    return found;
  }
  return found;
}

const SCALAR = ["string", "number", "integer"];

/** The schema of a key, where a key beside it says which. @param {any} schema @param {any} beside */
export function chosen(schema, beside) {
  const [[key, all]] = Object.entries(schema["x-netdyno-by"] ?? { "": {} });
  return all[beside[key]] ?? schema;
}

/** The variants of an object with one key that names the rest. @param {any} root @param {any} schema @returns {Array<{name: string, about: string, schema: any}>} */
export function variants(root, schema) {
  return (schema.oneOf ?? schema.anyOf ?? []).map((/** @type {any} */ one) => {
    const made = resolved(root, one);
    const [name] = made.required ?? [];
    return { name, about: made.description ?? "", schema: made.properties?.[name] };
  });
}

/** What kind of field a schema, already resolved, asks for. @param {any} root @param {any} schema @returns {string} */
export function kind(root, schema) {
  const choices = schema.oneOf ?? schema.anyOf;
  if (schema.enum) return "choice";
  if (choices) {
    const all = choices.map((/** @type {any} */ one) => resolved(root, one));
    if (all.every((/** @type {any} */ one) => "const" in one || one.enum)) return "choice";
    if (all.every((/** @type {any} */ one) => one.type === "object" && one.required?.length === 1 && Object.keys(one.properties ?? {}).length === 1)) return "variant";
    if (all.length === 3 && ["string", "number", "boolean"].every((type) => all.some((/** @type {any} */ one) => one.type === type))) return "scalar";
    return all.every((/** @type {any} */ one) => SCALAR.includes(one.type)) ? (all.every((/** @type {any} */ one) => one.type === "string") ? "text" : "mixed") : "any";
  }
  if (schema.type === "object") return schema.properties ? "object" : schema.additionalProperties && schema.additionalProperties !== true ? "map" : "any";
  if (schema.type === "array") return schema.items ? "list" : "any";
  return { boolean: "flag", integer: "number", number: "number", string: "text" }[/** @type {string} */ (schema.type)] ?? "any";
}

/** Whether a field is one line. @param {string} of */
export const simple = (of) => ["choice", "flag", "number", "text", "mixed", "scalar"].includes(of);

/** The values of a choice, each with what it means. @param {any} root @param {any} schema @returns {Array<{value: any, about: string}>} */
export function options(root, schema) {
  if (schema.enum) return schema.enum.map((/** @type {any} */ value) => ({ value, about: "" }));
  return (schema.oneOf ?? schema.anyOf).flatMap((/** @type {any} */ one) => {
    const made = resolved(root, one);
    return "const" in made ? [{ value: made.const, about: made.description ?? "" }] : options(root, made);
  });
}

/** Whether a field of a kind can show a value. @param {string} of @param {any} value */
export function fits(of, value) {
  if (value === undefined || value === null || of === "any") return true;
  if (of === "list") return Array.isArray(value);
  if (["object", "map"].includes(of)) return typeof value === "object" && !Array.isArray(value);
  if (of === "variant") return typeof value === "object" && !Array.isArray(value) && Object.keys(value).length === 1;
  return typeof value !== "object";
}

/** A new value, with what is required in it. @param {any} root @param {any} schema @returns {any} */
export function fresh(root, schema, deep = 0) {
  const made = resolved(root, schema);
  const of = kind(root, made);
  if (made.default !== undefined && made.default !== null && simple(of)) return made.default;
  if (of === "choice") return options(root, made)[0]?.value;
  if (of === "flag") return false;
  if (of === "number") return made.minimum ?? 0;
  if (of === "list") return [];
  if (of === "map" || of === "any") return {};
  if (of === "variant") {
    const [first] = variants(root, made);
    return { [first.name]: deep < 8 ? fresh(root, first.schema, deep + 1) : {} };
  }
  if (of !== "object") return "";
  return Object.fromEntries((made.required ?? []).map((/** @type {string} */ key) => [key, deep < 8 ? fresh(root, made.properties[key], deep + 1) : {}]));
}

/** What somebody typed, as a value: a number where the field takes one and it reads as one. @param {string} of @param {string} text */
export const typed = (of, text) =>
  of === "scalar" && /^(true|false)$/.test(text.trim())
    ? text.trim() === "true"
    : ["number", "mixed", "scalar"].includes(of) && /^-?\d+(\.\d+)?$/.test(text.trim())
      ? Number(text)
      : text;

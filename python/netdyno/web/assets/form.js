/** A form rendered from a JSON Schema: fields with help and default, errors at their place, keys added and removed. */

import { html, nothing } from "./lit-html.js";
import { tr } from "./i18n.js";
import { name } from "./parts.js";
import { at, chosen, fits, fresh, kind, options, place, renamed, resolved, simple, typed, variants } from "./schema.js";

/**
 * @typedef {import("./schema.js").Path} Path
 * @typedef {{root: any, document: any, errors: any[], pinned: Set<string>, opened: Set<string>, drafts: Map<string, string>,
 *   change: (path: Path, value: any) => void, redraw: () => void}} Context
 *   `pinned`: keys that stand in the form from the beginning, so that none moves while somebody types in it
 */

/** The id of the field of a place. @param {Path | string} path */
export const id = (path) => `at:${(typeof path === "string" ? path : place(path)).replace(/\s/g, "_")}`;

/** Prose of the schema, with its code marked. @param {string | undefined} text */
const prose = (text) => (text ?? "").split("`").map((part, i) => (i % 2 ? html`<code translate="no">${part}</code>` : part));

/** @param {Context} context @param {Path} path */
const wrong = (context, path) => context.errors.filter((one) => one.at === place(path));

/** Help and errors of a field, and the attribute that names them. @param {Context} context @param {Path} path @param {any} schema */
function notes(context, path, schema) {
  const errors = wrong(context, path);
  const own = id(path);
  return html`<p class="help" id="${own}-help" lang="en">${prose(schema.description)}</p>
    ${errors.length ? html`<p class="wrong" id="${own}-wrong" lang="en">${errors.map((one) => html`<span><code>${one.code}</code> ${name(one.what)}${one.fix ? html` <span class="fix">${name(one.fix)}</span>` : nothing}</span> `)}</p>` : nothing}`;
}

/** @param {Context} context @param {Path} path */
const described = (context, path) => `${id(path)}-help${wrong(context, path).length ? ` ${id(path)}-wrong` : ""}`;

/** @param {any} value */
const shown = (value) => (value === undefined || value === null ? "" : String(value));

/** A field of one line. @param {Context} context @param {any} schema @param {Path} path @param {any} label @param {boolean} required */
function line(context, schema, path, label, required) {
  const of = kind(context.root, schema);
  const own = id(path);
  const value = at(context.document, path);
  const invalid = wrong(context, path).length > 0;
  const set = (/** @type {any} */ next) => context.change(path, next === "" && !required ? undefined : next);
  const usual = schema.default !== undefined && schema.default !== null && typeof schema.default !== "object" ? String(schema.default) : "";
  const empty = usual ? tr({ t: "default: {value}", a: { value: { d: usual } } }) : tr({ t: "not set" });
  let field;
  if (of === "flag" || of === "choice") {
    const all = of === "flag" ? [{ value: true, about: "" }, { value: false, about: "" }] : options(context.root, schema);
    field = html`<select id=${own} aria-describedby=${described(context, path)} aria-invalid=${invalid} @change=${(/** @type {any} */ e) => set(e.target.value === "" ? "" : all[Number(e.target.value)].value)}>
      ${required ? nothing : html`<option value="" .selected=${value === undefined}>${empty}</option>`}
      ${all.map((one, i) => html`<option value=${i} .selected=${one.value === value} translate="no">${String(one.value)}${one.about ? ` – ${one.about.replaceAll("`", "")}` : ""}</option>`)}
    </select>`;
  } else {
    field = html`<input id=${own} .value=${shown(value)} placeholder=${usual} ?required=${required} inputmode=${of === "number" ? "decimal" : nothing} autocomplete="off" spellcheck="false"
      aria-describedby=${described(context, path)} aria-invalid=${invalid} list=${path.at(-1) === "target" && path.at(-3) === "groups" ? "targets" : nothing}
      @input=${(/** @type {any} */ e) => set(typed(of, e.target.value))}>`;
  }
  return html`<div class="field"><label for=${own}>${label}</label>${field}${notes(context, path, schema)}</div>`;
}

/** A value that has no form of its own, as JSON. @param {Context} context @param {any} schema @param {Path} path @param {any} label */
function json(context, schema, path, label) {
  const own = id(path);
  const key = place(path);
  const value = at(context.document, path);
  const text = context.drafts.get(key) ?? (value === undefined ? "" : JSON.stringify(value, null, 1));
  const change = (/** @type {any} */ e) => {
    const written = e.target.value;
    try {
      const next = written.trim() === "" ? undefined : JSON.parse(written);
      context.drafts.delete(key);
      context.change(path, next);
    } catch {
      context.drafts.set(key, written);
      context.redraw();
    }
  };
  return html`<div class="field"><label for=${own}>${label} (JSON)</label>
    <textarea id=${own} rows="3" spellcheck="false" .value=${text} aria-describedby=${described(context, path)} aria-invalid=${context.drafts.has(key) || wrong(context, path).length > 0} @input=${change}></textarea>
    ${context.drafts.has(key) ? html`<p class="wrong">${tr({ t: "This is not JSON yet." })}</p>` : nothing}${notes(context, path, schema)}</div>`;
}

/** @param {Context} context @param {Path} path @param {string} label */
const remove = (context, path, label) =>
  html`<button type="button" class="plain" aria-label=${tr({ t: "Remove {name}", a: { name: { d: label } } })} @click=${() => context.change(path, undefined)}>${tr({ t: "Remove" })}</button>`;

/** A part of the form with others inside. @param {Context} context @param {any} schema @param {Path} path @param {string} label @param {boolean} removable @param {any} inside */
const part = (context, schema, path, label, removable, inside) =>
  html`<fieldset id=${id(path)} tabindex="-1"><legend><code translate="no">${label}</code> ${removable ? remove(context, path, label) : nothing}</legend>
    ${notes(context, path, schema)}${inside}</fieldset>`;

/** The fields of an object: what is there or required, then the other keys, folded. @param {Context} context @param {any} schema @param {Path} path */
export function keys(context, schema, path) {
  const value = at(context.document, path) ?? {};
  const required = new Set(schema.required ?? []);
  const all = Object.keys(schema.properties).filter((key) => key !== "$schema");
  // in the order of the document, which does not change while somebody types: a set keeps the order of its members
  const order = [...context.pinned];
  const rank = (/** @type {string} */ key) => (order.indexOf(place([...path, key])) + order.length + 1) % (order.length + 1);
  const first = all.filter((key) => required.has(key) || context.pinned.has(place([...path, key]))).sort((a, b) => rank(a) - rank(b));
  const rest = all.filter((key) => !first.includes(key));
  const unknown = Object.keys(value).filter((key) => !all.includes(key) && key !== "$schema");
  const folded = `${place(path)}#`;
  return html`${lines(context, schema, path, first, required)}
    ${unknown.map((key) => json(context, {}, [...path, key], html`<code translate="no">${key}</code>`))}
    ${rest.length
      ? html`<details class="folded" ?open=${context.opened.has(folded)} @toggle=${(/** @type {any} */ e) => {
          if (e.target.open === context.opened.has(folded)) return;
          context.opened[e.target.open ? "add" : "delete"](folded);
          context.redraw();
        }}><summary>${tr({ t: "{n} more keys", a: { n: String(rest.length) } })}</summary>
          ${context.opened.has(folded) ? lines(context, schema, path, rest, required) : nothing}</details>`
      : nothing}`;
}

/** Fields by name; those of one line stand side by side. @param {Context} context @param {any} schema @param {Path} path @param {string[]} named @param {Set<string>} required */
function lines(context, schema, path, named, required) {
  const beside = at(context.document, path) ?? {};
  const made = named.map((key) => {
    const own = chosen(schema.properties[key], beside);
    return { key, own, of: kind(context.root, resolved(context.root, own)) };
  });
  const draw = (/** @type {{key: string, own: any}} */ one) => field(context, one.own, [...path, one.key], one.key, required.has(one.key));
  const [short, long] = [made.filter((one) => simple(one.of)), made.filter((one) => !simple(one.of))];
  return html`${short.length ? html`<div class="row">${short.map(draw)}</div>` : nothing}${long.map(draw)}`;
}

/** The field of a place. @param {Context} context @param {any} unresolved @param {Path} path @param {string} label @param {boolean} required @returns {any} */
export function field(context, unresolved, path, label, required) {
  const schema = resolved(context.root, unresolved);
  const of = kind(context.root, schema);
  const value = at(context.document, path);
  const marked = html`<code translate="no">${label}</code>`;
  if (of === "any" || !fits(of, value)) return json(context, schema, path, marked);
  if (simple(of)) return line(context, schema, path, marked, required);
  if (value === undefined || value === null) {
    const add = () => context.change(path, fresh(context.root, schema));
    return html`<div class="field"><span class="absent">${marked} <button type="button" class="press small" id=${id(path)} aria-label=${tr({ t: "Add {name}", a: { name: { d: label } } })} aria-describedby=${described(context, path)} @click=${add}>${tr({ t: "Add" })}</button></span>${notes(context, path, schema)}</div>`;
  }
  if (of === "object") return part(context, schema, path, label, !required, keys(context, schema, path));
  if (of === "variant") return part(context, schema, path, label, !required, variant(context, schema, path, label));
  if (of === "map") return part(context, schema, path, label, !required, entries(context, schema, path));
  return part(context, schema, path, label, !required, items(context, schema, path, label));
}

/** One of several objects, each under its own key. @param {Context} context @param {any} schema @param {Path} path @param {string} label */
function variant(context, schema, path, label) {
  const all = variants(context.root, schema);
  const [chosen] = Object.keys(at(context.document, path));
  const found = all.find((one) => one.name === chosen);
  const own = `${id(path)}-kind`;
  const choose = (/** @type {any} */ e) => {
    const next = all.find((one) => one.name === e.target.value);
    if (next) context.change(path, { [next.name]: fresh(context.root, next.schema) });
  };
  const inner = found && resolved(context.root, found.schema);
  const below = [...path, chosen];
  return html`<div class="field"><label for=${own}>${tr({ t: "Kind of {name}", a: { name: { d: label } } })}</label>
      <select id=${own} @change=${choose}>${found ? nothing : html`<option value="" selected>${chosen}</option>`}${all.map((one) => html`<option value=${one.name} .selected=${one.name === chosen} translate="no">${one.name} – ${one.about.replaceAll("`", "")}</option>`)}</select></div>
    ${!inner
      ? json(context, {}, below, html`<code translate="no">${chosen}</code>`)
      : kind(context.root, inner) === "object" && fits("object", at(context.document, below))
        ? keys(context, inner, below)
        : field(context, inner, below, chosen, true)}`;
}

/** A map: names and values. @param {Context} context @param {any} schema @param {Path} path */
function entries(context, schema, path) {
  const map = at(context.document, path);
  const names = Object.keys(map);
  const add = () => {
    let number = names.length + 1;
    while (`name${number}` in map) number += 1;
    context.change([...path, `name${number}`], fresh(context.root, schema.additionalProperties));
  };
  return html`${names.map((key, i) => {
      const own = `${id(path)}-name-${i}`;
      const rename = (/** @type {any} */ e) => {
        const to = e.target.value.trim();
        if (to && !(to in map)) context.change(path, renamed(map, key, to));
        else e.target.value = key;
      };
      return html`<div class="pair"><div class="field"><label for=${own}>${tr({ t: "Name" })}</label><input id=${own} .value=${key} autocomplete="off" spellcheck="false" list=${path.length === 1 && path[0] === "factors" ? "factors" : nothing} @change=${rename}></div>
        ${field(context, schema.additionalProperties, [...path, key], key, true)}${remove(context, [...path, key], key)}</div>`;
    })}
    <p><button type="button" class="press small" aria-label=${tr({ t: "Add to {name}", a: { name: { d: String(path.at(-1)) } } })} @click=${add}>${tr({ t: "Add" })}</button></p>`;
}

/** A list. @param {Context} context @param {any} schema @param {Path} path @param {string} label */
function items(context, schema, path, label) {
  const list = at(context.document, path);
  const one = resolved(context.root, schema.items);
  const short = simple(kind(context.root, one));
  const add = () => context.change([...path, list.length], fresh(context.root, schema.items));
  return html`${list.map((/** @type {any} */ value, /** @type {number} */ i) => {
      const here = [...path, i];
      const called = typeof value?.name === "string" && value.name ? value.name : `${label} ${i + 1}`;
      return short || kind(context.root, one) === "any"
        ? html`<div class="pair">${field(context, { ...one, description: "" }, here, `${label} ${i + 1}`, true)}${remove(context, here, called)}</div>`
        : field(context, one, here, called, false);
    })}
    <p><button type="button" class="press small" aria-label=${tr({ t: "Add to {name}", a: { name: { d: label } } })} @click=${add}>${tr({ t: "Add" })}</button></p>`;
}

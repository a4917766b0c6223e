/** The language of the page: gettext catalogues in, text of every `data-t…` element out. */

/** @typedef {{t: string, a?: Record<string, string | Text>} | {d: string}} Text a message, or data shown as it is */

/** @type {Record<string, Record<string, string>>} */
let catalogues = {};
let language = "en";
/** @type {Array<() => void>} */
const listeners = [];
const ATTRIBUTES = ["aria-label", "placeholder", "title"];
const KEY = "netdyno.language";

/** @param {Text | string} text */
export function tr(text) {
  if (typeof text === "string") return text;
  if ("d" in text) return text.d;
  const pattern = catalogues[language]?.[text.t] ?? text.t;
  return pattern.replace(/\{(\w+)\}/g, (place, name) => {
    const value = text.a?.[name];
    if (value === undefined) return place;
    // A name keeps its direction of writing to itself.
    return typeof value === "object" && "d" in value ? `\u2068${value.d}\u2069` : tr(value);
  });
}

/** An element whose text follows the language. @param {string} tag @param {Text} text @param {string} [className] */
export function element(tag, text, className = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if ("d" in text) {
    made.textContent = text.d;
    made.setAttribute("translate", "no");
    made.dir = "auto";
  } else {
    say(made, text);
  }
  return made;
}

/** Put a message into an element, now and after each change. @param {Element} where @param {Text} text */
export function say(where, text, attribute = "") {
  const suffix = attribute ? `-${attribute}` : "";
  where.setAttribute(`data-t${suffix}`, text.t);
  if (text.a) where.setAttribute(`data-a${suffix}`, JSON.stringify(text.a));
  else where.removeAttribute(`data-a${suffix}`);
  if (attribute) where.setAttribute(attribute, tr(text));
  else where.textContent = tr(text);
}

/** @param {Element} where @param {string} suffix @returns {string} */
function read(where, suffix) {
  const args = where.getAttribute(`data-a${suffix}`);
  return tr({ t: where.getAttribute(`data-t${suffix}`) ?? "", a: args ? JSON.parse(args) : undefined });
}

function apply() {
  document.documentElement.lang = language;
  for (const where of document.querySelectorAll("[data-t]")) where.textContent = read(where, "");
  for (const name of ATTRIBUTES) {
    for (const where of document.querySelectorAll(`[data-t-${name}]`)) where.setAttribute(name, read(where, `-${name}`));
  }
  for (const button of document.querySelectorAll("[data-language]")) {
    button.setAttribute("aria-pressed", String(button.getAttribute("data-language") === language));
  }
  for (const listener of listeners) listener();
}

/** The language that the page has now. */
export function current() {
  return language;
}

/** @param {() => void} listener called after each change of the language */
export function onLanguage(listener) {
  listeners.push(listener);
}

/** What the address asks for: `?lang=ko` or `#ko`. */
function asked() {
  const names = [new URLSearchParams(location.search).get("lang"), location.hash.slice(1)];
  return names.find((name) => name && name in catalogues);
}

function remembered() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // no storage for this page, as under some file:// policies
  }
}

/** @param {string} name */
function choose(name) {
  language = name;
  try {
    localStorage.setItem(KEY, name);
  } catch {
    // the choice holds for this visit
  }
  apply();
}

/** The address first, then the last choice, then the browser's own language. @param {typeof catalogues} given */
export function startLanguage(given) {
  catalogues = given;
  const wishes = [asked(), remembered(), ...navigator.languages.map((tag) => tag.split("-")[0])];
  language = wishes.find((name) => name && name in catalogues) ?? "en";
  for (const button of document.querySelectorAll("[data-language]")) {
    button.addEventListener("click", () => choose(button.getAttribute("data-language") ?? "en"));
  }
  addEventListener("hashchange", () => {
    const name = asked();
    if (name && location.hash.slice(1) === name) choose(name);
  });
  apply();
}

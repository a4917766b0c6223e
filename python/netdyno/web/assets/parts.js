/** Small pieces that several pages show: errors, verdict marks, names, and what a screen reader is told. */

import { html, nothing, svg } from "./lit-html.js";
import { tr } from "./i18n.js";
import { NONE, show } from "./format.js";

/** @param {any} text a message or data, said by a screen reader */
export function say(text) {
  const place = document.getElementById("said");
  if (place) place.textContent = tr(text);
}

/** @type {any} */
let title = null;

/** The title of the window, in the language of the page. @param {any} [text] */
export function titled(text = title) {
  title = text;
  document.title = text ? `${tr(text)} – netdyno` : "netdyno";
}

/** A name out of a result, a profile or a server: shown as it is, with its own direction of writing. @param {string} text */
export const name = (text) => html`<bdi translate="no">${text}</bdi>`;

/** A message, or data as it is. @param {any} text */
export const shown = (text) => (text && "d" in text ? name(text.d) : html`<span>${text ? tr(text) : ""}</span>`);

const MARKS = { pass: "M12 27l9 9 19-20", fail: "M15 15l22 22M37 15L15 37", none: "M14 26h24", invalid: "M26 12v18M26 38v1", same: "M14 21h24M14 31h24" };

/** The sign of a verdict. @param {string} state */
export const mark = (state) =>
  html`<svg class="mark" viewBox="0 0 52 52" aria-hidden="true">${svg`<circle cx="26" cy="26" r="24"/><path d=${MARKS[state] ?? MARKS.none}/>`}</svg>`;

/** An error of the server: what was wrong, where, and what to do. @param {any} failure */
export function failure(failure) {
  if (!failure) return nothing;
  const error = failure.error ?? { code: "", what: String(failure.message ?? failure), at: "", fix: "" };
  const all = error.all?.length ? error.all : [error];
  return html`<div class="failure" role="alert" lang="en">
    ${all.map(
      (/** @type {any} */ one) =>
        html`<p><code>${one.code}</code> ${one.at ? html`<b>${name(one.at)}</b> ` : nothing}${name(one.what)}${one.fix ? html`<br><span class="fix">${name(one.fix)}</span>` : nothing}</p>`,
    )}
  </div>`;
}

const STATES = {
  running: { t: "under way" },
  lost: { t: "ended without a result" },
  pass: { t: "Pass" },
  fail: { t: "Fail" },
  none: { t: "No verdict" },
  invalid: { t: "Not valid" },
  interrupted: { t: "Interrupted" },
};

/** The load of a run: what was intended, or how many devices sent as fast as they could. @param {any} subject */
export const load = (subject) =>
  subject.rate !== null ? show(subject.rate, "/s") : subject.devices ? tr({ t: "{n} devices", a: { n: show(subject.devices, "count") } }) : NONE;

/** In a word how a run is, and its tone. @param {any} row @returns {[string, any]} */
export function state(row) {
  const stopped = row.state === "done" && row.verdict === "none" && row.subject.interrupted;
  const key = stopped ? "interrupted" : row.state !== "done" ? row.state : row.valid || row.kind !== "run" ? row.verdict : "invalid";
  return [key, STATES[key] ?? { d: key }];
}

/** @param {any} row */
export function badge(row) {
  const [key, text] = state(row);
  return html`<span class="badge ${key}">${tr(text)}</span>`;
}

/** A time of the server in the browser's own zone. @param {string} stamp */
export function when(stamp) {
  const date = new Date(stamp);
  if (Number.isNaN(date.getTime())) return html`${stamp}`;
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const text = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return html`<time datetime=${stamp}>${text}</time>`;
}

/**
 * A table that may be wider than the window; the first cell of a row is its heading.
 * @param {any} caption @param {any[]} heads messages; of a column of numbers `{n: message}` @param {any[][]} rows @param {string} [id]
 */
export const table = (caption, heads, rows, id) => html`<div class="scroll" tabindex="0" role="region" aria-label=${tr(caption)}>
  <table id=${id ?? nothing}><caption class="sr">${tr(caption)}</caption>
    <thead><tr>${heads.map((one) => html`<th scope="col" class=${one.n ? "n" : nothing}>${tr(one.n ?? one)}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell, i) => (i ? html`<td class=${heads[i].n ? "n" : nothing}>${cell}</td>` : html`<th scope="row">${cell}</th>`))}</tr>`)}</tbody></table></div>`;

/**
 * Where the load comes from: this machine, or a fleet. Nothing where no fleet is up.
 * @param {string} id @param {string[]} fleets those that are up @param {string} [chosen] @param {(fleet: string) => void} [choose]
 */
export const generator = (id, fleets, chosen = "", choose = () => {}) => {
  // one that is not up any more is still what was chosen: the server says so
  const all = chosen && !fleets.includes(chosen) ? [...fleets, chosen] : fleets;
  return all.length
    ? html`<label for=${id}>${tr({ t: "Run on" })}</label>
        <select id=${id} name="fleet" @change=${(/** @type {any} */ e) => choose(e.target.value)}><option value="" ?selected=${!chosen}>${tr({ t: "this machine" })}</option>
          ${all.map((one) => html`<option value=${one} ?selected=${one === chosen}>${tr({ t: "fleet {name}", a: { name: { d: one } } })}</option>`)}</select>`
    : nothing;
};

/** The part of the address behind `?`. */
export const asked = () => new URLSearchParams(location.hash.split("?")[1] ?? "");

/** Links between the views of a page. @param {any} label @param {string} base @param {Record<string, any>} views @param {string} here */
export const views = (label, base, views, here) => html`<nav class="views" aria-label=${tr(label)}>
  ${Object.entries(views).map(([key, text]) => html`<a href="${base}?view=${key}" aria-current=${key === here ? "page" : nothing}>${tr(text)}</a>`)}</nav>`;

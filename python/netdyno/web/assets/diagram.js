/** Drawings of boxes and edges that the server made: shown as they are, with counters that are brought up to date. */

import { html } from "./lit-html.js";
import { tr } from "./i18n.js";
import { name, table } from "./parts.js";

/** @type {WeakMap<Element, string>} what is drawn where */
const drawn = new WeakMap();

/**
 * Put a drawing into its place, unless it is there, and the texts on its edges.
 * @param {Element | null} place @param {string} drawing @param {any} label @param {Record<string, string>} [texts] by key of the edge
 */
export function draw(place, drawing, label, texts = {}) {
  if (!place) return;
  if (drawn.get(place) !== drawing || !place.firstElementChild) {
    const svg = new DOMParser().parseFromString(drawing, "text/html").body.firstElementChild;
    place.replaceChildren(...(svg ? [document.importNode(svg, true)] : []));
    drawn.set(place, drawing);
  }
  place.firstElementChild?.setAttribute("aria-label", tr(label));
  for (const one of place.querySelectorAll("[data-edge]")) {
    const text = texts[one.getAttribute("data-edge") ?? ""];
    if (text !== undefined && one.textContent !== text) one.textContent = text;
  }
}

/** The place of a drawing. @param {string} id @param {any} label */
export const frame = (id, label) => html`<div class="scroll drawing" id=${id} tabindex="0" role="region" aria-label=${tr(label)}></div>`;

/** The same as a table. @param {any} caption @param {{from: string, to: string, label: string, both: boolean}[]} edges */
export const edges = (caption, edges) =>
  html`<details class="folded"><summary>${tr({ t: "As a table" })}</summary>
    ${table(caption, [{ t: "From" }, { t: "To" }, { t: "Remark" }], edges.map((one) => [name(one.from), html`${one.both ? "↔ " : ""}${name(one.to)}`, name(one.label)]))}</details>`;

/** Charts that grow while a run goes on, drawn by the report's modules. */

import { figure } from "./figure.js";

const key = (/** @type {any} */ label) => JSON.stringify(label);

/** What a line has where nothing was said of it: no error and nobody who waits are none, all else is not known. */
const missing = (/** @type {string} */ chart) => (chart === "errors" || chart === "waiting" ? 0 : null);

export class Charts {
  /** @param {HTMLElement} root @param {string} sync */
  constructor(root, sync) {
    this.root = root;
    this.sync = sync;
    /** @type {{t: number[], phases: any[]}} */
    this.trial = { t: [], phases: [] };
    /** @type {Map<string, {spec: any, element: any}>} */
    this.shown = new Map();
  }

  /** Draw everything again. @param {{t: number[], phases: any[], charts: any[]}} found */
  whole(found) {
    this.trial = { t: found.t, phases: found.phases };
    this.shown.clear();
    this.root.replaceChildren();
    for (const spec of found.charts) this.add(spec);
  }

  /** @param {any} spec */
  add(spec) {
    const element = figure(spec, this.trial, this.sync);
    this.shown.set(spec.id, { spec, element });
    this.root.append(element);
  }

  /** Points at the end of every line. @param {number[]} t @param {any[]} columns charts of these points alone */
  news(t, columns) {
    const before = this.trial.t.length;
    this.trial.t.push(...t);
    /** @type {Set<string>} */
    const anew = new Set();
    for (const column of columns) {
      const known = this.shown.get(column.id);
      if (!known) {
        for (const view of column.views) for (const line of view.lines) line.values.unshift(...Array(before).fill(missing(column.id)));
        this.add(column);
        continue;
      }
      for (const view of column.views) {
        const mine = known.spec.views.find((/** @type {any} */ one) => key(one.label) === key(view.label));
        if (!mine) {
          for (const line of view.lines) line.values.unshift(...Array(before).fill(missing(column.id)));
          known.spec.views.push(view);
          anew.add(column.id);
          continue;
        }
        for (const line of view.lines) {
          const old = mine.lines.find((/** @type {any} */ one) => key(one.label) === key(line.label));
          if (old) old.values.push(...line.values);
          else {
            line.values.unshift(...Array(before).fill(missing(column.id)));
            mine.lines.push(line);
            anew.add(column.id);
          }
        }
      }
    }
    for (const [id, { spec, element }] of this.shown) {
      for (const view of spec.views) {
        for (const line of view.lines) while (line.values.length < this.trial.t.length) line.values.push(missing(id));
      }
      if (anew.has(id)) {
        const fresh = figure(spec, this.trial, this.sync);
        element.replaceWith(fresh);
        this.shown.set(id, { spec, element: fresh });
      } else {
        element.refresh();
      }
    }
  }
}

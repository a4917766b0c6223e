/** One metric over the runs of a target: a line, and a table of the runs. */

import { html, nothing, render } from "./lit-html.js";
import { tr } from "./i18n.js";
import { get } from "./api.js";
import { NONE } from "./format.js";
import { figure } from "./figure.js";
import { badge, failure, load as loadOf, name, table, titled, when } from "./parts.js";

/** @param {HTMLElement} root @param {{name: string, expired: () => void}} context */
export function open(root, context) {
  const id = context.name;
  /** @type {any} */
  let found = null;
  /** @type {any} */
  let problem = null;
  let metric = "";
  let leg = "";
  let named = false;

  async function load() {
    try {
      found = await get(`/api/trend/${id}?metric=${encodeURIComponent(metric)}&leg=${encodeURIComponent(leg)}&named=${named ? 1 : 0}`);
      metric = found.metric;
      leg = found.leg;
      problem = null;
    } catch (e) {
      if (/** @type {any} */ (e).status === 401) return context.expired();
      problem = e;
    }
    draw();
    const place = root.querySelector("#charts");
    if (place && found) place.replaceChildren(figure(found.chart, { t: [], phases: [] }, ""));
  }

  /** @param {any} row @param {number} i */
  const line = (row, i) => [
    String(i + 1),
    html`<a href="#/run/${row.id}">${name(row.name)}</a>`,
    when(row.started),
    loadOf(row.subject),
    html`${row.value}${row.spread ? html`<small>${row.spread}</small>` : nothing}`,
    badge(row),
  ];

  function draw() {
    render(
      html`<p class="back"><a href="#/run/${id}">${tr({ t: "Back to the run" })}</a></p>
        <h1>${tr({ t: "Trend" })}</h1>
        ${failure(problem)}
        ${found
          ? html`<p class="under about">→ ${name(found.target || NONE)}</p>
              <p class="bar"><label>${tr({ t: "Metric" })} <select id="metric" @change=${(/** @type {any} */ e) => ((metric = e.target.value), load())}>
                  ${found.metrics.map((/** @type {any} */ one) => html`<option value=${one.id} ?selected=${one.id === metric}>${"d" in one.label ? one.label.d : tr(one.label)}</option>`)}</select></label>
                ${found.legs.length > 1
                  ? html`<label>${tr({ t: "Leg" })} <select id="leg" @change=${(/** @type {any} */ e) => ((leg = e.target.value), load())}>
                      ${found.legs.map((/** @type {string} */ one) => html`<option value=${one} ?selected=${one === leg}>${one}</option>`)}</select></label>`
                  : nothing}
                <label><input type="checkbox" id="named" .checked=${named} @change=${(/** @type {any} */ e) => ((named = e.target.checked), load())}> ${tr({ t: "Only runs named {name}", a: { name: { d: found.name } } })}</label></p>
              <h2 class="small">${tr({ t: "Runs with this target" })}</h2>
              <div class="charts" id="charts"></div>
              ${table(
                { t: "Runs with this target" },
                [{ n: { t: "No." } }, { t: "Run" }, { t: "Started" }, { n: { t: "Load" } }, { n: { t: "Value" } }, { t: "Verdict" }],
                found.runs.map(line),
                "trend",
              )}`
          : problem
            ? nothing
            : html`<p class="none">${tr({ t: "Loading…" })}</p>`}`,
      root,
    );
  }
  titled({ t: "Trend" });
  draw();
  load();
  return { render: draw };
}

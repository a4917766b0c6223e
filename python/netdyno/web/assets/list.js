/** The list of runs: those under way, and those of the store. */

import { html, nothing, render } from "./lit-html.js";
import { tr } from "./i18n.js";
import { follow, get } from "./api.js";
import { NONE, show } from "./format.js";
import { badge, failure, load, name, state, titled, when } from "./parts.js";

/** Finished runs of a page. */
const PAGE = 50;

/** @param {HTMLElement} root @param {{user: any, expired: () => void}} context */
export function open(root, context) {
  /** @type {any[] | null} */
  let rows = null;
  /** @type {any} */
  let problem = null;
  let wanted = "";
  let first = 0;
  /** @type {string[]} */
  let chosen = [];

  async function lost() {
    try {
      await get("/api/about");
      problem = null;
    } catch (e) {
      if (/** @type {any} */ (e).status === 401) return context.expired();
      problem = e;
    }
    draw();
  }

  const stop = follow("/api/runs", {
    whole: (found) => take(found),
    news: (found) => take(found),
    lost,
  });

  /** @param {any[]} found */
  function take(found) {
    rows = found;
    problem = null;
    chosen = chosen.filter((id) => found.some((row) => row.id === id));
    draw();
  }

  /** @param {string} id @param {boolean} on */
  function choose(id, on) {
    chosen = on ? [...chosen, id] : chosen.filter((one) => one !== id);
    draw();
  }

  const comparison = () => {
    const [a, b] = (rows ?? []).filter((row) => chosen.includes(row.id)).map((row) => row.id).reverse();
    return `/compare?a=${a}&b=${b}&lang=${document.documentElement.lang}`;
  };

  /** @param {any} row */
  const line = (row) => html`<li class="run">
    ${row.state === "running"
      ? html`<span></span>`
      : html`<input type="checkbox" .checked=${chosen.includes(row.id)} ?disabled=${chosen.length === 2 && !chosen.includes(row.id)} aria-label=${tr({ t: "Choose {name} to compare", a: { name: row.id } })}
          @change=${(/** @type {any} */ e) => choose(row.id, e.target.checked)}>`}
    <a class="of" href="#/run/${row.id}">${name(row.name)}<small translate="no">${row.id}</small></a>
    <span class="about">${row.subject.target ? name(row.subject.target) : nothing}<small>${load(row.subject)}${row.subject.duration ? html` · ${show(row.subject.duration, "s")}` : nothing} · p99 ${row.subject.p99 ? show(row.subject.p99, "ns") : NONE}</small></span>
    ${badge(row)}
    <span class="what">${row.kind === "run" ? nothing : name(row.kind)}
      ${row.trials === 1 ? tr({ t: "1 trial" }) : tr({ t: "{n} trials", a: { n: String(row.trials) } })}${row.finding ? html`<small>${name(row.finding)}</small>` : nothing}</span>
    <span class="at">${when(row.started)}</span>
  </li>`;

  function draw() {
    const all = rows ?? [];
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    const match = (/** @type {any} */ row) => {
      const [key, text] = state(row);
      const said = `${row.id} ${row.name} ${row.kind} ${row.subject.target} ${key} ${tr(text)} ${row.finding}`.toLowerCase();
      return words.every((one) => said.includes(one));
    };
    const running = all.filter((row) => row.state === "running");
    const past = all.filter((row) => row.state !== "running" && match(row));
    first = Math.min(first, Math.max(0, Math.ceil(past.length / PAGE) - 1) * PAGE);
    const to = (/** @type {number} */ place) => () => {
      first = place;
      draw();
      document.getElementById("past")?.scrollIntoView({ block: "start" });
    };
    render(
      html`<h1>${tr({ t: "Runs" })}</h1>
        <p class="under">${tr({ t: "All runs of this user on this machine, whoever started them." })}</p>
        ${failure(problem)}
        ${running.length
          ? html`<section class="tight" aria-labelledby="running"><h2 id="running">${tr({ t: "Under way" })}</h2><ul class="runs">${running.map(line)}</ul></section>`
          : nothing}
        <section class="tight" aria-labelledby="past">
          <h2 id="past">${tr({ t: "Finished" })}</h2>
          <div class="bar">
            <label>${tr({ t: "Find" })} <input type="search" size="26" .value=${wanted} placeholder=${tr({ t: "Name, target or verdict" })} @input=${(/** @type {any} */ e) => ((wanted = e.target.value), (first = 0), draw())}></label>
            ${chosen.length === 2
              ? html`<a class="press" href=${comparison()} target="_blank" rel="noopener">${tr({ t: "Compare the two" })}</a>`
              : html`<span class="hint">${tr({ t: "Choose two runs to compare them." })}</span>`}
            <output>${rows ? tr({ t: "{n} of {total} runs", a: { n: String(past.length), total: String(all.length - running.length) } }) : ""}</output>
          </div>
          ${rows === null ? html`<p class="none">${tr({ t: "Loading…" })}</p>` : nothing}
          ${rows && !all.length
            ? html`<p class="none">${tr({ t: "There are no runs yet." })} ${context.user.role === "operator" ? html`<a href="#/new">${tr({ t: "Start the first one" })}</a>` : nothing}</p>`
            : nothing}
          <ul class="runs">${past.slice(first, first + PAGE).map(line)}</ul>
          ${past.length > PAGE
            ? html`<nav class="bar" aria-label=${tr({ t: "Pages of the list" })}>
                <button type="button" class="press small" ?disabled=${!first} @click=${to(first - PAGE)}>${tr({ t: "Newer" })}</button>
                <span>${tr({ t: "{from} to {to} of {total}", a: { from: String(first + 1), to: String(Math.min(first + PAGE, past.length)), total: String(past.length) } })}</span>
                <button type="button" class="press small" ?disabled=${first + PAGE >= past.length} @click=${to(first + PAGE)}>${tr({ t: "Older" })}</button></nav>`
            : nothing}
        </section>`,
      root,
    );
  }
  titled({ t: "Runs" });
  draw();
  return { render: draw, close: stop };
}

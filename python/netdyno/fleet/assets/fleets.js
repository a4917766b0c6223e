/** Fleets that are up: their hosts, what each is at, its cores and its clock. */

import { html, nothing, render } from "./lit-html.js";
import { tr } from "./i18n.js";
import { NONE } from "./format.js";
import { watch } from "./api.js";
import { failure, name, say, table, titled } from "./parts.js";

const STATES = {
  idle: { t: "no load" },
  loaded: { t: "load is ready" },
  running: { t: "under way" },
  paused: { t: "paused" },
  draining: { t: "waiting for last answers" },
  done: { t: "last load is over" },
  failed: { t: "last load failed" },
  lost: { t: "does not answer" },
};
const PHASES = { warmup: { t: "warm-up" }, measure: { t: "measuring" }, drain: { t: "draining" } };

const seconds = (/** @type {number} */ x) => `${x.toFixed(0)} s`;
const milliseconds = (/** @type {number} */ x) => (x * 1e3).toFixed(3);

/** @param {any} host */
const clock = (host) => (host.clock_offset === null ? NONE : html`${host.clock_offset < 0 ? "−" : "+"}${milliseconds(Math.abs(host.clock_offset))} ± ${milliseconds(host.clock_error)} ms`);

/** @param {any} host */
const load = (host) => (host.phase ? html`${tr(PHASES[host.phase] ?? { d: host.phase })}<small>${tr({ t: "{past}, at most {left} left", a: { past: seconds(host.elapsed), left: seconds(host.left) } })}</small>` : NONE);

/** @param {any} host */
const state = (host) => html`<span class="badge ${host.error ? "lost" : host.state}">${tr(STATES[host.state] ?? { d: host.state })}</span>${host.error ? html`<small lang="en">${name(host.error.what)}</small>` : nothing}`;

/** @param {HTMLElement} root @param {{expired: () => void}} page */
export function open(root, page) {
  /** @type {any} */
  let now = null;
  /** @type {any} */
  let problem = null;
  let closed = false;
  let silent = 0;

  /** @param {any} fleet */
  const one = (fleet) => html`<h2 class="small">${name(fleet.name)}</h2>
    ${fleet.runs.map((/** @type {any} */ run) => html`<p>${tr({ t: "Run under way" })}: <a href="#/run/${run.id}">${name(run.name)}</a> <small translate="no">${run.id}</small></p>`)}
    ${table({ t: "Hosts of {fleet}", a: { fleet: { d: fleet.name } } }, [{ t: "Host" }, { t: "State" }, { t: "Load" }, { n: { t: "Cores" } }, { n: { t: "Clock against ours" } }, { t: "Launcher" }, { t: "Version" }],
      fleet.hosts.map((/** @type {any} */ host) => [name(host.name), state(host), load(host), host.cores.length ? String(host.cores.length) : NONE, clock(host), name(host.launcher), host.version === null ? NONE : name(host.version)]), `fleet-${fleet.name}`)}`;

  function draw() {
    if (closed) return;
    render(
      html`<h1>${tr({ t: "Fleets" })}</h1>
        ${failure(problem)}
        ${now
          ? now.fleets.length
            ? now.fleets.map(one)
            : html`<p class="none">${tr({ t: "No fleet is up. `netdyno fleet up hosts.yaml` starts one." })}</p>`
          : html`<p class="none">${tr({ t: "Loading…" })}</p>`}`,
      root,
    );
  }

  titled({ t: "Fleets" });
  draw();
  const stop = watch("/api/fleet/fleets/live", (news) => {
    problem = news.error ? news : null;
    if (!news.error) {
      now = news;
      const lost = now.fleets.flatMap((/** @type {any} */ fleet) => fleet.hosts).filter((/** @type {any} */ host) => host.error).length;
      if (lost > silent) say({ t: "{n} hosts do not answer", a: { n: String(lost) } });
      silent = lost;
    }
    draw();
  }, page.expired);
  return {
    render: draw,
    close: () => {
      closed = true;
      stop();
    },
  };
}

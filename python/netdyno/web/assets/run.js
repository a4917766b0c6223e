/** A run: live while it is under way, then its verdict, figures and charts. */

import { html, nothing, render } from "./lit-html.js";
import { tr } from "./i18n.js";
import { NONE, show } from "./format.js";
import { follow, get, post, remove } from "./api.js";
import { draw as drawing, edges, frame } from "./diagram.js";
import { figure } from "./figure.js";
import { Charts } from "./charts.js";
import { badge, failure, load as loadOf, mark, name, say, shown, titled, when } from "./parts.js";

/** What a load is counted in, where it is not messages. @type {Record<string, {t: string}>} */
const UNITS = { calls: { t: "calls" }, registrations: { t: "registrations" }, requests: { t: "requests" }, flows: { t: "flows" } };

/** @param {HTMLElement} root @param {{user: any, name: string, expired: () => void}} context */
export function open(root, context) {
  const id = context.name;
  const operator = context.user.role === "operator";
  /** @type {any} */
  let problem = null;
  /** @type {any} */
  let found = null;
  /** @type {any} */
  let now = null;
  let asking = false;
  /** @type {(() => void) | null} */
  let stop = null;
  /** @type {Charts | null} */
  let charts = null;
  let closed = false;
  /** @type {Record<string, string>} what passed impaired links, by edge of the drawing */
  let links = {};
  /** @type {any} the last change of a rate */
  let changed = null;

  async function load(query = "") {
    try {
      found = await get(`/api/runs/${id}${query}`);
      problem = null;
    } catch (e) {
      if (/** @type {any} */ (e).status === 401) return context.expired();
      problem = e;
    }
    if (closed) return;
    titled(found ? { d: found.row.name } : { t: "Runs" });
    draw();
    if (found?.row.state === "running" && !stop) watch();
    if (found?.run) drawCharts();
  }

  function watch() {
    stop = follow(`/api/runs/${id}/live`, {
      whole: take,
      news: take,
      open: () => {
        problem = null;
      },
      lost: () => {
        problem = { message: tr({ t: "The connection is lost; the run goes on. Trying again…" }) };
        draw();
        // a stream does not say why it was refused
        get(`/api/runs/${id}`).catch((/** @type {any} */ e) => {
          if (closed || !e.status) return;
          if (e.status === 401) return context.expired();
          problem = e;
          draw();
        });
      },
      over: () => {
        stop = null;
        charts = null;
        links = {};
        say({ t: "The run is over." });
        load();
      },
    });
  }

  async function refresh() {
    try {
      const { legs } = await get(`/api/runs/${id}`);
      if (legs) found.legs = legs;
      draw();
    } catch {
      // the stream says when the run is over
    }
  }

  /** @param {any} news */
  function take(news) {
    const before = now?.state;
    // another trial: what the ones before come to so far
    if (now && news.now.trials > 1 && now.trial !== news.now.trial) refresh();
    now = news.now;
    links = news.links ?? {};
    draw();
    const place = /** @type {HTMLElement | null} */ (root.querySelector("#live"));
    if (place && (!charts || charts.root !== place)) charts = new Charts(place, id);
    if (news.again) charts?.whole(news.again);
    else if (news.columns) charts?.news(news.t, news.columns);
    if (before && before !== now.state) say(STATES[now.state] ?? { d: now.state });
  }

  /** @param {string} what @param {any} [body] @param {(found: any) => void} [done] */
  async function act(what, body, done) {
    asking = true;
    draw();
    try {
      const found = await post(`/api/runs/${id}/${what}`, body);
      problem = null;
      done?.(found);
    } catch (e) {
      problem = e;
    }
    asking = false;
    draw();
  }

  async function forget() {
    if (!confirm(tr({ t: "Remove {name} from the list? Its folder stays.", a: { name: id } }))) return;
    try {
      await remove(`/api/runs/${id}`);
      location.hash = "#/";
    } catch (e) {
      problem = e;
      draw();
    }
  }

  function drawCharts() {
    const place = root.querySelector("#charts");
    if (!place) return;
    const trial = found.run.charts;
    place.replaceChildren(
      ...found.run.plots.map((/** @type {any} */ spec) => figure(spec, spec.trial ?? { t: [], phases: [] }, "")),
      ...(trial.charts ?? []).map((/** @type {any} */ spec) => figure(spec, trial, id)),
    );
  }

  function live() {
    if (!now) return html`<p class="none">${tr({ t: "Setting up…" })}</p>`;
    // hosts of a fleet begin together a moment after they were told: until then there is no phase, and nothing to pause
    const paused = now.state === "paused";
    const share = now.duration ? Math.min(1, now.elapsed / now.duration) : 0;
    return html`
      <section class="tight now ${now.warnings.length ? "doubt" : ""}" aria-label=${tr({ t: "State" })}>
        <p class="line"><b class="state">${tr(STATES[now.state] ?? { d: now.state })}</b>
          ${now.phase ? html`<span>${tr(PHASES[now.phase] ?? { d: now.phase })}</span>` : nothing}
          <span>${show(now.elapsed, "s")} / ${show(now.duration, "s")}</span>
          ${now.trials > 1 ? html`<span>${tr({ t: "trial {n} of {total}", a: { n: String(now.trial), total: String(now.trials) } })}</span>` : nothing}
          ${now.leg ? name(now.leg) : nothing} ${now.target ? html`<span class="to">→ ${name(now.target)}</span>` : nothing}</p>
        <progress max="1" .value=${share} aria-label=${tr({ t: "Progress of the trial" })}></progress>
        ${operator
          ? html`<p class="actions">
              ${!now.daemon
                ? nothing
                : paused
                ? html`<button type="button" class="press" ?disabled=${asking} @click=${() => act("resume")}>${tr({ t: "Resume" })}</button>`
                : html`<button type="button" class="press" ?disabled=${asking || now.state !== "running" || !now.phase} @click=${() => act("pause")}>${tr({ t: "Pause" })}</button>`}
              <button type="button" class="press" ?disabled=${asking} @click=${() => act("stop")}>${tr({ t: "Stop" })}</button>
            </p>
            ${now.daemon && now.groups.length ? rates() : nothing}`
          : nothing}
      </section>
      ${now.error ? html`<p class="notice">${name(now.error)}</p>` : nothing}
      ${now.groups.length || now.warnings.length ? html`<p class="valid ${now.warnings.length ? "doubt" : "good"}">${now.warnings.length ? tr({ t: "May not be valid" }) : tr({ t: "Valid so far" })}</p>` : nothing}
      ${now.warnings.map((/** @type {any} */ one) => html`<p class="notice">${tr(one)}</p>`)}
      ${groups()}
      ${now.thresholds.rows.length ? thresholds(now.thresholds, { t: "Thresholds so far" }) : nothing}
      ${found?.legs?.length ? soFar() : nothing}
      ${networkPart()}
      <h2 class="sr">${tr({ t: "Charts" })}</h2>
      <div class="charts" id="live"></div>
      <details class="folded"><summary>${tr({ t: "Log" })}</summary><pre tabindex="0" translate="no">${now.logs.join("\n")}</pre></details>`;
  }

  /** The network of the leg that is shown. */
  const network = () => {
    const leg = found?.row.state === "running" ? now?.leg : found?.run?.legs[found.run.leg]?.name;
    const all = found?.networks ?? [];
    return all.find((/** @type {any} */ one) => one.legs.includes(leg)) ?? (all.length === 1 ? all[0] : null);
  };

  function networkPart() {
    const one = network();
    if (!one) return nothing;
    const listed = one.edges.map((/** @type {any} */ edge) => ({ ...edge, label: links[edge.key] ?? edge.label }));
    return html`<section class="tight" aria-labelledby="network-title"><h2 class="small" id="network-title">${tr({ t: "Network" })}</h2>
      ${frame("network", { t: "Drawing" })} ${edges({ t: "As a table" }, listed)}</section>`;
  }

  /** @param {SubmitEvent} event */
  async function changeRate(event) {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    const rate = String(form.get("rate")).trim();
    changed = null;
    await act("rate", { group: form.get("group"), rate, of: form.get("of") || null }, (found) => {
      changed = found.rates[0] ?? null;
      if (changed) say(rateChanged());
    });
  }

  function rateChanged() {
    const [before, rate, t] = [show(changed.before, "/s"), show(changed.rate, "/s"), show(changed.t, "s")].map((d) => ({ d }));
    return { t: "{group}: {before} → {rate} from {t} on", a: { group: { d: changed.group }, before, rate, t } };
  }

  const rates = () => html`<form class="bar" aria-label=${tr({ t: "Rate" })} @submit=${changeRate}>
      ${now.groups.length > 1
        ? html`<label>${tr({ t: "Group" })} <select name="group">${now.groups.map((/** @type {any} */ one) => html`<option value=${one.name} translate="no">${one.name}</option>`)}</select></label>`
        : html`<input type="hidden" name="group" value=${now.groups[0]?.name ?? ""}>`}
      <label>${tr({ t: "Rate" })} <input id="rate" name="rate" required size="10" placeholder=${tr({ t: "like {rate}", a: { rate: "200/s" } })} autocomplete="off" spellcheck="false"></label>
      <label>${tr({ t: "of" })} <select name="of"><option value="">${tr({ t: "the whole group" })}</option><option value="flow">${tr({ t: "each flow" })}</option></select></label>
      <button class="press small" ?disabled=${asking || !now.phase || !now.groups.length || !["running", "paused"].includes(now.state)}>${tr({ t: "Change the rate" })}</button>
      ${changed ? html`<span class="hint">${tr(rateChanged())}</span>` : nothing}
    </form>`;

  function groups() {
    const rate = (/** @type {number} */ x) => show(x, "/s");
    const cores = [...now.workers, ...Object.entries(now.duts)];
    return html`<div class="scroll" tabindex="0" role="region" aria-label=${tr({ t: "Groups" })}>
        <table><caption class="sr">${tr({ t: "Groups" })}</caption>
          <thead><tr>
            <th scope="col">${tr({ t: "Group" })}</th>
            ${[{ t: "Intended" }, { t: "Offered" }, now.groups.length && now.groups.every((/** @type {any} */ one) => UNITS[one.unit]) ? { t: "Completed" } : { t: "Delivered" }, { t: "Median" }, { t: "99th percentile" }, { t: "In flight or lost" }, { t: "Errors" }].map((one) => html`<th scope="col" class="n">${tr(one)}</th>`)}
          </tr></thead>
          <tbody>${now.groups.map(
            (/** @type {any} */ one) => html`<tr>
              <th scope="row">${name(one.name)}<small>${name(one.protocol)}${UNITS[one.unit] ? html`, ${tr(UNITS[one.unit])}` : nothing} · ${tr({ t: "{n} of {total} devices", a: { n: String(one.active), total: String(one.devices) } })}</small></th>
              <td class="n">${rate(one.intended)}</td><td class="n">${rate(one.offered)}</td><td class="n">${rate(one.delivered)}</td>
              <td class="n">${one.delay ? show(one.delay.p50, "ns") : NONE}</td><td class="n">${one.delay ? show(one.delay.p99, "ns") : NONE}${one.delay ? html`<small>${name(one.delay.of)}</small>` : nothing}</td>
              <td class="n">${one.open === null ? NONE : show(one.open, "ratio")}</td>
              <td class="n">${one.errors ? html`<span class="bad">${show(one.errors, "count")}</span>` : "0"}${Object.entries(one.failures).map(([kind, n]) => html`<small>${name(kind)} ${show(Number(n), "count")}</small>`)}</td>
            </tr>`,
          )}</tbody></table></div>
      ${cores.length ? html`<p class="cpu">${tr({ t: "CPU, share of one core" })}: ${cores.map(([core, cpu]) => html`<span>${name(core)} <b>${show(cpu, "cpu")}</b></span>`)}</p>` : nothing}`;
  }

  /** A mean and how far its interval goes. @param {any} one @param {string} unit */
  const mean = (one, unit) =>
    one ? html`${show(one.mean, unit)}${one.interval ? html`<small>± ${show((one.interval[1] - one.interval[0]) / 2, unit)}</small>` : nothing}` : NONE;

  /** What the trials that are over come to: means narrow as trials come. */
  const soFar = () => html`<h2 class="small">${tr({ t: "So far" })}</h2>
    <div class="scroll" tabindex="0" role="region" aria-label=${tr({ t: "So far" })}><table id="so-far"><caption class="sr">${tr({ t: "So far" })}</caption>
      <thead><tr><th scope="col">${tr({ t: "Variant" })}</th><th scope="col">${tr({ t: "Group" })}</th>${[{ t: "Valid trials" }, { t: "Delivered" }, { t: "Loss" }, { t: "99th percentile" }].map((one) => html`<th scope="col" class="n">${tr(one)}</th>`)}</tr></thead>
      <tbody>${found.legs.flatMap((/** @type {any} */ leg) =>
        leg.groups.map(
          (/** @type {any} */ one) => html`<tr><th scope="row">${name(leg.name)}</th><td>${name(one.name)}</td><td class="n">${tr({ t: "{n} of {total}", a: { n: String(leg.valid), total: String(leg.trials) } })}</td>
            <td class="n">${mean(one.delivered, "/s")}</td><td class="n">${mean(one.loss, "ratio")}</td><td class="n">${one.delay ? html`${show(one.delay.p99, "ns")}<small>${name(one.delay.of)}</small>` : NONE}</td></tr>`,
        ),
      )}</tbody></table></div>`;

  function over() {
    const run = found.run;
    const v = run.verdict;
    const leg = run.legs[run.leg];
    return html`
      <section class="verdict ${v.state}" aria-labelledby="verdict-word">
        ${mark(v.state)}
        <div><h2 id="verdict-word">${shown(v.headline)}</h2><p class="lead">${run.finding ? name(run.finding) : shown(v.lead)}</p>
          ${v.points.length ? html`<ul>${v.points.map((/** @type {any} */ p) => html`<li>${shown(p)}</li>`)}</ul>` : nothing}
          ${v.original.length ? html`<details><summary>${tr({ t: "Original message" })}</summary>${v.original.map((/** @type {string} */ text) => html`<p lang="en" translate="no"><bdi>${text}</bdi></p>`)}</details>` : nothing}
        </div>
      </section>
      <p class="actions">
        <a class="press main" href="/report/${id}?lang=${document.documentElement.lang}" target="_blank" rel="noopener">${tr({ t: "Whole report" })}</a>
        ${(found.sections ?? []).map((/** @type {[string, any]} */ [anchor, title]) => html`<a class="press" href="/report/${id}?lang=${document.documentElement.lang}#${anchor}" target="_blank" rel="noopener">${shown(title)}</a>`)}
        ${run.kind === "run" ? html`<a class="press" href="#/trend/${id}">${tr({ t: "Trend" })}</a>` : nothing}
        ${operator && found.again ? html`<a class="press" href="#/build?run=${id}${found.row.subject.fleet ? `&fleet=${encodeURIComponent(found.row.subject.fleet)}` : ""}">${tr({ t: "Run again" })}</a>` : nothing}
        ${operator ? html`<button type="button" class="press" @click=${forget}>${tr({ t: "Remove from the list" })}</button>` : nothing}
      </p>
      ${run.legs.length > 1
        ? html`<p class="bar"><label>${tr({ t: "Leg" })} <select @change=${(/** @type {any} */ e) => load(`?leg=${e.target.value}`)}>
            ${run.legs.map((/** @type {any} */ one, /** @type {number} */ i) => html`<option value=${i} ?selected=${i === run.leg}>${one.name}</option>`)}</select></label>
            ${run.more ? html`<span class="hint">${tr({ t: "{n} more legs are in the report.", a: { n: String(run.more) } })}</span>` : nothing}</p>`
        : nothing}
      ${leg?.figures.length
        ? html`<dl class="figures">${leg.figures.map(
            (/** @type {any} */ f) => html`<div><dt>${shown(f.label)}</dt><dd class=${f.mark}>${f.value}${f.note ? html`<small>${shown(f.note)}</small>` : nothing}${f.limit ? html`<small class="limit">${shown(f.limit)}</small>` : nothing}</dd></div>`,
          )}</dl>`
        : nothing}
      ${run.thresholds.rows.length ? thresholds(run.thresholds) : nothing}
      ${leg && leg.trials > 1
        ? html`<p class="bar"><label>${tr({ t: "Details of repetition" })} <select @change=${(/** @type {any} */ e) => load(`?leg=${run.leg}&trial=${e.target.value}`)}>
            ${Array.from({ length: leg.trials }, (_, i) => html`<option value=${i} ?selected=${i === run.trial}>${i + 1}</option>`)}</select></label></p>`
        : nothing}
      ${networkPart()}
      <div class="charts" id="charts"></div>`;
  }

  /** @param {any} table @param {any} title */
  const thresholds = (table, title = { t: "Thresholds" }) => html`<h2 class="small">${tr(title)}</h2>
    <div class="scroll" tabindex="0" role="region" aria-label=${tr(title)}><table id="thresholds"><caption class="sr">${tr(title)}</caption>
      <thead><tr>${table.columns.map((/** @type {any} */ c) => html`<th scope="col">${shown(c)}</th>`)}</tr></thead>
      <tbody>${table.rows.map((/** @type {any[]} */ row) => html`<tr>${row.map((c) => html`<td class=${c.mark}>${shown(c.text)}</td>`)}</tr>`)}</tbody></table></div>`;

  const downloads = () => html`<section class="tight" aria-labelledby="downloads"><h2 id="downloads">${tr({ t: "Download" })}</h2><ul class="files">
      <li><a href="/api/runs/${id}/files/result.json" download>result.json</a></li>
      ${found.files.map((/** @type {any} */ one) => html`<li><a href="/api/runs/${id}/files/${one.name}" download>${one.name}</a> <small>${show(one.bytes, "count")} B</small></li>`)}
    </ul></section>`;

  /** What the run is about. @param {any} subject */
  const about = (subject) => {
    const parts = [subject.rate !== null || subject.devices ? loadOf(subject) : "", subject.duration ? show(subject.duration, "s") : ""].filter(Boolean);
    const hosts = found.run?.hosts ?? found.hosts ?? [];
    return html`<p class="under about">${subject.target ? html`→ ${name(subject.target)}${parts.length ? " · " : ""}` : nothing}${parts.join(" · ")}${hosts.length ? html` · ${tr({ t: "Hosts" })}: ${name(hosts.join(", "))}` : nothing}${subject.fleet ? html` · ${tr({ t: "Fleet" })}: ${name(subject.fleet)}` : nothing}</p>`;
  };

  function draw() {
    const row = found?.row;
    const running = row?.state === "running";
    render(
      html`<p class="back"><a href="#/">${tr({ t: "Runs" })}</a></p>
        ${row ? html`<h1>${name(row.name)}</h1><p class="under">${badge(row)} <code translate="no">${row.id}</code> ${when(row.started)}</p>${about(row.subject)}` : nothing}
        ${failure(problem)}
        ${running ? live() : found?.run ? over() : nothing}
        ${found && !running ? downloads() : nothing}`,
      root,
    );
    drawing(root.querySelector("#network"), network()?.drawing ?? "", { t: "Network" }, links);
  }
  draw();
  load();
  return {
    render: draw,
    close: () => {
      closed = true;
      stop?.();
    },
  };
}

const PHASES = { warmup: { t: "Warm-up" }, measure: { t: "Measure" }, drain: { t: "Drain" } };
const STATES = {
  idle: { t: "setting up" },
  loaded: { t: "about to begin" },
  running: { t: "running" },
  paused: { t: "paused" },
  draining: { t: "draining" },
  done: { t: "trial is over" },
  failed: { t: "failed" },
};

/** The builders of profiles and experiments: a form from the schema and YAML beside it, both ways; the server checks each change. */

import { html, nothing, render } from "./lit-html.js";
import { tr } from "./i18n.js";
import { get, post } from "./api.js";
import { draw as drawing, edges, frame } from "./diagram.js";
import { asked, failure, generator, name, say, titled } from "./parts.js";
import { at, fits, place, places, put } from "./schema.js";
import { id, keys } from "./form.js";
import { TEMPLATES, TOPOLOGIES, factorPaths, placed } from "./experiment.js";

/** Milliseconds without a key pressed until a change is sent. */
const PAUSE = 300;

const blank = () => ({
  name: "my-profile",
  targets: { server: "http://127.0.0.1:8080/" },
  groups: [{ name: "web", target: "server", devices: 10, model: { http: { interval: "100ms" } } }],
  thresholds: [{ metric: "web.delay.response.p99", max: "50ms" }],
});

/**
 * @typedef {{title: any, form: any, valid: any, wrong: any, schema: string, presets: string, isExperiment: boolean,
 *   templates: Record<string, {label: any, make: () => any}>, last: any}} Kind
 *   `last`: what was built last: it is there again when the page is
 */

/** @type {Kind} */
const PROFILE = {
  title: { t: "Build a profile" },
  form: { t: "Profile as a form" },
  valid: { t: "The profile is valid." },
  wrong: { t: "A profile is a mapping of keys to values." },
  schema: "/api/schema",
  presets: "/api/presets",
  isExperiment: false,
  templates: { blank: { label: { t: "a small profile" }, make: blank } },
  last: null,
};

/** @type {Kind} */
const EXPERIMENT = {
  title: { t: "Build an experiment" },
  form: { t: "Experiment as a form" },
  valid: { t: "The experiment is valid." },
  wrong: { t: "An experiment is a mapping of keys to values." },
  schema: "/api/experiment-schema",
  presets: "/api/experiments",
  isExperiment: true,
  templates: TEMPLATES,
  last: null,
};

/** @typedef {{user: any, expired: () => void}} Page */

/** @param {HTMLElement} root @param {Page} page */
export const open = (root, page) => build(root, page, PROFILE);
/** @param {HTMLElement} root @param {Page} page */
export const openExperiment = (root, page) => build(root, page, EXPERIMENT);

/** @param {HTMLElement} root @param {Page} page @param {Kind} kind */
function build(root, page, kind) {
  /** @type {any} */
  let schema = null;
  /** @type {any[]} */
  let presets = [];
  /** @type {string[]} */
  let fleets = [];
  // a run that is to be run again, on the fleet that it had
  let fleet = kind.isExperiment ? "" : (asked().get("fleet") ?? "");
  /** @type {any} */
  let problem = null;
  /** @type {any} what is wrong with the YAML as it stands there */
  let unread = null;
  let yaml = "";
  let busy = false;
  /** @type {any[] | null} null while the check is on its way */
  let advice = null;
  let checked = false;
  /** @type {any[]} drawings of the networks of legs */
  let networks = [];
  let turn = 0;
  let closed = false;
  /** @type {any} */
  let timer = 0;

  /** @type {import("./form.js").Context} */
  const context = { root: null, document: kind.last ?? Object.values(kind.templates)[0].make(), errors: [], pinned: new Set(), opened: new Set(), drafts: new Map(), change, redraw: draw };

  /** Take another document whole, as from YAML or a preset. @param {any} document */
  function take(document) {
    kind.last = context.document = document;
    context.pinned = places(document);
    context.drafts.clear();
  }

  /** @param {any} e */
  function stopped(e) {
    if (e.status === 401) page.expired();
    return e;
  }

  async function load() {
    try {
      const [found, choices] = await Promise.all([get(kind.schema), get("/api/choices")]);
      context.root = schema = found;
      fleets = kind.isExperiment ? [] : choices.fleets;
      presets = choices.presets.filter((/** @type {any} */ one) => one.experiment === kind.isExperiment);
      // a run that is to be run again, or what was built last
      const run = kind.isExperiment ? null : asked().get("run");
      take(run ? await get(`/api/runs/${encodeURIComponent(run)}/profile`) : context.document);
      await settle();
    } catch (e) {
      problem = stopped(e);
    }
    draw();
  }

  /** A change in the form. @param {import("./schema.js").Path} path @param {any} value */
  function change(path, value) {
    const before = at(context.document, path);
    kind.last = context.document = put(context.document, path, value);
    // what was added has its own fields, and they stay where they are
    if (value !== undefined && typeof value === "object") for (const one of places(value, path)) context.pinned.add(one);
    if (value === undefined && typeof before === "object") context.pinned.delete(place(path));
    later(settle);
    draw();
    // to what was added; to what is around of what was removed
    if (value === undefined ? typeof before === "object" : before === undefined && typeof value === "object") {
      document.getElementById(id(value === undefined ? path.slice(0, -1) : path))?.focus();
    }
  }

  /** @param {() => Promise<void>} work */
  function later(work) {
    checked = false;
    clearTimeout(timer);
    timer = setTimeout(work, PAUSE);
  }

  /** The form as YAML, and what the server thinks of it. */
  async function settle() {
    const mine = (turn += 1);
    const document = context.document;
    try {
      const [text, found] = await Promise.all([post("/api/convert", { document }), post("/api/validate", { document })]);
      if (mine !== turn || closed) return;
      yaml = text.text;
      unread = null;
      judged(found);
    } catch (e) {
      if (mine === turn && !closed) problem = stopped(e);
    }
    draw();
  }

  /** @param {any} found */
  function judged(found) {
    const before = checked && context.errors.length;
    problem = null;
    context.errors = found.errors;
    advice = found.advice;
    networks = found.networks ?? [];
    checked = true;
    if (before !== context.errors.length) say(verdict());
  }

  /** A change in the YAML: the form follows once it can be read. @param {any} event */
  function written(event) {
    yaml = event.target.value;
    later(async () => {
      const mine = (turn += 1);
      try {
        const { document } = await post("/api/convert", { text: yaml });
        if (mine !== turn || closed) return;
        if (!fits("object", document) || document === null) throw new Error(tr(kind.wrong));
        take(document);
        unread = null;
        const found = await post("/api/validate", { document });
        if (mine !== turn || closed) return;
        judged(found);
      } catch (e) {
        if (mine === turn && !closed) {
          unread = stopped(e);
          say({ t: "The YAML cannot be read." });
        }
      }
      draw();
    });
    draw();
  }

  /** @param {any} event */
  async function begin(event) {
    const chosen = event.target.value;
    event.target.value = "";
    try {
      const template = chosen.startsWith("template:") && kind.templates[chosen.slice(9)];
      take(template ? template.make() : await get(`${kind.presets}/${encodeURIComponent(chosen)}`));
      await settle();
    } catch (e) {
      problem = stopped(e);
      draw();
    }
  }

  /** @param {any} event */
  function choosePlace(event) {
    const chosen = event.target.value;
    event.target.value = "";
    take(placed(context.document, chosen));
    later(settle);
    draw();
  }

  async function start() {
    busy = true;
    draw();
    try {
      const { run } = await post("/api/start", { document: context.document, fleet });
      location.hash = `#/run/${run}`;
    } catch (e) {
      problem = stopped(e);
      busy = false;
      draw();
    }
  }

  /** To the field of an error, or to the nearest part around it. @param {string} where */
  function go(where) {
    for (let text = where; ; text = text.replace(/(\.[^.[]*|\[\d+\]|^[^.[]+)$/, "")) {
      const found = text && document.getElementById(id(text));
      if (found) {
        for (let up = found.closest("details"); up; up = up.parentElement?.closest("details") ?? null) up.open = true;
        found.focus();
        return;
      }
      if (!text) return;
    }
  }

  /** What the server thinks of it. */
  const verdict = () =>
    context.errors.length === 0
      ? kind.valid
      : context.errors.length === 1
        ? { t: "1 problem" }
        : { t: "{n} problems", a: { n: String(context.errors.length) } };
  const status = () =>
    unread
      ? html`<span class="state bad">${tr({ t: "The YAML cannot be read." })}</span>`
      : checked
      ? html`<span class="state ${context.errors.length ? "bad" : "good"}">${tr(verdict())}</span>`
      : html`<span class="state">${tr({ t: "Checking…" })}</span>`;

  function draw() {
    if (closed) return;
    const called = typeof context.document?.name === "string" && context.document.name ? context.document.name : "netdyno";
    const profiles = kind.isExperiment ? (Array.isArray(context.document?.legs) ? context.document.legs.map((/** @type {any} */ leg) => leg?.profile) : []) : [context.document];
    const targets = profiles.flatMap((/** @type {any} */ one) => (one && typeof one === "object" && fits("object", one.targets) ? Object.keys(one.targets ?? {}) : []));
    const ready = checked && !context.errors.length && !unread && !context.drafts.size;
    render(
      html`<h1>${tr(kind.title)}</h1>
        ${failure(problem)}
        ${schema === null
          ? problem
            ? nothing
            : html`<p class="none">${tr({ t: "Loading…" })}</p>`
          : html`<div class="bar"><label for="begin">${tr({ t: "Begin with" })}</label>
                <select id="begin" @change=${begin}><option value="" selected></option>${Object.entries(kind.templates).map(([name, one]) => html`<option value="template:${name}">${tr(one.label)}</option>`)}
                  ${presets.map((one) => html`<option value=${one.name} translate="no">${one.name}</option>`)}</select>
                ${kind.isExperiment
                  ? html`<label for="topology">${tr({ t: "Network" })}</label>
                      <select id="topology" @change=${choosePlace}><option value="" selected></option>${Object.entries(TOPOLOGIES).map(([name, one]) => html`<option value=${name}>${tr(one.label)}</option>`)}</select>`
                  : nothing}
                ${generator("fleet", fleets, fleet, (chosen) => (fleet = chosen))}
                <span id="state">${status()}</span>
                <button type="button" class="press main" id="start" ?disabled=${busy || !ready} @click=${start}>${busy ? tr({ t: "Starting…" }) : tr({ t: "Start" })}</button>
                <a class="press" id="save" download="${called.replace(/[^\w.-]/g, "_")}.yaml" href="data:text/yaml;charset=utf-8,${encodeURIComponent(yaml)}">${tr({ t: "Download" })}</a></div>
              ${context.errors.length && checked
                ? html`<ul class="problems" aria-label=${tr({ t: "Problems" })} lang="en">${context.errors.map((one) => html`<li><button type="button" class="plain" @click=${() => go(one.at)}><code>${one.at || called}</code></button> ${name(one.what)}. <span class="fix">${name(one.fix ?? "")}</span></li>`)}</ul>`
                : nothing}
              ${advice?.length && checked
                ? html`<ul class="problems advice" aria-label=${tr({ t: "Advice" })} lang="en">${advice.map((/** @type {any} */ one) => html`<li><code>${one.at}</code> ${name(one.what)} <span class="fix">${name(one.fix ?? "")}</span></li>`)}</ul>`
                : nothing}
              <datalist id="targets">${targets.map((/** @type {string} */ one) => html`<option value=${one}></option>`)}</datalist>
              ${kind.isExperiment ? html`<datalist id="factors">${factorPaths(context.document).map((one) => html`<option value=${one}></option>`)}</datalist>` : nothing}
              ${networks.map((one, i) => html`<section class="tight" aria-labelledby="network-title-${i}"><h2 class="small" id="network-title-${i}">${tr({ t: "Network" })} ${networks.length > 1 ? name(one.legs[0]) : nothing}</h2>${frame(`network-${i}`, { t: "Drawing" })} ${edges({ t: "As a table" }, one.edges)}</section>`)}
              <div class="builder">
                <form class="form" aria-label=${tr(kind.form)} @submit=${(/** @type {Event} */ e) => e.preventDefault()}>${keys(context, schema, [])}</form>
                <div class="yaml"><label for="yaml">YAML</label>
                  <textarea id="yaml" spellcheck="false" .value=${yaml} aria-describedby="yaml-help" aria-invalid=${unread !== null} @input=${written}></textarea>
                  <p class="help" id="yaml-help">${tr({ t: "The form follows the YAML, and the YAML the form." })}</p>
                  ${failure(unread)}</div>
              </div>`}`,
      root,
    );
    networks.forEach((one, i) => drawing(root.querySelector(`#network-${i}`), one.drawing, { t: "Network" }));
  }
  titled(kind.title);
  draw();
  load();
  return {
    render: draw,
    close: () => {
      closed = true;
      clearTimeout(timer);
    },
  };
}

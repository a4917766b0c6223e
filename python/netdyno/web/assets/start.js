/** The page that starts a run: from a URL, a preset, or a profile of one's own. */

import { html, nothing, render } from "./lit-html.js";
import { tr } from "./i18n.js";
import { get, post } from "./api.js";
import { failure, generator, name, titled } from "./parts.js";

/** Options that stand in the form; the others are folded. */
const FIRST = ["rate", "devices", "requests"];

/** @param {HTMLElement} root @param {{user: any, expired: () => void}} context */
export function open(root, context) {
  /** @type {any} */
  let choices = null;
  /** @type {any} */
  let problem = null;
  let busy = false;
  let preset = "";
  /** Errors by the field that they are of. @type {Record<string, any[]>} */
  let wrong = {};

  /** The field of a place that the server names. @param {string} at @param {any} request */
  function fieldOf(at, request) {
    if (at === "fleet") return request.preset ? "preset-fleet" : "fleet";
    if (request.preset) return { "--duration": "preset-duration", "--load": "preset-load", preset: "preset" }[at] ?? (at.startsWith("targets.") ? `target-${at.slice(8)}` : "");
    if (at === "urls" || request.urls.includes(at)) return "url";
    if (at.startsWith("--threshold")) return "thresholds";
    const one = choices.options.find((/** @type {any} */ option) => option.flag === at);
    return one ? `option-${one.name}` : at.replace("--", "");
  }

  /** Errors go to their fields, the rest to the top. @param {any} failed @param {any} request */
  function sorted(failed, request) {
    const all = failed.error?.all?.length ? failed.error.all : failed.error ? [failed.error] : [];
    wrong = {};
    for (const one of all) {
      const id = fieldOf(one.at ?? "", request);
      if (id && document.getElementById(id)) (wrong[id] ??= []).push(one);
      else problem = failed;
    }
    if (!all.length) problem = failed;
    draw();
    const first = Object.keys(wrong).map((id) => document.getElementById(id)).sort((a, b) => (a && b && a.compareDocumentPosition(b) & 4 ? -1 : 1))[0];
    const folded = first?.closest("details");
    if (folded) folded.open = true;
    if (first) first.focus();
    else root.querySelector(".failure")?.scrollIntoView({ block: "nearest" });
  }

  /** What is wrong with a field. @param {string} id */
  const fault = (id) =>
    wrong[id]
      ? html`<p class="wrong" id="${id}-wrong" role="alert" lang="en">${wrong[id].map((one) => html`<code>${one.code}</code> ${name(one.what)}${one.fix ? html`. ${name(one.fix)}` : nothing} `)}</p>`
      : nothing;
  const invalid = (/** @type {string} */ id) => (wrong[id] ? "true" : nothing);
  const told = (/** @type {string} */ id, help = "") => [wrong[id] ? `${id}-wrong` : "", help].filter(Boolean).join(" ") || nothing;

  async function load() {
    try {
      choices = await get("/api/choices");
    } catch (e) {
      if (/** @type {any} */ (e).status === 401) return context.expired();
      problem = e;
    }
    draw();
  }

  /** @param {any} request */
  async function start(request) {
    busy = true;
    problem = null;
    wrong = {};
    draw();
    try {
      const { run } = await post("/api/start", request);
      location.hash = `#/run/${run}`;
    } catch (e) {
      if (/** @type {any} */ (e).status === 401) return context.expired();
      busy = false;
      sorted(e, request);
    }
  }

  /** @param {SubmitEvent} event */
  function fromUrl(event) {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    const options = {};
    for (const one of choices.options) {
      const value = form.get(`option-${one.name}`);
      if (value === null || value === "") continue;
      options[one.name] = one.value === "flag" ? true : one.value === "switch" ? value === "true" : one.value === "texts" ? [value] : value;
    }
    start({
      urls: String(form.get("url")).split(/\s+/).filter(Boolean),
      options,
      name: form.get("name"),
      duration: form.get("duration"),
      thresholds: lines(form.get("thresholds")),
      repeat: form.get("repeat"),
      fleet: form.get("fleet"),
    });
  }

  /** @param {SubmitEvent} event */
  function fromPreset(event) {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    const targets = {};
    for (const [key, value] of form.entries()) if (key.startsWith("target-") && value) targets[key.slice(7)] = value;
    start({ preset, targets, duration: form.get("duration"), load: form.get("load"), fleet: form.get("fleet") });
  }

  const lines = (/** @type {any} */ text) => String(text ?? "").split("\n").map((one) => one.trim()).filter(Boolean);

  /** @param {any} one an option of a URL */
  function option(one) {
    const id = `option-${one.name}`;
    const field =
      one.value === "flag"
        ? html`<input type="checkbox" id=${id} name=${id} value="true" aria-invalid=${invalid(id)} aria-describedby=${told(id, `${id}-help`)}>`
        : one.value === "switch"
          ? html`<select id=${id} name=${id} aria-invalid=${invalid(id)} aria-describedby=${told(id, `${id}-help`)}><option value=""></option><option value="true">open</option><option value="false">closed</option></select>`
          : html`<input id=${id} name=${id} inputmode=${one.value === "whole" ? "numeric" : nothing} placeholder=${one.metavar ?? ""} autocomplete="off" aria-invalid=${invalid(id)} aria-describedby=${told(id, `${id}-help`)}>`;
    return html`<div class="field"><label for=${id}><code translate="no">${one.flag}</code></label>${field}${fault(id)}<p class="help" id="${id}-help" lang="en">${one.help}</p></div>`;
  }

  /** @param {string} id */
  const place = (id) => (choices.fleets.length ? html`<div class="field">${generator(id, choices.fleets)}${fault(id)}</div>` : nothing);

  function draw() {
    const found = choices?.presets.find((/** @type {any} */ one) => one.name === preset);
    render(
      html`<h1>${tr({ t: "New run" })}</h1>
        ${failure(problem)}
        ${choices === null
          ? html`<p class="none">${tr({ t: "Loading…" })}</p>`
          : html`<section class="tight" aria-labelledby="by-url"><h2 id="by-url">${tr({ t: "Load a server" })}</h2>
                <form class="form" @submit=${fromUrl}>
                  <div class="field"><label for="url">URL</label>
                    <input id="url" name="url" required autocomplete="off" spellcheck="false" placeholder="http://HOST/" aria-invalid=${invalid("url")} aria-describedby=${told("url", "url-help")}>${fault("url")}
                    <p class="help" id="url-help">${tr({ t: "Schemes: {schemes}. Only test systems that you are allowed to test.", a: { schemes: choices.schemes.map((/** @type {string} */ s) => `${s}://`).join(" ") } })}</p></div>
                  <div class="row">
                    <div class="field"><label for="name">${tr({ t: "Name" })}</label><input id="name" name="name" placeholder="before-upgrade" autocomplete="off" spellcheck="false" aria-invalid=${invalid("name")} aria-describedby=${told("name")}>${fault("name")}</div>
                    <div class="field"><label for="duration">${tr({ t: "Duration" })}</label><input id="duration" name="duration" placeholder="10s" autocomplete="off" aria-invalid=${invalid("duration")} aria-describedby=${told("duration")}>${fault("duration")}</div>
                    <div class="field"><label for="repeat">${tr({ t: "Repetitions" })}</label><input id="repeat" name="repeat" placeholder="1" inputmode="numeric" autocomplete="off" aria-invalid=${invalid("repeat")} aria-describedby=${told("repeat")}>${fault("repeat")}</div>
                    ${place("fleet")}
                  </div>
                  <div class="row">${choices.options.filter((/** @type {any} */ one) => FIRST.includes(one.name)).map(option)}</div>
                  <div class="field"><label for="thresholds">${tr({ t: "Pass criteria, one a line" })}</label>
                    <textarea id="thresholds" name="thresholds" rows="2" spellcheck="false" placeholder="delay.response.p99 <= 50ms" aria-invalid=${invalid("thresholds")} aria-describedby=${told("thresholds")}></textarea>${fault("thresholds")}</div>
                  <details class="folded"><summary>${tr({ t: "More options" })}</summary><div class="row">${choices.options.filter((/** @type {any} */ one) => !FIRST.includes(one.name)).map(option)}</div></details>
                  <p class="actions"><button class="press main" ?disabled=${busy}>${busy ? tr({ t: "Starting…" }) : tr({ t: "Start" })}</button></p>
                </form></section>
              <section class="tight" aria-labelledby="by-preset"><h2 id="by-preset">${tr({ t: "Run a preset" })}</h2>
                <form class="form" @submit=${fromPreset}>
                  <div class="field"><label for="preset">${tr({ t: "Preset" })}</label>
                    <select id="preset" required @change=${(/** @type {any} */ e) => ((preset = e.target.value), draw())}>
                      <option value=""></option>${choices.presets.map((/** @type {any} */ one) => html`<option value=${one.name} ?selected=${one.name === preset}>${one.name}</option>`)}</select>
                    ${found?.about ? html`<p class="help" lang="en">${name(found.about)}</p>` : nothing}</div>
                  ${Object.entries(found?.targets ?? {}).map(
                    ([target, url]) => html`<div class="field"><label for="target-${target}">${tr({ t: "Target {name}", a: { name: target } })}</label><input id="target-${target}" name="target-${target}" placeholder=${url ?? ""} autocomplete="off" spellcheck="false" aria-invalid=${invalid(`target-${target}`)} aria-describedby=${told(`target-${target}`)}>${fault(`target-${target}`)}</div>`,
                  )}
                  <div class="row">
                    <div class="field"><label for="preset-duration">${tr({ t: "Duration" })}</label><input id="preset-duration" name="duration" autocomplete="off" aria-invalid=${invalid("preset-duration")} aria-describedby=${told("preset-duration")}>${fault("preset-duration")}</div>
                    <div class="field"><label for="preset-load">${tr({ t: "Load factor" })}</label><input id="preset-load" name="load" inputmode="decimal" placeholder="1" autocomplete="off" aria-invalid=${invalid("preset-load")} aria-describedby=${told("preset-load")}>${fault("preset-load")}</div>
                    ${place("preset-fleet")}
                  </div>
                  <p class="actions"><button class="press" ?disabled=${busy || !preset}>${tr({ t: "Start" })}</button></p>
                </form></section>`}`,
      root,
    );
  }
  titled({ t: "New run" });
  draw();
  load();
  return { render: draw };
}

/** Tuning: parameters of this machine, studies and watches with what they found, and what is in force. */

import { html, nothing, render } from "./lit-html.js";
import { tr } from "./i18n.js";
import { NONE, show } from "./format.js";
import { get, post, watch } from "./api.js";
import { asked, failure, name, say, table, titled, views, when } from "./parts.js";

/** Kinds of lines of a watch, by their names in JSON. */
const KINDS = {
  set: { t: "Setting" },
  revert: { t: "Undone" },
  freeze: { t: "Changes stopped" },
  say: { t: "Note" },
  suffers: { t: "Affected program" },
  shortqueue: { t: "Program limit" },
};
const TRAFFIC = { idle: { t: "idle" }, requests: { t: "requests" }, bulk: { t: "bulk transfer" }, datagrams: { t: "datagrams" } };

const value = (/** @type {any} */ x) => (x === null || x === undefined ? NONE : name(typeof x === "object" ? Object.values(x).join(" ") : String(x)));

/** @param {HTMLElement} root @param {{user: any, expired: () => void}} page */
export function open(root, page) {
  const operator = page.user.role === "operator";
  const view = asked().get("view") ?? "studies";
  /** @type {any} */
  let now = null;
  /** @type {any[] | null} */
  let params = null;
  let wanted = "";
  /** @type {any} what a setting would change */
  let plan = null;
  let place = "";
  let everywhere = false;
  let time = "";
  /** @type {any} */
  let problem = null;
  let busy = false;
  let closed = false;
  let stop = () => {};

  /** @param {() => Promise<void>} work */
  async function tried(work) {
    busy = true;
    problem = null;
    draw();
    try {
      await work();
    } catch (e) {
      if (/** @type {any} */ (e).status === 401) return page.expired();
      problem = e;
    }
    busy = false;
    draw();
  }

  const find = () => tried(async () => void (params = (await get(`/api/tuning/params?${new URLSearchParams({ find: wanted })}`)).params));
  const setting = () => ({ ...plan.of, ...(plan.of.run ? { where: place } : {}), global: everywhere });

  /** @param {any} of a study, or a finding of a watch, as requests name it @param {any} title @param {any} [where] where a watch watches */
  const look = (of, title, where) =>
    tried(async () => {
      plan = { of, title, where };
      plan = { ...plan, ...(await post("/api/tuning/preview", setting())) };
      say({ t: "{n} parameters would change", a: { n: String(plan.changes.length) } });
    });

  /** @param {Event} event */
  function apply(event) {
    event.preventDefault();
    tried(async () => {
      const { changes } = await post("/api/tuning/apply", { ...setting(), for: time });
      plan = null;
      say({ t: "{n} parameters are set", a: { n: String(changes.length) } });
    });
  }

  /** @param {string} what @param {any} [body] */
  const undo = (what, body) =>
    tried(async () => {
      await post(`/api/tuning/${what}`, body);
      say({ t: "The old values are back" });
    });

  const parameters = () => html`<form class="bar" role="search" @submit=${(/** @type {Event} */ e) => (e.preventDefault(), find())}>
      <label>${tr({ t: "Find" })} <input id="find" type="search" .value=${wanted} @input=${(/** @type {any} */ e) => (wanted = e.target.value)} placeholder="somaxconn" spellcheck="false"></label>
      <button class="press small" ?disabled=${busy}>${tr({ t: "Find" })}</button></form>
    ${params
      ? table({ t: "Parameters" }, [{ t: "Parameter" }, { t: "Value here" }, { t: "Linux default" }, { t: "At the next boot" }, { t: "May be" }, { t: "Remarks" }],
          params.map((one) => [html`${name(one.name)}<small lang="en">${name(one.about)}</small>`, value(one.value), value(one.default), one.boot === null ? NONE : html`${name(one.boot)}<small>${name(one.file)}</small>`, name(one.range), html`<span lang="en">${one.remarks.join(", ")}</span>`]), "params")
      : nothing}`;

  const planned = () => html`<section class="now" aria-labelledby="plan"><h2 class="small" id="plan">${tr(plan.title)}</h2>
    ${plan.changes ? table({ t: "Changes" }, [{ t: "Parameter" }, { t: "Value here" }, { t: "Would become" }], plan.changes.map((/** @type {any} */ one) => [name(one.name), value(one.old), value(one.new)]), "changes") : nothing}
    ${(plan.remarks ?? []).map((/** @type {string} */ one) => html`<p class="note" lang="en">${name(one)}</p>`)}
    <form class="bar" @submit=${apply}>
      ${plan.of.run
        ? html`<label>${tr({ t: "Network namespace" })} <input id="where" size="14" placeholder=${tr({ t: "this machine" })} .value=${place} @change=${(/** @type {any} */ e) => ((place = e.target.value.trim()), look(plan.of, plan.title))}></label>`
        : html`<span>${tr({ t: "Network namespace: {place}", a: { place: plan.where } })}</span>`}
      <label><input type="checkbox" .checked=${everywhere} @change=${(/** @type {any} */ e) => ((everywhere = e.target.checked), look(plan.of, plan.title, plan.where))}> ${tr({ t: "Also parameters of the whole machine" })}</label>
      <label>${tr({ t: "Undo after" })} <input id="for" size="8" placeholder="10min" .value=${time} @input=${(/** @type {any} */ e) => (time = e.target.value.trim())}></label>
      <button class="press main" id="apply" ?disabled=${busy || !now?.root || !plan.changes?.length}>${tr({ t: "Apply" })}</button>
      <button type="button" class="press" @click=${() => ((plan = null), draw())}>${tr({ t: "Cancel" })}</button></form></section>`;

  const inForce = () => html`
    ${now.root ? nothing : html`<p class="notice">${tr({ t: "The dashboard runs without root: it shows, and sets nothing." })}</p>`}
    ${plan ? planned() : nothing}
    <h2 class="small">${tr({ t: "In force" })}</h2>
    ${now.in_force.length
      ? table({ t: "In force" }, [{ t: "Parameter" }, { t: "Before" }, { t: "Now" }, { n: { t: "Process" } }, { t: "Undo" }],
          now.in_force.map((/** @type {any} */ one) => [name(one.parameter), value(one.before), value(one.now), String(one.process), operator && one.applied ? html`<button type="button" class="press small" ?disabled=${busy} @click=${() => undo("undo", { process: one.process })}>${tr({ t: "Undo" })}</button>` : NONE]), "in-force")
      : html`<p class="none" id="in-force">${tr({ t: "No process of netdyno has set a parameter." })}</p>`}`;

  /** @param {any} one */
  const placeOf = (one) => (one.where ? { d: one.called || one.where } : { t: "this machine" });

  const stamp = (/** @type {number} */ seconds) => when(new Date(seconds * 1000).toISOString());

  /** @param {any} one a watch @param {any} found */
  function offered(one, found) {
    if (!found.command) return NONE;
    const choose = () => {
      everywhere = found.widely;
      look({ watch: one.id, finding: found.number }, { t: "Setting found by the watch of process {pid}", a: { pid: String(one.pid) } }, placeOf(one));
    };
    return html`<code class="command">${name(found.command)}</code>
      ${operator && !found.held ? html`<button type="button" class="press small" ?disabled=${busy} @click=${choose}>${tr({ t: "Show" })}</button>` : nothing}`;
  }

  /** @param {any} one */
  const watched = (one) => html`<section class="watch" aria-labelledby="watch-${one.id}">
    <h2 class="small" id="watch-${one.id}">${tr({ t: "Watch: {place}", a: { place: placeOf(one) } })}</h2>
    <p>${tr({ t: "Process" })}: ${one.pid}. ${tr({ t: "Begun" })}: ${stamp(one.began)}.
      ${one.dry ? tr({ t: "It only tells what it would do." }) : tr({ t: "It sets parameters, and restores the old values at its end." })}
      ${one.time ? html`${tr({ t: "Traffic" })}: <b>${tr(TRAFFIC[one.traffic] ?? { d: one.traffic })}</b>, ${tr({ t: "packets received: {rate}", a: { rate: show(one.load, "/s") } })}.` : nothing}
      ${tr({ t: "{n} parameters are watched.", a: { n: String(one.watched.length) } })}
      ${operator && now.root ? html`<button type="button" class="press small stop" ?disabled=${busy} @click=${() => undo("stop", { watch: one.id })}>${tr({ t: "Stop" })}</button>` : nothing}</p>
    ${one.findings.length
      ? table({ t: "Findings" }, [{ t: "Time" }, { t: "Kind" }, { t: "Finding" }, { t: "Command" }],
          one.findings.map((/** @type {any} */ found) => [stamp(found.time), tr(KINDS[found.action] ?? { d: found.action }), html`<span lang="en">${name(found.says)}</span>`, offered(one, found)]), `findings-${one.id}`)
      : html`<p class="none">${tr({ t: "It has found nothing yet." })}</p>`}</section>`;

  const watches = () => html`${inForce()}
    ${now.watches.length
      ? now.watches.map(watched)
      : html`<p class="none" id="watches">${tr({ t: "No watch runs. `netdyno tune watch` starts one." })}</p>`}`;

  const studies = () => html`${inForce()}
    ${now.kept.length ? html`<p>${tr({ t: "Kept over the next boot:" })} ${now.kept.map(name)} ${operator ? html`<button type="button" class="press small" ?disabled=${busy} @click=${() => undo("restore")}>${tr({ t: "Undo" })}</button>` : nothing}</p>` : nothing}
    <h2 class="small">${tr({ t: "Studies" })}</h2>
    ${now.studies.length
      ? table({ t: "Studies" }, [{ t: "Study" }, { t: "Kind" }, { t: "Result" }, { t: "Begun" }, { t: "Setting" }],
          now.studies.map((/** @type {any} */ one) => [html`<a href="#/run/${one.run}">${name(one.name)}</a>`, name(one.kind), name(one.finding), when(one.started), operator && one.applies ? html`<button type="button" class="press small" ?disabled=${busy} @click=${() => look({ run: one.run }, { t: "Setting of {run}", a: { run: { d: one.run } } })}>${tr({ t: "Show" })}</button>` : NONE]), "studies")
      : html`<p class="none">${tr({ t: "There are no studies of settings yet. `netdyno tune search` makes one." })}</p>`}`;

  function draw() {
    if (closed) return;
    render(
      html`<h1>${tr({ t: "Tuning" })}</h1>
        ${views({ t: "Views of tuning" }, "#/tuning", { studies: { t: "Studies" }, watches: { t: "Watches" }, params: { t: "Parameters" } }, view)}
        ${failure(problem)}
        ${view === "params" ? parameters() : now ? (view === "watches" ? watches() : studies()) : html`<p class="none">${tr({ t: "Loading…" })}</p>`}`,
      root,
    );
  }
  titled({ t: "Tuning" });
  draw();
  if (view === "params") find();
  else
    stop = watch(`/api/tuning/${view === "watches" ? "watches" : "studies"}/live`, (news) => {
      if (news.error) problem = news;
      else now = news;
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

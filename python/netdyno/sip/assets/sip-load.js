/** The page that starts a SIP load: registrations, calls, redirections or OPTIONS at a rate. */

import { html, nothing, render } from "./lit-html.js";
import { tr } from "./i18n.js";
import { post } from "./api.js";
import { failure, titled } from "./parts.js";

/** @typedef {{key: string, flag: string, help: any, empty?: string, choices?: string[], kind?: string, of?: string[]}} Field */

/** @type {Record<string, any>} */
const KINDS = {
  register: { t: "Registrations" },
  call: { t: "Calls" },
  redirect: { t: "Redirections" },
  options: { t: "OPTIONS requests" },
};

/** @type {Field[]} */
const FIRST = [
  { key: "rate", flag: "--rate", help: { t: "Load per second" }, empty: "100/s" },
  { key: "duration", flag: "--duration", help: { t: "Length of the measure phase" }, empty: "10s" },
  { key: "transport", flag: "--transport", help: { t: "Transport; default: as the URI says, else UDP" }, choices: ["udp", "tcp", "tls", "ws", "wss"] },
  { key: "domain", flag: "--domain", help: { t: "Domain of the users; default: the server's host" }, empty: "example.net" },
  { key: "password", flag: "--password", help: { t: "Password of the users: env:NAME, file:PATH, or the password itself, which is not kept" }, kind: "password" },
];

/** @type {Field[]} */
const MORE = [
  { key: "users", flag: "--users", help: { t: "User agents; default: as many as the rate needs" } },
  { key: "user", flag: "--user", help: { t: "User part of the addresses" }, empty: "user{device}" },
  { key: "auth_user", flag: "--auth-user", help: { t: "User name for digest; default: --user" } },
  { key: "to", flag: "--to", help: { t: "Call this user, not registered by netdyno" }, of: ["call", "redirect", "options"] },
  { key: "hold", flag: "--hold", help: { t: "Time from ACK to BYE" }, empty: "0s", of: ["call"] },
];

/** @type {Record<string, any>} what was typed last, without the password */
let typed = {};

/** @param {HTMLElement} root @param {{user: any, expired: () => void}} page */
export function open(root, page) {
  /** @type {any} */
  let problem = null;
  let busy = false;
  let closed = false;
  let kind = typed.kind ?? "register";

  /** @param {SubmitEvent} event */
  async function start(event) {
    event.preventDefault();
    /** @type {Record<string, any>} */
    const form = { kind };
    for (const [key, value] of new FormData(/** @type {HTMLFormElement} */ (event.target)).entries()) if (value !== "") form[key] = value;
    for (const flag of ["media", "insecure"]) if (form[flag]) form[flag] = true;
    const { password: _, ...kept } = form;
    typed = kept;
    busy = true;
    problem = null;
    draw();
    try {
      const { run } = await post("/api/start", { system: "sip", form });
      location.hash = `#/run/${run}`;
    } catch (e) {
      if (/** @type {any} */ (e).status === 401) return page.expired();
      problem = e;
      busy = false;
      draw();
      root.querySelector(".failure")?.scrollIntoView({ block: "nearest" });
    }
  }

  /** @param {Field} one */
  function field(one) {
    if (one.of && !one.of.includes(kind)) return nothing;
    const id = `load-${one.key}`;
    const input = one.choices
      ? html`<select id=${id} name=${one.key} aria-describedby="${id}-help"><option value=""></option>${one.choices.map((value) => html`<option value=${value} ?selected=${typed[one.key] === value} translate="no">${value}</option>`)}</select>`
      : html`<input id=${id} name=${one.key} type=${one.kind ?? "text"} .defaultValue=${typed[one.key] ?? ""} placeholder=${one.empty ?? ""} autocomplete="off" spellcheck="false" aria-describedby="${id}-help">`;
    return html`<div class="field"><label for=${id}><code translate="no">${one.flag}</code></label>${input}<p class="help" id="${id}-help">${tr(one.help)}</p></div>`;
  }

  /** @param {string} key @param {any} help */
  const flag = (key, help) =>
    html`<div class="field"><label for="load-${key}"><code translate="no">--${key}</code></label>
      <input type="checkbox" id="load-${key}" name=${key} ?checked=${typed[key] !== undefined} aria-describedby="load-${key}-help"><p class="help" id="load-${key}-help">${tr(help)}</p></div>`;

  function draw() {
    if (closed) return;
    render(
      html`<h1>${tr({ t: "SIP load" })}</h1>
        <form class="form" @submit=${start}>
          <div class="field"><label for="load-kind">${tr({ t: "Load" })}</label>
            <select id="load-kind" @change=${(/** @type {any} */ e) => ((kind = e.target.value), draw())}>${Object.entries(KINDS).map(([one, text]) => html`<option value=${one} ?selected=${kind === one}>${tr(text)}</option>`)}</select></div>
          <div class="field"><label for="load-server">${tr({ t: "Server" })}</label>
            <input id="load-server" name="server" required autocomplete="off" spellcheck="false" placeholder="sip:192.0.2.1:5060" .defaultValue=${typed.server ?? ""} aria-describedby="load-server-help">
            <p class="help" id="load-server-help">${tr({ t: "sip:[USER@]HOST[:PORT][;transport=tcp], sips:, or ws://HOST/PATH. Only test systems that you are allowed to test." })}</p></div>
          <div class="row">${FIRST.map(field)}${kind === "call" ? flag("media", { t: "Give calls audio, and judge how well it is heard" }) : nothing}</div>
          <details class="folded"><summary>${tr({ t: "More options" })}</summary>
            <div class="row">${MORE.map(field)}${flag("insecure", { t: "Do not verify the server's certificate" })}</div></details>
          ${failure(problem)}
          <p class="actions"><button class="press main" id="start" ?disabled=${busy}>${busy ? tr({ t: "Starting…" }) : tr({ t: "Start" })}</button></p>
          <p class="help">${tr({ t: "Over UDP and TCP the report has ladders of the first calls and of those that failed." })}</p>
        </form>`,
      root,
    );
  }
  titled({ t: "SIP load" });
  draw();
  return {
    render: draw,
    close: () => {
      closed = true;
    },
  };
}

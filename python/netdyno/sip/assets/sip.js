/** The page that composes a SIP request, sends it, and shows the ladder of what came. */

import { html, nothing, render } from "./lit-html.js";
import { tr } from "./i18n.js";
import { show } from "./format.js";
import { post } from "./api.js";
import { failure, name, say, titled } from "./parts.js";

/** @typedef {{key: string, flag: string, help: any, empty?: string, choices?: string[], kind?: string}} Field */

/** @type {Field[]} */
const FIRST = [
  { key: "method", flag: "--method", help: { t: "Method" }, empty: "OPTIONS" },
  { key: "transport", flag: "--transport", help: { t: "Transport; default: as the URI says, else UDP" }, choices: ["udp", "tcp", "tls", "ws", "wss"] },
  { key: "from", flag: "--from", help: { t: "URI of From" }, empty: "sip:alice@example.net" },
  { key: "to", flag: "--to", help: { t: "URI of To; default: the Request-URI" } },
];

/** @type {Field[]} */
const MORE = [
  { key: "uri", flag: "--request-uri", help: { t: "Request-URI; default: the server's" } },
  { key: "expires", flag: "--expires", help: { t: "Expires, in seconds" } },
  { key: "auth_user", flag: "--auth-user", help: { t: "User for digest; default: that of From" } },
  { key: "password", flag: "--password", help: { t: "Its password; it is not kept" }, kind: "password" },
  { key: "content_type", flag: "--content-type", help: { t: "Type of the body" }, empty: "text/plain" },
  { key: "timeout", flag: "--timeout", help: { t: "Longest wait for the final response" }, empty: "32s" },
  { key: "hold", flag: "--hold", help: { t: "Time from ACK to BYE" }, empty: "0s" },
  { key: "wait", flag: "--wait", help: { t: "Answer the other side's requests for this long after the final response" }, empty: "0s" },
];

/** @type {Field[]} */
const FLAGS = [
  { key: "sdp", flag: "--sdp", help: { t: "Offer audio, as the body" } },
  { key: "insecure", flag: "--insecure", help: { t: "Do not verify the server's certificate" } },
];

/** @type {Record<string, any>} what was typed last: it is there again when the page is, without the password */
let typed = {};

/** @param {HTMLElement} root @param {{user: any, expired: () => void}} page */
export function open(root, page) {
  /** @type {any} */
  let problem = null;
  /** @type {string | null} */
  let preview = null;
  /** @type {any} */
  let found = null;
  let busy = false;
  let closed = false;

  /** What the form says, as the server takes it. */
  function request() {
    const form = new FormData(/** @type {HTMLFormElement} */ (root.querySelector("form")));
    /** @type {Record<string, any>} */
    const made = {};
    for (const [key, value] of form.entries()) if (value !== "") made[key] = value;
    for (const one of FLAGS) if (made[one.key]) made[one.key] = true;
    const { password: _, ...kept } = made;
    typed = kept;
    if (made.headers) made.headers = String(made.headers).split("\n").map((/** @type {string} */ line) => line.trim()).filter(Boolean);
    return made;
  }

  /** @param {string} what @param {(answer: any) => void} done */
  async function ask(what, done) {
    const body = request();
    busy = true;
    problem = null;
    draw();
    try {
      done(await post(`/api/sip/${what}`, body));
    } catch (e) {
      if (/** @type {any} */ (e).status === 401) return page.expired();
      problem = e;
    }
    busy = false;
    draw();
    if (problem) root.querySelector(".failure")?.scrollIntoView({ block: "nearest" });
  }

  const look = () =>
    ask("preview", (answer) => {
      preview = answer.message;
      say({ t: "The preview is below the form." });
    });

  /** @param {Event} event */
  function send(event) {
    event.preventDefault();
    found = null;
    ask("send", (answer) => {
      found = answer;
      say(outcome());
    });
  }

  const outcome = () =>
    found.status === null
      ? { t: "No final response" }
      : { t: "The final response is {status}", a: { status: { d: String(found.status) } } };

  /** To the text of a message that an arrow leads to. @param {any} event */
  function follow(event) {
    const link = event.target.closest?.("a[href^='#message-']");
    if (!link) return;
    event.preventDefault();
    const to = /** @type {HTMLDetailsElement | null} */ (root.querySelector(link.getAttribute("href")));
    if (!to) return;
    to.open = true;
    /** @type {HTMLElement | null} */ (to.querySelector("summary"))?.focus();
  }

  function drawLadder() {
    const place = root.querySelector("#ladder");
    if (!place) return;
    place.replaceChildren();
    if (found?.drawing) {
      const svg = new DOMParser().parseFromString(found.drawing, "text/html").body.firstElementChild;
      if (svg) place.append(document.importNode(svg, true));
    }
  }

  /** @param {Field} one */
  function field(one) {
    const id = `sip-${one.key}`;
    const input = one.choices
      ? html`<select id=${id} name=${one.key} aria-describedby="${id}-help"><option value=""></option>${one.choices.map((value) => html`<option value=${value} ?selected=${typed[one.key] === value} translate="no">${value}</option>`)}</select>`
      : html`<input id=${id} name=${one.key} type=${one.kind ?? "text"} .defaultValue=${typed[one.key] ?? ""} placeholder=${one.empty ?? ""} autocomplete="off" spellcheck="false" aria-describedby="${id}-help">`;
    return html`<div class="field"><label for=${id}><code translate="no">${one.flag}</code></label>${input}<p class="help" id="${id}-help">${tr(one.help)}</p></div>`;
  }

  /** @param {Field} one */
  const flag = (one) =>
    html`<div class="field"><label for="sip-${one.key}"><code translate="no">${one.flag}</code></label>
      <input type="checkbox" id="sip-${one.key}" name=${one.key} ?checked=${typed[one.key] !== undefined} aria-describedby="sip-${one.key}-help"><p class="help" id="sip-${one.key}-help">${tr(one.help)}</p></div>`;

  /** @param {string} key @param {string} label @param {any} help @param {string} empty */
  const area = (key, label, help, empty) =>
    html`<div class="field"><label for="sip-${key}"><code translate="no">${label}</code></label>
      <textarea id="sip-${key}" name=${key} rows="3" spellcheck="false" placeholder=${empty} aria-describedby="sip-${key}-help" .defaultValue=${typed[key] ?? ""}></textarea><p class="help" id="sip-${key}-help">${tr(help)}</p></div>`;

  const ladder = () => html`<section class="tight" aria-labelledby="answer"><h2 id="answer">${tr(outcome())}</h2>
      <p class="under">${name(`${found.transport} ${found.server}`)}${found.broken ? html` · ${name(found.broken)}` : nothing}</p>
      <div class="scroll ladder" id="ladder" tabindex="0" role="region" aria-label=${tr({ t: "Ladder" })} @click=${follow}></div>
      <h3 class="small">${tr({ t: "Messages" })}</h3>
      ${found.messages.map(
        (/** @type {any} */ one, /** @type {number} */ i) =>
          html`<details class="folded" id="message-${i}"><summary>${show(one.at_ms * 1e6, "ns")} ${name(`${one.from} → ${one.to}  ${one.summary}`)}${one.again ? html` (${tr({ t: "repeated" })})` : nothing}</summary>
            <pre tabindex="0" translate="no">${one.text.replaceAll("\r", "").trim()}</pre></details>`,
      )}</section>`;

  function draw() {
    if (closed) return;
    render(
      html`<h1>${tr({ t: "SIP message" })}</h1>
        <form class="form" @submit=${send}>
          <div class="field"><label for="sip-server">${tr({ t: "Server" })}</label>
            <input id="sip-server" name="server" required autocomplete="off" spellcheck="false" placeholder="sip:bob@192.0.2.1:5060" .defaultValue=${typed.server ?? ""} aria-describedby="sip-server-help">
            <p class="help" id="sip-server-help">${tr({ t: "sip:[USER@]HOST[:PORT][;transport=tcp], sips:, or ws://HOST/PATH. Only test systems that you are allowed to test." })}</p></div>
          <div class="row">${FIRST.map(field)}</div>
          ${area("headers", "--header", { t: "Header fields, one a line: added, or in place of ours; an empty value removes one" }, "Subject: test")}
          ${area("body", "--body", { t: "Body" }, "")}
          <details class="folded"><summary>${tr({ t: "More options" })}</summary>
            <div class="row">${MORE.map(field)}${FLAGS.map(flag)}</div>
            ${area("raw", "--raw", { t: "In place of all of these: the message as it is" }, "OPTIONS sip:example.net SIP/2.0")}</details>
          ${failure(problem)}
          <p class="actions"><button class="press main" id="send" ?disabled=${busy}>${busy ? tr({ t: "Waiting…" }) : tr({ t: "Send" })}</button>
            <button type="button" class="press" id="look" ?disabled=${busy} @click=${look}>${tr({ t: "Preview" })}</button></p>
        </form>
        ${preview === null ? nothing : html`<section class="tight" aria-labelledby="preview-title"><h2 id="preview-title">${tr({ t: "Preview" })}</h2><pre id="preview" tabindex="0" translate="no">${preview}</pre></section>`}
        ${found ? ladder() : nothing}`,
      root,
    );
    drawLadder();
  }
  titled({ t: "SIP message" });
  draw();
  return {
    render: draw,
    close: () => {
      closed = true;
    },
  };
}

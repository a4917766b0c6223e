/** The dashboard comes alive: language, log-in, and the page that the address names. */

import { html, nothing, render } from "./lit-html.js";
import { onLanguage, say as text, startLanguage, tr } from "./i18n.js";
import { startTheme } from "./theme.js";
import { get, logIn, logOut, onLogIn } from "./api.js";
import { say, titled } from "./parts.js";
import * as login from "./login.js";
import * as list from "./list.js";
import * as run from "./run.js";
import * as start from "./start.js";
import * as trend from "./trend.js";
import * as builder from "./builder.js";

const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const nav = /** @type {HTMLElement} */ (document.getElementById("nav"));

/** @type {{role: string, host: string, version: string} | null} */
let user = null;
/** @type {{close?: () => void, render: () => void} | null} */
let page = null;

/** @type {{at: RegExp, open?: any, script?: string, operator?: boolean}[]} */
const PAGES = [
  { at: /^\/?$/, open: list.open },
  { at: /^\/run\/([\w.-]+)$/, open: run.open },
  { at: /^\/trend\/([\w.-]+)$/, open: trend.open },
  { at: /^\/new$/, open: start.open, operator: true },
  { at: /^\/build$/, open: builder.open, operator: true },
  { at: /^\/experiment$/, open: builder.openExperiment, operator: true },
];

/** Pages of systems: loaded when they are opened. @type {{path: string, title: string, script: string, operator: boolean}[]} */
const systems = await get("/assets/pages.json");
for (const one of systems) {
  PAGES.push({ at: new RegExp(`^/${one.path}(?:/([\\w.-]+))?$`), script: one.script, operator: one.operator });
}

function navigation() {
  const here = location.hash.slice(1) || "/";
  const link = (/** @type {string} */ to, /** @type {any} */ text) =>
    html`<a href="#${to}" aria-current=${here.split(/[?/]/, 2).join("/") === to ? "page" : nothing}>${tr(text)}</a> `;
  const more = systems.filter((one) => !one.operator || user?.role === "operator");
  render(
    user
      ? html`${link("/", { t: "Runs" })} ${user.role === "operator" ? html`${link("/new", { t: "New run" })} ${link("/build", { t: "Build a profile" })} ${link("/experiment", { t: "Build an experiment" })}` : nothing}
          ${more.map((one) => link(`/${one.path}`, { t: one.title }))}
          <button type="button" class="plain" @click=${leave}>${tr({ t: "Log out" })}</button>`
      : nothing,
    nav,
  );
}

async function leave() {
  await logOut();
  location.hash = "#/";
  location.reload();
}

/** Counts pages that were asked for: one whose script took long may come too late. */
let opened = 0;

/** The page that the address names. */
async function route() {
  const here = location.hash.slice(1).split("?")[0];
  const found = PAGES.find((one) => one.at.test(here) && (!one.operator || user?.role === "operator"));
  const mine = ++opened;
  page?.close?.();
  page = null;
  render(nothing, main);
  navigation();
  if (!user) {
    page = login.open(main, entered);
  } else if (found) {
    const open = found.open ?? (await import(`./${found.script}`)).open;
    if (mine === opened) page = open(main, { user, name: here.match(found.at)?.[1] ?? "", expired });
  } else {
    const closed = PAGES.some((one) => one.at.test(here));
    page = { render: () => render(html`<h1>${tr(closed ? { t: "This page is for operators" } : { t: "There is no such page" })}</h1>`, main) };
    page.render();
  }
}

/** @param {{role: string}} _ */
async function entered(_) {
  user = await get("/api/about");
  await route();
  main.focus();
}

/** The session is over: the token is asked for again. */
function expired() {
  user = null;
  route();
}

/** A token that came with the address is not left there. */
async function begin() {
  const token = location.hash.match(/^#token=(.+)$/)?.[1];
  if (token) {
    history.replaceState(null, "", "#/");
    await logIn(decodeURIComponent(token)).catch((e) => say({ d: e.message }));
  }
  user = await get("/api/about").catch(() => null);
  await route();
}

text(/** @type {HTMLElement} */ (document.getElementById("skip")), { t: "Skip to the content" });
text(nav, { t: "Pages" }, "aria-label");
const texts = await get("/assets/texts.json");
startTheme();
startLanguage(texts);
onLanguage(() => {
  navigation();
  page?.render();
  titled();
});
// another page of this browser has logged in or out, for both
onLogIn(async () => {
  const before = user?.role;
  user = await get("/api/about").catch(() => null);
  // what is being filled in stays where nothing changes for the page
  if (user?.role !== before) await route();
});
addEventListener("hashchange", () => (location.hash.startsWith("#token=") ? begin() : location.hash.startsWith("#/") || !location.hash ? route() : undefined));
await begin();
document.documentElement.setAttribute("data-ready", "");

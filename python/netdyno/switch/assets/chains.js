/** Service chains that run on this machine: drawn, with packets and rates on the ways between their hops. */

import { html, nothing, render } from "./lit-html.js";
import { tr } from "./i18n.js";
import { show } from "./format.js";
import { get, watch } from "./api.js";
import { draw as drawing, frame } from "./diagram.js";
import { asked, failure, name, table, titled } from "./parts.js";

const count = (/** @type {any} */ x) => show(x, "count");

/** @param {HTMLElement} root @param {{expired: () => void}} page */
export function open(root, page) {
  /** @type {any[] | null} what there is to choose from */
  let chains = null;
  /** @type {any} */
  let problem = null;
  /** @type {any} the chain that is shown, and what it was a look ago */
  let now = null;
  let before = null;
  let closed = false;
  let stop = () => {};

  async function begin() {
    try {
      chains = (await get("/api/switch/chains")).chains;
      const id = asked().get("id") ?? chains?.at(-1)?.id;
      if (id && !closed) stop = watch(`/api/switch/chain/live?${new URLSearchParams({ id })}`, take, page.expired);
    } catch (e) {
      if (/** @type {any} */ (e).status === 401) return page.expired();
      problem = e;
    }
    draw();
  }

  /** @param {any} news */
  function take(news) {
    problem = news.error ? news : null;
    if (!news.error) [before, now] = [now, news];
    draw();
  }

  /** Per second since the last look. @param {(chain: any) => number | null | undefined} of */
  function rate(of) {
    const dt = before ? now.time - before.time : 0;
    const [old, current] = [before && of(before), of(now)];
    return dt > 0 && typeof old === "number" && typeof current === "number" ? (current - old) / dt : null;
  }

  function texts() {
    /** @type {Record<string, string>} */
    const found = {};
    for (const [key, passed] of Object.entries(now.passed)) {
      if (passed === null) continue;
      const fast = rate((one) => one.passed[key]);
      found[key] = fast === null ? count(passed) : `${count(passed)} · ${show(fast, "/s")}`;
    }
    return found;
  }

  function hops() {
    const heads = [{ t: "Hop" }, { t: "Kind" }, { n: { t: "Packets received" } }, { n: { t: "Packets sent" } }, { n: { t: "Packets per second" } }, { n: { t: "Packets dropped" } }];
    const rows = now.hops.map((/** @type {any} */ one, /** @type {number} */ i) => [
      name(one.name), name(one.kind), count(one.received), count(one.sent), show(rate((chain) => chain.hops[i]?.received), "/s"), count(one.dropped),
    ]);
    return table({ t: "Hops" }, heads, rows, "hops");
  }

  function paths() {
    const several = now.paths.some((/** @type {any} */ one) => one.by);
    const heads = [{ t: "Class" }, { t: "Functions" }, ...(several ? [{ t: "Path between switches" }] : [])];
    const rows = now.paths.map((/** @type {any} */ one) => [name(one.class), name(one.hops.join(" → ")), ...(several ? [name(one.by ?? "–")] : [])]);
    return table({ t: "Paths" }, heads, rows, "paths");
  }

  const label = () => ({ t: "{n} hops and {edges} edges; the table below has the same", a: { n: String(now.boxes.length), edges: String(now.edges.length) } });

  /** @param {Event} event */
  function choose(event) {
    location.hash = `#/chains?${new URLSearchParams({ id: /** @type {HTMLSelectElement} */ (event.target).value })}`;
  }

  function draw() {
    if (closed) return;
    const several = chains && chains.length > 1;
    render(
      html`<h1>${tr({ t: "Chains" })}</h1>
        ${chains === null && !problem ? html`<p class="none">${tr({ t: "Loading…" })}</p>` : nothing}
        ${several
          ? html`<p class="bar"><label>${tr({ t: "Chain" })} <select id="chain" @change=${choose}>
              ${chains?.map((/** @type {any} */ one) => html`<option value=${one.id} ?selected=${one.id === (asked().get("id") ?? chains?.at(-1)?.id)}>${one.name}</option>`)}</select></label></p>`
          : nothing}
        ${failure(problem)}
        ${chains && !chains.length ? html`<p class="none">${tr({ t: "No chain runs on this machine now. Start one by netdyno chain run FILE." })}</p>` : nothing}
        ${now
          ? html`<p class="under">${name(now.name)}</p>
              ${frame("drawing", { t: "Drawing" })} <p class="note">${tr({ t: "Packets of both ways at the port towards the client. Dashed: copies." })}</p>
              ${hops()} ${paths()}`
          : nothing}`,
      root,
    );
    if (now) drawing(root.querySelector("#drawing"), now.drawing, label(), texts());
  }
  titled({ t: "Chains" });
  draw();
  begin();
  return {
    render: draw,
    close: () => {
      closed = true;
      stop();
    },
  };
}

/** Graphs of packet elements: those that run on this machine, with their counters, and those of presets. */

import { html, nothing, render } from "./lit-html.js";
import { tr } from "./i18n.js";
import { NONE, show } from "./format.js";
import { get, watch } from "./api.js";
import { draw as drawing, frame } from "./diagram.js";
import { asked, failure, name, table, titled } from "./parts.js";

const count = (/** @type {any} */ x) => show(x, "count");

/** @param {HTMLElement} root @param {{expired: () => void}} page */
export function open(root, page) {
  /** @type {any} what there is to choose from */
  let choices = null;
  /** @type {any} */
  let problem = null;
  /** @type {any[]} graphs that are shown: one that runs, or the legs of a preset */
  let shown = [];
  /** @type {any} what it was a look ago */
  let before = null;
  let closed = false;
  let stop = () => {};
  const query = asked();
  const preset = query.get("preset");

  async function begin() {
    try {
      choices = await get("/api/web/graphs");
      if (preset) shown = (await get(`/api/web/plan?${new URLSearchParams({ preset })}`)).legs;
      else {
        const one = query.get("name") ? Object.fromEntries(query) : choices.running[0];
        if (one && !closed) stop = watch(`/api/web/graph/live?${new URLSearchParams(one)}`, take, page.expired);
      }
    } catch (e) {
      if (/** @type {any} */ (e).status === 401) return page.expired();
      problem = e;
    }
    draw();
  }

  /** @param {any} news */
  function take(news) {
    problem = news.error ? news : null;
    if (!news.error) {
      before = shown[0] ?? null;
      shown = [news];
    }
    draw();
  }

  /** Packets per second since the last look. @param {(graph: any) => number | null | undefined} of */
  function rate(of) {
    const dt = before ? shown[0].status.elapsed - before.status.elapsed : 0;
    const [old, now] = [before && of(before), of(shown[0])];
    return dt > 0 && typeof old === "number" && typeof now === "number" ? (now - old) / dt : null;
  }

  /** @param {any} graph @param {string} element */
  const counts = (graph, element) => graph.elements.find((/** @type {any} */ one) => one.name === element)?.counts;
  const most = (/** @type {any} */ one) => one && Math.max(one.packets_in, one.packets_out);

  /** @param {any} graph */
  function texts(graph) {
    /** @type {Record<string, string>} */
    const found = {};
    for (const [key, passed] of Object.entries(graph.passed)) {
      if (passed === null) continue;
      const fast = rate((one) => one.passed[key]);
      found[key] = fast === null ? count(passed) : `${count(passed)} · ${show(fast, "/s")}`;
    }
    return found;
  }

  /** @param {any} graph @param {number} i */
  const elements = (graph, i) => {
    const live = Boolean(graph.status);
    const heads = [{ t: "Element" }, { t: "Kind" }, { n: { t: "Worker" } }, { n: { t: "Core" } }, ...(live ? [{ n: { t: "In" } }, { n: { t: "Out" } }, { n: { t: "Packets per second" } }, { n: { t: "Cycles per packet" } }, { t: "Drops" }] : []), { t: "To" }];
    const rows = graph.elements.map((/** @type {any} */ one) => {
      const c = one.counts;
      const drops = c ? Object.entries(c.drops).filter(([, n]) => n) : [];
      const own = live ? [count(c?.packets_in), count(c?.packets_out), show(rate((g) => most(counts(g, one.name))), "/s"), show(c?.cycles_per_packet, "count"), drops.length ? name(drops.map(([why, n]) => `${why} ${count(n)}`).join(", ")) : NONE] : [];
      return [name(one.name), name(one.kind), String(one.worker), one.core === null ? NONE : String(one.core), ...own, name(one.to.join(", "))];
    });
    return table({ t: "Elements" }, heads, rows, `elements-${i}`);
  };

  const label = (/** @type {any} */ graph) => ({ t: "{n} elements and {edges} edges; the table below has the same", a: { n: String(graph.elements.length), edges: String(graph.edges.length) } });

  /** @param {Event} event */
  function choose(event) {
    const value = /** @type {HTMLSelectElement} */ (event.target).value;
    if (value) location.hash = `#/graphs?${value}`;
  }

  function draw() {
    if (closed) return;
    const options = choices
      ? html`<p class="bar"><label>${tr({ t: "Graph" })} <select id="graph" @change=${choose}>
          ${choices.running.length ? nothing : html`<option value=""></option>`}
          ${choices.running.map((/** @type {any} */ one) => html`<option value=${new URLSearchParams(one)} ?selected=${!preset && one.name === query.get("name")}>${one.name}</option>`)}
          ${choices.presets.map((/** @type {string} */ one) => html`<option value=${new URLSearchParams({ preset: one })} ?selected=${one === preset}>${tr({ t: "Preset {name}", a: { name: one } })}</option>`)}</select></label></p>`
      : html`<p class="none">${tr({ t: "Loading…" })}</p>`;
    render(
      html`<h1>${tr({ t: "Graphs" })}</h1>
        ${options}
        ${failure(problem)}
        ${choices && !choices.running.length && !preset ? html`<p class="none">${tr({ t: "Nothing runs over DPDK ports now: no run, NAT, graph or impaired link of this user." })}</p>` : nothing}
        ${shown.map(
          (graph, i) => html`${graph.name ? html`<h2 class="small">${name(graph.name)}</h2>` : nothing}
            ${graph.status ? html`<p class="under">${name(graph.status.state)} · ${show(graph.status.elapsed, "s")}${graph.losses.map((/** @type {string} */ one) => html` · <span lang="en">${name(one)}</span>`)}</p>` : nothing}
            ${frame(`drawing-${i}`, { t: "Drawing" })} <p class="note">${tr({ t: "Dashed: to another worker, through a ring." })}</p> ${elements(graph, i)}`,
        )}`,
      root,
    );
    shown.forEach((graph, i) => drawing(root.querySelector(`#drawing-${i}`), graph.drawing, label(graph), graph.status ? texts(graph) : {}));
  }
  titled({ t: "Graphs" });
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

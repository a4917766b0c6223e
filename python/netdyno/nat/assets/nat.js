/** NATs that run on this machine: counters as they grow, sessions, subscribers, pools, sites, and traces of packets. */

import { html, nothing, render } from "./lit-html.js";
import { tr } from "./i18n.js";
import { NONE, show } from "./format.js";
import { get, post, watch } from "./api.js";
import { asked, failure, name, say, table, titled, views } from "./parts.js";

/** What was filtered by last: it is there again in the other views. @type {Record<string, string>} */
let typed = {};

const count = (/** @type {number | null} */ x) => show(x, "count");
const of = (/** @type {number} */ x, /** @type {number} */ most) => html`${count(x)}<small>${tr({ t: "of {n}", a: { n: count(most) } })}</small>`;
const inUse = (/** @type {number} */ x, /** @type {number} */ most) => tr({ t: "{n} of {total}", a: { n: count(x), total: count(most) } });
const time = (/** @type {number | null} */ s) => (s === null ? NONE : show(s, "s"));

/** @param {HTMLElement} root @param {{user: any, name: string, expired: () => void}} page */
export function open(root, page) {
  const operator = page.user.role === "operator";
  const view = asked().get("view") ?? "counters";
  let chosen = page.name;
  /** @type {string[] | null} */
  let nats = null;
  /** @type {any} what the daemon counts, as it grows */
  let now = null;
  /** @type {any} a page of a list, or a trace */
  let found = null;
  /** @type {string[]} where the pages before this one begin */
  let before = [];
  let cursor = "";
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

  const begin = () =>
    tried(async () => {
      nats = (await get("/api/nat/running")).nats;
      if (!chosen && nats?.length) chosen = nats[0];
      if (closed || !chosen) return;
      stop = watch(`/api/nat/counters/live?name=${encodeURIComponent(chosen)}`, take, page.expired);
      if (view in LISTS) await load();
    });

  /** @param {any} news */
  function take(news) {
    if (news.error) problem = news;
    else {
      now = news;
      if (problem?.error && !(problem instanceof Error)) problem = null;
    }
    draw();
  }

  /** What the form says. */
  function filters() {
    const form = root.querySelector("form");
    typed = form ? Object.fromEntries([...new FormData(form).entries()].map(([k, v]) => [k, String(v).trim()])) : {};
    const kept = Object.entries(typed).filter(([, v]) => v);
    return Object.fromEntries(kept);
  }

  async function load() {
    const query = new URLSearchParams({ name: chosen, ...(cursor ? { cursor } : {}), ...(LISTS[view].filters ? filters() : {}) });
    found = await get(`/api/nat/${view}?${query}`);
  }

  /** @param {Event} event */
  function search(event) {
    event.preventDefault();
    before = [];
    cursor = "";
    tried(async () => {
      await load();
      say({ t: "{n} entries", a: { n: String(found[view].length) } });
    });
  }

  /** @param {boolean} on */
  function turn(on) {
    if (on) before.push(cursor);
    cursor = on ? found.next : before.pop();
    tried(load);
  }

  function clear() {
    const wanted = filters();
    const all = !Object.keys(wanted).length;
    const filter = Object.entries(wanted).map((one) => one.join(" ")).join(", ");
    const question = all ? { t: "End all sessions of {nat}?", a: { nat: chosen } } : { t: "End the sessions of {filter}?", a: { filter } };
    if (!confirm(tr(question))) return;
    tried(async () => {
      const { ended } = await post("/api/nat/clear", { name: chosen, ...(all ? { all } : wanted) });
      before = [];
      cursor = "";
      await load();
      say({ t: "{n} sessions ended", a: { n: String(ended) } });
    });
  }

  /** @param {Event} event */
  function trace(event) {
    event.preventDefault();
    const wanted = filters();
    found = null;
    tried(async () => {
      found = await get(`/api/nat/trace?${new URLSearchParams({ name: chosen, ...wanted })}`);
      say({ t: "{n} packets came", a: { n: String(found.packets.length) } });
    });
  }

  function handOver() {
    if (!confirm(tr({ t: "Make the standby active? {nat} becomes the standby.", a: { nat: chosen } }))) return;
    tried(async () => {
      await post("/api/nat/hand-over", { name: chosen });
    });
  }

  /** @param {string} key @param {any} label @param {string} example */
  const field = (key, label, example) =>
    html`<label>${tr(label)} <input id="nat-${key}" name=${key} size="18" placeholder=${example} autocomplete="off" spellcheck="false" .defaultValue=${typed[key] ?? ""}></label>`;

  const subscriber = () => field("subscriber", { t: "Subscriber" }, "10.0.0.7");

  const filterForm = () => html`<form class="bar" @submit=${search} role="search">
      ${subscriber()}
      ${view === "sessions"
        ? html`${field("outside", { t: "Outside" }, "203.0.113.17:40123")} ${field("remote", { t: "Remote" }, "198.51.100.9:443")}
            <label>${tr({ t: "Protocol" })} <select name="protocol"><option value=""></option>${["tcp", "udp", "icmp"].map((one) => html`<option ?selected=${typed.protocol === one} translate="no">${one}</option>`)}</select></label>`
        : nothing}
      <button class="press small" ?disabled=${busy}>${tr({ t: "Find" })}</button>
      ${operator && view === "sessions" ? html`<button type="button" class="press small" id="clear" ?disabled=${busy} @click=${clear}>${tr({ t: "End these sessions" })}</button>` : nothing}
    </form>`;

  /** A page of a list. */
  function list() {
    const known = LISTS[view];
    const rows = found?.[view];
    return html`${known.filters ? filterForm() : nothing}
      ${rows ? (rows.length ? table(VIEWS[view], known.heads, rows.map(known.row), "list") : html`<p class="none" id="list">${tr({ t: "There are none." })}</p>`) : nothing}
      ${rows && (before.length || found.next)
        ? html`<p class="actions"><button type="button" class="press small" ?disabled=${busy || !before.length} @click=${() => turn(false)}>${tr({ t: "Previous" })}</button>
            <button type="button" class="press small" ?disabled=${busy || !found.next} @click=${() => turn(true)}>${tr({ t: "Next" })}</button></p>`
        : nothing}`;
  }

  function counters() {
    if (!now) return problem ? nothing : html`<p class="none">${tr({ t: "Loading…" })}</p>`;
    const { total, workers, counters } = now;
    const dropped = counters.drops.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.packets, 0);
    const figure = (/** @type {any} */ label, /** @type {any} */ value) => html`<div><dt>${tr(label)}</dt><dd>${value}</dd></div>`;
    return html`<dl class="figures">
        ${figure({ t: "Sessions" }, of(total.sessions, total.most_sessions))}
        ${figure({ t: "Subscribers" }, of(total.subscribers, total.most_subscribers))}
        ${figure({ t: "Free port blocks" }, of(total.blocks_free, total.blocks))}
        ${figure({ t: "Packets up" }, count(counters.forwarded_up))}
        ${figure({ t: "Packets down" }, count(counters.forwarded_down))}
        ${figure({ t: "Dropped" }, count(dropped))}</dl>
      <p class="note">${tr({ t: "Since the start, {time} ago", a: { time: time(counters.elapsed) } })}</p>
      ${counters.lost.map((/** @type {string} */ why) => html`<p class="notice">${name(why)}</p>`)}
      ${now.pair ? pair() : nothing}
      <h2 class="small">${tr({ t: "Drops by reason" })}</h2>
      ${counters.drops.length
        ? table({ t: "Drops by reason" }, [{ t: "Dropped by" }, { t: "Reason" }, { n: { t: "Packets" } }, { t: "Meaning" }], counters.drops.map((/** @type {any} */ one) => [name(one.element), name(one.reason), count(one.packets), html`<span lang="en">${one.meaning}</span>`]), "drops")
        : html`<p class="none">${tr({ t: "There are none." })}</p>`}
      <h2 class="small">${tr({ t: "Stages" })}</h2>
      ${table({ t: "Stages" }, [{ t: "Stage" }, { t: "Element" }, { n: { t: "In" } }, { n: { t: "Out" } }, { n: { t: "Dropped" } }, { n: { t: "Bytes" } }], counters.elements.map((/** @type {any} */ one) => [name(one.stage), name(one.element), count(one.packets_in), count(one.packets_out), count(Object.values(one.drops).reduce((/** @type {number} */ a, b) => a + Number(b), 0)), count(one.bytes)]), "stages")}
      <h2 class="small">${tr({ t: "Workers" })}</h2>
      ${table({ t: "Workers" }, [{ t: "Worker" }, { n: { t: "Sessions" } }, { n: { t: "Subscribers" } }, { n: { t: "Outside addresses" } }, { n: { t: "Free port blocks" } }, { n: { t: "Slow path" } }, { n: { t: "Log records lost" } }], workers.map((/** @type {any} */ one) => [name(one.element), count(one.sessions), count(one.subscribers), count(one.addresses), count(one.blocks_free), count(one.slow), count(one.log_lost)]))}`;
  }

  const pair = () => html`<h2 class="small">${tr({ t: "Pair" })}</h2>
    <p>${name(now.pair.role)} ${time(now.pair.since_s)} · ${now.pair.synced ? tr({ t: "in sync" }) : tr({ t: "not in sync" })}
      ${now.pair.error ? html`<span class="bad">${name(now.pair.error)}</span>` : nothing}
      ${operator && now.pair.role === "active" ? html`<button type="button" class="press small" ?disabled=${busy} @click=${handOver}>${tr({ t: "Hand over" })}</button>` : nothing}</p>`;

  const tracing = () => html`<form class="bar" @submit=${trace}>
      ${subscriber()} ${field("outside", { t: "Outside" }, "203.0.113.17:40123")} ${field("filter", { t: "Or a filter" }, "udp port 53")}
      <button class="press small" ?disabled=${busy}>${busy ? tr({ t: "Waiting…" }) : tr({ t: "Trace" })}</button></form>
      <p class="help">${tr({ t: "Give one of them. It follows up to 10 packets for 10 s; other packets are not affected." })}</p>
      ${found
        ? html`<p id="traced">${tr({ t: "{n} of {total} packets came within {time}.", a: { n: String(found.packets.length), total: String(found.wanted), time: time(found.seconds) } })}
            ${found.answers ? nothing : tr({ t: "The subscriber has no outside address yet: answers to it are not followed." })}</p>
          ${found.packets.map(
            (/** @type {any} */ packet) => html`<h2 class="small">${name(packet.summary)}</h2>
              ${table({ t: "Steps of a packet" }, [{ t: "Element" }, { n: { t: "After" } }, { t: "Action" }, { t: "Packet after it" }], packet.steps.map((/** @type {any} */ step) => [name(step.element), show(step.at - packet.steps[0].at, "ns"), html`<span lang="en">${step.said}</span>`, step.became ? name(step.became) : NONE]))}`,
          )}`
        : nothing}`;

  function draw() {
    if (closed) return;
    const base = `#/nat/${chosen}`;
    const { sites, ...others } = VIEWS;
    render(
      html`<h1>${tr({ t: "NAT" })}</h1>
        ${nats && !nats.length && !page.name
          ? html`<p class="none">${tr({ t: "No NAT of this user runs on this machine. `netdyno nat run FILE` starts one." })}</p>`
          : html`${nats && nats.length > 1
                ? html`<p class="bar"><label>${tr({ t: "NAT" })} <select id="nat" @change=${(/** @type {any} */ e) => (location.hash = `#/nat/${e.target.value}?view=${view}`)}>${nats.map((one) => html`<option ?selected=${one === chosen}>${one}</option>`)}</select></label></p>`
                : html`<p class="under">${name(chosen)}</p>`}
              ${views({ t: "Views of the NAT" }, base, now?.has_sites || view === "sites" ? VIEWS : others, view)}
              ${failure(problem)}
              ${view === "trace" ? tracing() : view in LISTS ? list() : counters()}`}`,
      root,
    );
  }
  titled({ t: "NAT" });
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

/** @type {Record<string, any>} */
const VIEWS = {
  counters: { t: "Counters" },
  sessions: { t: "Sessions" },
  subscribers: { t: "Subscribers" },
  pools: { t: "Pool" },
  sites: { t: "Sites" },
  trace: { t: "Trace" },
};

/** Lists that are read page by page. @type {Record<string, {heads: any[], row: (one: any) => any[], filters?: boolean}>} */
const LISTS = {
  sessions: {
    filters: true,
    heads: [{ t: "Inside" }, { t: "Protocol" }, { t: "VLAN" }, { t: "Outside" }, { t: "Remote" }, { t: "State" }, { n: { t: "Idle" } }, { n: { t: "Packets up" } }, { n: { t: "Bytes up" } }, { n: { t: "Packets down" } }, { n: { t: "Bytes down" } }],
    row: (one) => [name(one.inside), name(one.protocol), one.vlan, name(one.outside), one.remote ? name(one.remote) : NONE, name(one.state), time(one.idle_s), count(one.packets_up), count(one.bytes_up), count(one.packets_down), count(one.bytes_down)],
  },
  subscribers: {
    filters: true,
    heads: [{ t: "Subscriber" }, { t: "VLAN" }, { t: "Outside" }, { n: { t: "Sessions" } }, { t: "Ports" }],
    row: (one) => [name(one.address), one.vlan, one.outside ? name(one.outside) : NONE, count(one.sessions), one.ports],
  },
  pools: {
    heads: [{ t: "Outside address" }, { t: "State" }, { n: { t: "Subscribers" } }, { n: { t: "Port blocks in use" } }, { n: { t: "TCP ports" } }, { n: { t: "UDP ports" } }, { n: { t: "ICMP identifiers" } }, { n: { t: "In quarantine" } }],
    row: (one) => [name(one.address), tr(one.draining ? { t: "draining" } : { t: "active" }), count(one.subscribers), inUse(one.blocks - one.blocks_free, one.blocks), count(one.used.tcp), count(one.used.udp), count(one.used.icmp), count(one.resting.tcp + one.resting.udp + one.resting.icmp)],
  },
  sites: {
    heads: [{ t: "Site" }, { t: "Virtual MAC address" }, { t: "Outside address" }, { t: "State" }, { n: { t: "Lease left" } }, { t: "DHCP server" }, { n: { t: "Subscribers" } }, { n: { t: "Worker" } }],
    row: (one) => [name(one.site), name(one.mac), one.address ? name(one.address) : NONE, name(one.state), time(one.lease_s), one.server ? name(one.server) : NONE, count(one.subscribers), String(one.worker)],
  },
};

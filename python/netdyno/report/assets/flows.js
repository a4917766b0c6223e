/** What each device delivered: read from the page's `flows.csv`, worst first, sorted and filtered here. */

import { element, say, onLanguage, tr } from "./i18n.js";
import { show, NONE } from "./format.js";
import { unpack } from "./store.js";
import { turn } from "./tables.js";

const STEP = 15;
const COLUMNS = [
  { label: { t: "Group" }, name: "group", text: true },
  { label: { t: "Device" }, name: "device", unit: "id" },
  { label: { t: "Flows done" }, name: "flows_completed" },
  { label: { t: "Sent" }, name: "sent" },
  { label: { t: "Delivered" }, name: "delivered" },
  { label: { t: "Share" }, name: "share", unit: "cpu" },
  { label: { t: "Failed" }, name: "failed" },
  { label: { t: "Mean delay" }, name: "delay_mean_ns", unit: "ns" },
  { label: { t: "Longest delay" }, name: "delay_max_ns", unit: "ns" },
];

/** Rows of a CSV with quoted fields. @param {string} text @returns {string[][]} */
export function parse(text) {
  const rows = [];
  for (const line of text.matchAll(/(?:"(?:[^"]|"")*"|[^"\n])+/g)) {
    const cells = [...line[0].matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)];
    rows.push(cells.map(([, quoted, plain]) => (quoted !== undefined ? quoted.replaceAll('""', '"') : plain)));
  }
  return rows;
}

/** @param {any} files @returns {Promise<any[]>} */
export async function readFlows(files) {
  if (!files["flows.csv"]) return [];
  const [head, ...rows] = parse(await (await unpack(files["flows.csv"])).text());
  const texts = new Set(["leg", "group"]);
  return rows.map((row) => {
    const flow = Object.fromEntries(head.map((name, i) => [name, texts.has(name) ? row[i] : Number(row[i])]));
    flow.share = flow.sent ? flow.delivered / flow.sent : null;
    return flow;
  });
}

const worstFirst = (a, b) => (a.share ?? 0) - (b.share ?? 0) || b.failed - a.failed || b.delay_max_ns - a.delay_max_ns;

/** @param {Element} where @param {any[]} flows those of one trial */
export function flowTable(where, flows) {
  const groups = [...new Set(flows.map((f) => f.group))];
  let order = worstFirst;
  let limit = STEP;
  const bar = document.createElement("div");
  bar.className = "filters";
  const choice = document.createElement("select");
  say(choice, { t: "Group" }, "aria-label");
  for (const [value, label] of [["", { t: "All groups" }], ...groups.map((g) => [`=${g}`, { d: g }])]) {
    const option = element("option", label);
    option.value = value;
    choice.append(option);
  }
  const wanted = document.createElement("input");
  wanted.type = "search";
  wanted.inputMode = "numeric";
  say(wanted, { t: "Number of a device" }, "placeholder");
  say(wanted, { t: "Number of a device" }, "aria-label");
  const only = document.createElement("label");
  const box = document.createElement("input");
  box.type = "checkbox";
  only.append(box, element("span", { t: "only those that lost something" }));
  const told = document.createElement("output");
  bar.append(choice, wanted, only, told);

  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  for (const column of COLUMNS) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.className = column.text ? "" : "n";
    cell.setAttribute("aria-sort", "none");
    const button = element("button", column.label);
    button.setAttribute("type", "button");
    button.addEventListener("click", () => {
      const direction = turn(cell);
      order = (a, b) => direction * (column.text ? String(a.group).localeCompare(b.group, "en") : (a[column.name] ?? -1) - (b[column.name] ?? -1));
      fill();
    });
    cell.append(button);
    head.append(cell);
  }
  const body = table.createTBody();
  const scroll = document.createElement("div");
  scroll.className = "scroll";
  scroll.tabIndex = 0;
  scroll.append(table);
  const more = element("button", { t: "Show more" }, "more");
  more.setAttribute("type", "button");
  more.addEventListener("click", () => {
    limit += 10 * STEP;
    fill();
  });

  function fill() {
    const number = wanted.value.trim();
    const found = flows.filter((f) =>
      (!choice.value || choice.value === `=${f.group}`) && (!number || String(f.device) === number) && (!box.checked || f.delivered < f.sent || f.failed));
    found.sort(order);
    body.replaceChildren(...found.slice(0, limit).map(row));
    more.hidden = found.length <= limit;
    told.textContent = tr({ t: "{shown} of {total} devices", a: { shown: show(found.length, "count"), total: show(flows.length, "count") } });
  }

  function row(flow) {
    const made = document.createElement("tr");
    for (const column of COLUMNS) {
      const cell = made.insertCell();
      const value = flow[column.name];
      if (column.text) {
        cell.append(element("bdi", { d: value }));
      } else {
        cell.className = "n";
        cell.textContent = column.unit === "ns" && !flow.delivered ? NONE : show(value, column.unit ?? "count");
      }
    }
    return made;
  }

  for (const input of [choice, wanted, box]) {
    input.addEventListener("input", () => {
      limit = STEP;
      fill();
    });
  }
  onLanguage(fill);
  fill();
  where.replaceChildren(bar, scroll, more);
}

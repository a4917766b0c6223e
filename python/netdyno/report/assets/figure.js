/** A chart with all that belongs to it: title, choice of view, legend, summary in words, table of its data. */

import { element, onLanguage, say, tr } from "./i18n.js";
import { percentile, show } from "./format.js";
import { onTheme } from "./theme.js";
import { draw, moveCursor } from "./chart.js";
import { limitOf } from "./marks.js";
import { legend } from "./legend.js";
import { picture, savePicture } from "./png.js";

let made = 0;

/** The places of a view along its chart. */
function places(spec, view, trial) {
  if (spec.kind === "points") return view.x;
  return spec.kind === "time" ? trial.t : spec.x;
}

/** A place in words. */
function placed(spec, view, x) {
  if (view.ticks) return view.ticks[view.x.indexOf(x)];
  if (spec.kind === "points") return view.names ? view.names[x] : show(x, view.xunit);
  return spec.kind === "time" ? show(x, "s") : percentile(x);
}

/** What the places are. */
function along(spec, view) {
  if (spec.kind === "points") return view.xlabel;
  return spec.kind === "time" ? { t: "Time" } : { t: "Percentile" };
}

/** Lowest, mean and highest of each line in words, over the measure phase. */
function summary(spec, view, trial) {
  const unit = view.unit ?? spec.unit;
  const measure = trial.phases.find((p) => p.label.t === "Measure");
  const inside = (i) => spec.kind !== "time" || !measure || (trial.t[i] > measure.from && trial.t[i] <= measure.to + 1e-9);
  return view.lines.map((line) => {
    const values = line.values.filter((v, i) => v !== null && inside(i));
    if (!values.length) return { t: "{line}: no data.", a: { line: line.label } };
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const [low, high] = [Math.min(...values), Math.max(...values)].map((v) => show(v, unit));
    if ((view.log ?? spec.log) || spec.kind === "points") return { t: "{line}: from {low} to {high}.", a: { line: line.label, low, high } };
    return { t: "{line}: mean {mean}, from {low} to {high}.", a: { line: line.label, mean: show(mean, unit), low, high } };
  });
}

/** The numbers themselves. */
function dataTable(spec, view, trial) {
  const unit = view.unit ?? spec.unit;
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  for (const label of [along(spec, view), ...view.lines.map((l) => l.label)]) {
    const cell = element("th", label, "n");
    cell.setAttribute("scope", "col");
    head.append(cell);
  }
  const body = table.createTBody();
  places(spec, view, trial).forEach((x, i) => {
    const row = body.insertRow();
    const value = (l) => {
      const shown = show(l.values[i], unit);
      return typeof l.low?.[i] === "number" ? `${shown} (${show(l.low[i], unit)} … ${show(l.high[i], unit)})` : shown;
    };
    for (const text of [placed(spec, view, x), ...view.lines.map(value)]) {
      const cell = row.insertCell();
      cell.className = "n";
      cell.textContent = text;
    }
  });
  return table;
}

/** @param {any} spec @param {any} trial @param {string} sync @returns {HTMLElement} */
export function figure(spec, trial, sync) {
  const id = `figure-${++made}`;
  const root = document.createElement("figure");
  root.className = "chart";
  root.dataset.chart = spec.id;
  root.setAttribute("aria-labelledby", id);
  const caption = document.createElement("figcaption");
  const title = element("h3", spec.title);
  title.id = id;
  const tools = document.createElement("span");
  tools.className = "tools";
  const save = element("button", { t: "PNG" }, "press");
  save.type = "button";
  say(save, { t: "Save this plot as PNG" }, "title");
  say(save, { t: "Save this plot as PNG" }, "aria-label");
  tools.append(save);
  caption.append(title, tools);
  const plot = document.createElement("div");
  plot.className = "plot";
  plot.tabIndex = 0;
  plot.setAttribute("role", "img");
  const keyPlace = document.createElement("div");
  const spoken = document.createElement("p");
  spoken.className = "sr";
  spoken.setAttribute("aria-live", "polite");
  const details = document.createElement("details");
  details.append(element("summary", { t: "Data as a table" }));
  root.append(caption, plot, keyPlace, spoken, details);

  let view = spec.views[0];
  let hidden = new Set();
  let chart = null;
  let key = null;
  if (spec.views.length > 1) tools.prepend(chooser());

  function chooser() {
    const select = document.createElement("select");
    say(select, { t: "Shown in this chart" }, "aria-label");
    spec.views.forEach((v, i) => {
      const option = element("option", v.label);
      option.value = String(i);
      select.append(option);
    });
    select.addEventListener("change", () => {
      view = spec.views[Number(select.value)];
      hidden = new Set();
      build();
    });
    return select;
  }

  /** A new view: new legend, new words, new table. */
  function build() {
    key = legend(view.lines, (i, on) => {
      if (on) hidden.delete(i);
      else hidden.add(i);
      chart?.setSeries(i + 1, { show: on });
    });
    keyPlace.replaceChildren(key.list);
    fillTable();
    redraw();
  }

  function fillTable() {
    details.querySelector("div")?.remove();
    if (!details.open) return;
    const scroll = document.createElement("div");
    scroll.className = "scroll";
    scroll.tabIndex = 0;
    scroll.append(dataTable(spec, view, trial));
    details.append(scroll);
  }

  function redraw() {
    if (!key) return; // not built yet: the first drawing will have the language and colours of then
    chart?.destroy();
    chart = draw(plot, spec, view, {
      t: trial.t, phases: trial.phases, marks: trial.marks ?? [], sync, hidden,
      onCursor: (index) => key.update(index, view.unit ?? spec.unit),
    });
    const events = spec.kind === "time" ? (trial.marks ?? []) : [];
    const marks = [
      limitOf(spec, view)?.label,
      view.band?.label,
      ...events.map((/** @type {any} */ one) => ({ t: "{label} at {t}", a: { label: one.label, t: show(one.at, "s") } })),
    ].filter(Boolean);
    plot.setAttribute("aria-label", [tr(spec.title), ...[...summary(spec, view, trial), ...marks].map(tr)].join(" – "));
  }

  /** What the cursor stands on, for those who hear the page. */
  function speak(index) {
    const xs = places(spec, view, trial);
    const x = placed(spec, view, xs[index]);
    const unit = view.unit ?? spec.unit;
    const words = (/** @type {any} */ l) => `${tr(l.label)} ${show(l.values[index], unit)}`;
    // Where several points stand at one place, the lowest and the highest of each kind.
    const ends = (/** @type {any} */ l) => {
      const there = l.values.filter((v, i) => v !== null && xs[i] === xs[index]);
      const [low, high] = [Math.min(...there), Math.max(...there)].map((v) => show(v, unit));
      return there.length ? `${tr(l.label)} ${low === high ? low : `${low} … ${high}`}` : "";
    };
    const said = spec.kind === "points" ? view.lines.map(ends).filter(Boolean) : view.lines.map(words);
    spoken.textContent = [x, ...said].join(", ");
  }

  /** Points have come to the lines: the chart goes on, and its words follow. */
  root.refresh = () => {
    if (!chart || !key) return;
    const xs = places(spec, view, trial);
    if (chart.data[0].length < 3) redraw();
    else chart.setData([xs, ...view.lines.map((line) => line.values)]);
    key.update(chart.cursor.idx ?? xs.length - 1, view.unit ?? spec.unit);
    plot.setAttribute("aria-label", [tr(spec.title), ...summary(spec, view, trial).map(tr)].join(" – "));
    if (details.open) fillTable();
  };

  plot.addEventListener("keydown", (event) => {
    if (chart && moveCursor(chart, event)) {
      event.preventDefault();
      speak(chart.cursor.idx);
    }
  });
  details.addEventListener("toggle", fillTable);
  save.addEventListener("click", () => {
    if (!chart) return;
    const shown = view.lines.filter((_, i) => !hidden.has(i));
    const title = [tr(spec.title), ...(spec.views.length > 1 ? [tr(view.label)] : [])].join(" – ");
    savePicture(picture(chart.ctx.canvas, title, shown), `${spec.id}.png`);
  });
  onLanguage(redraw);
  onTheme(redraw);
  new ResizeObserver(() => {
    if (chart && plot.clientWidth && plot.clientWidth !== chart.width) chart.setSize({ width: plot.clientWidth, height: chart.height });
  }).observe(plot);
  // A plot is as wide as the page lets it be, which is known once it stands in the page.
  requestAnimationFrame(build);
  return root;
}

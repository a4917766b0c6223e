/** One drawn chart: a thin layer over uPlot, which the page holds as the global `uPlot`. */

import { tr } from "./i18n.js";
import { tick, percentile } from "./format.js";
import { marksPlugin, reached } from "./marks.js";
import { theme, DASHES } from "./theme.js";

const HEIGHT = 210;

/** Steps of an axis of things that are counted: there is no quarter of a message. */
/** Steps between lines: 1, 2 or 5 of a decade. A quarter of a second is no step that one reads. */
const EVEN = Array.from({ length: 31 }, (_, i) => [1, 2, 5].map((n) => Number(`${n}e${i - 12}`))).flat();
const WHOLE = Array.from({ length: 16 }, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat();

/** Shade what is not measured, and name the phases. @param {any[]} phases @param {ReturnType<theme>} colours */
function phasesPlugin(phases, colours) {
  const span = (u, phase) => {
    const { left, width } = u.bbox;
    const at = (t) => Math.min(left + width, Math.max(left, u.valToPos(t, "x", true)));
    return [at(phase.from), at(phase.to)];
  };
  return {
    hooks: {
      drawClear: [
        (u) => {
          u.ctx.save();
          u.ctx.fillStyle = colours.shade;
          for (const phase of phases) {
            if (phase.label.t === "Measure") continue;
            const [from, to] = span(u, phase);
            u.ctx.fillRect(from, u.bbox.top, to - from, u.bbox.height);
          }
          u.ctx.restore();
        },
      ],
      draw: [
        (u) => {
          const ratio = devicePixelRatio;
          u.ctx.save();
          u.ctx.font = colours.font.replace("11px", `${10 * ratio}px`);
          u.ctx.fillStyle = colours.ink;
          u.ctx.textBaseline = "bottom";
          phases.forEach((phase, i) => {
            const [from, to] = span(u, phase);
            const text = tr(phase.label);
            const fits = u.ctx.measureText(text).width + 4 * ratio < to - from;
            // A short phase at either end may say its name beyond itself, there is room beside "Measure".
            u.ctx.textAlign = fits ? "center" : i === 0 ? "left" : "right";
            const at = fits ? (from + to) / 2 : i === 0 ? from : to;
            if (fits || phase.label.t !== "Measure") u.ctx.fillText(text, at, u.bbox.top - 3 * ratio);
          });
          u.ctx.restore();
        },
      ],
    },
  };
}

/** A line where somebody changed a rate or paused the run. @param {any[]} marks @param {ReturnType<theme>} colours */
function eventsPlugin(marks, colours) {
  return {
    hooks: {
      draw: [
        (u) => {
          const ratio = devicePixelRatio;
          const { left, top, width, height } = u.bbox;
          u.ctx.save();
          u.ctx.font = colours.font.replace("11px", `${10 * ratio}px`);
          u.ctx.fillStyle = u.ctx.strokeStyle = colours.ink;
          u.ctx.textBaseline = "top";
          u.ctx.setLineDash([3 * ratio, 3 * ratio]);
          marks.forEach((mark, i) => {
            const x = u.valToPos(mark.at, "x", true);
            if (x < left || x > left + width) return;
            u.ctx.beginPath();
            u.ctx.moveTo(x, top);
            u.ctx.lineTo(x, top + height);
            u.ctx.stroke();
            u.ctx.textAlign = x > left + width / 2 ? "right" : "left";
            u.ctx.fillText(tr(mark.label), x + (x > left + width / 2 ? -4 : 4) * ratio, top + (2 + 12 * (i % 4)) * ratio);
          });
          u.ctx.restore();
        },
      ],
    },
  };
}

/** Of a logarithmic axis only the powers of ten get a line. */
const decades = (u, splits) => splits.map((s) => (s && Math.abs(Math.log10(s) - Math.round(Math.log10(s))) < 1e-9 ? s : null));

/** Points stand clear of the edges; choices have their places, and numbers begin where they do. */
function pointRange(view) {
  const [low, high] = [Math.min(...view.x), Math.max(...view.x)];
  if (view.ticks && view.xlog) return [low / (high / low) ** 0.08, high * (high / low) ** 0.08];
  if (view.names) return [-0.5, view.names.length - 0.5];
  if (view.xlog) return uPlot.rangeLog(low, high, 10, true);
  if (view.ticks && view.even) return [low - 0.5, high + 0.5];
  const pad = (high - low || Math.abs(high) || 1) * 0.05;
  return [low - pad, high + pad];
}

/** Round limits for logarithms, and something to show when there is nothing. */
const logRange = (marks) => (u, low, high) => (low === null || low <= 0 ? [1, 10] : uPlot.rangeLog(Math.min(low, ...marks), Math.max(high, ...marks), 10, false));
const zeroRange = (marks) => (u, low, high) => {
  const most = Math.max(high ?? 0, ...marks);
  return most <= 0 ? [0, 1] : uPlot.rangeNum(0, most, { min: { pad: 0, soft: 0, mode: 1 }, max: { pad: 0.08 } });
};

/**
 * @param {HTMLElement} where
 * @param {any} spec the chart as `charts.py` made it
 * @param {any} view the chosen view of it
 * @param {{t: number[], phases: any[], marks: any[], sync: string, hidden: Set<number>, onCursor: (i: number | null) => void}} context
 */
export function draw(where, spec, view, context) {
  const colours = theme();
  const unit = view.unit ?? spec.unit;
  const time = spec.kind === "time";
  const points = spec.kind === "points";
  const x = points ? view.x : time ? context.t : spec.x;
  const log = view.log ?? spec.log;
  const few = x.length < 3;
  const marks = reached(spec, view);
  // Levels are written where they stand; of neighbours too close for both the later one is left out.
  const levels = (u, splits) => {
    const gap = (text) => text.length * 7 + 8;
    let free = -Infinity;
    return splits.map((s, i) => {
      const at = u.valToPos(s, "x");
      if (at - gap(view.ticks[i]) / 2 < free) return "";
      free = at + gap(view.ticks[i]) / 2;
      return view.ticks[i];
    });
  };
  const axis = { stroke: colours.ink, font: colours.font, grid: { stroke: colours.grid, width: 1 }, ticks: { show: false } };
  const options = {
    width: where.clientWidth || 480,
    height: HEIGHT,
    padding: [time ? 16 : 10, 12, 0, 0],
    legend: { show: false },
    cursor: {
      drag: { x: false, y: false },
      points: { size: 6 },
      y: false,
      ...(time ? { sync: { key: context.sync } } : {}),
    },
    scales: {
      x: points ? { time: false, distr: view.xlog ? 3 : 1, range: pointRange(view) } : { time: false, distr: time ? 1 : 3, range: time ? [0, Math.max(x.at(-1) ?? 1, context.phases.at(-1)?.to ?? 0)] : [1, Math.max(x.at(-1) ?? 10, 10)] },
      y: log ? { distr: 3, range: logRange(marks) } : { range: zeroRange(marks) },
    },
    axes: [
      {
        ...axis,
        space: time ? 55 : 48,
        size: 30,
        ...(points ? { size: 26, label: tr(view.xlabel), labelFont: colours.font, labelSize: 18 } : {}),
        ...(view.ticks ? { splits: () => view.x } : {}),
        ...(points && (view.names || view.xunit === "id") ? { incrs: WHOLE } : time || (points && !view.xlog) ? { incrs: EVEN } : {}),
        values: view.ticks
          ? levels
          : points
          ? (u, splits) => (view.xlog ? decades(u, splits) : splits).map((s) => (view.names ? (view.names[s] ?? "") : tick(s, view.xunit)))
          : time
          ? (u, splits) => splits.map((s) => tick(s, "s"))
          : (u, splits) => decades(u, splits).map(percentile),
        ...(view.ticks ? { filter: (u, splits) => splits } : time || (points && !view.xlog) ? {} : { filter: (u, splits) => splits, grid: { ...axis.grid, filter: decades } }),
      },
      { ...axis, ...(log ? { grid: { ...axis.grid, filter: decades } } : {}), ...(unit === "count" ? { incrs: WHOLE } : log ? {} : { incrs: EVEN }), size: 62, space: 34, values: (u, splits) => splits.map((s) => tick(s, unit)) },
    ],
    series: [
      {},
      ...view.lines.map((line, i) => ({
        label: tr(line.label),
        show: !context.hidden.has(i),
        stroke: colours.lines[line.color],
        width: line.dash ? 1.6 : 1.9,
        dash: DASHES[line.dash],
        fill: line.fill ? colours.lines[line.color] + "22" : undefined,
        ...(line.points && !line.joined ? { paths: () => null } : {}),
        points: { show: few || Boolean(line.points), size: line.points ? 7 : 5, fill: line.points ? colours.lines[line.color] : undefined },
        spanGaps: Boolean(line.joined),
      })),
    ],
    hooks: { setCursor: [(u) => context.onCursor(u.cursor.idx ?? null)] },
    plugins: [...(time ? [phasesPlugin(context.phases, colours), eventsPlugin(context.marks, colours)] : []), marksPlugin(spec, view, colours)],
  };
  return new uPlot(options, [x, ...view.lines.map((line) => line.values)], where);
}

/** Arrow keys move the cursor along the chart. @param {any} u @param {KeyboardEvent} event @returns {boolean} */
export function moveCursor(u, event) {
  const last = u.data[0].length - 1;
  const now = u.cursor.idx ?? -1;
  // Several points may stand at one place: a step leads to the next place.
  const step = (by) => {
    let to = now + by;
    while (u.data[0][to] !== undefined && u.data[0][to] === u.data[0][now]) to += by;
    return Math.min(last, Math.max(0, to));
  };
  const goals = { ArrowRight: step(1), ArrowLeft: now < 0 ? last : step(-1), Home: 0, End: last };
  if (!(event.key in goals) || last < 0) return false;
  const index = goals[event.key];
  u.setCursor({ left: u.valToPos(u.data[0][index], "x"), top: u.over.clientHeight / 2 });
  return true;
}

/** What stands behind the lines of a chart: a limit, the interval of a mean, the intervals of points. */

import { tr } from "./i18n.js";

/** @param {any} spec @param {any} view */
export const limitOf = (spec, view) => view.limit ?? spec.limit;

/** Values that the axis must reach, so that what is judged and what it is judged by are both to be seen. */
export function reached(spec, view) {
  const ends = view.lines.flatMap((line) => [...(line.low ?? []), ...(line.high ?? []), ...(line.dots ?? []).flat()]);
  const found = [limitOf(spec, view)?.value, view.band?.low, view.band?.high, ...ends];
  return found.filter((v) => typeof v === "number" && (!(view.log ?? spec.log) || v > 0));
}

/** @param {any} spec @param {any} view @param {any} colours */
export function marksPlugin(spec, view, colours) {
  const ratio = devicePixelRatio;
  const level = (u, value) => {
    const { top, height } = u.bbox;
    return Math.min(top + height, Math.max(top, u.valToPos(value, "y", true)));
  };
  const across = (u, y) => {
    u.ctx.beginPath();
    u.ctx.moveTo(u.bbox.left, y);
    u.ctx.lineTo(u.bbox.left + u.bbox.width, y);
    u.ctx.stroke();
  };
  const words = (u, text, y, colour, above, end) => {
    u.ctx.font = colours.font.replace("11px", `${11 * ratio}px`);
    u.ctx.fillStyle = colour;
    u.ctx.textAlign = end ? "right" : "left";
    const room = above ? y - u.bbox.top > 16 * ratio : u.bbox.top + u.bbox.height - y < 16 * ratio;
    u.ctx.textBaseline = room ? "bottom" : "top";
    // Words stay readable where a line passes behind them.
    const [dash, stroke] = [u.ctx.getLineDash(), u.ctx.strokeStyle];
    u.ctx.setLineDash([]);
    u.ctx.strokeStyle = colours.paper;
    u.ctx.lineWidth = 3 * ratio;
    u.ctx.lineJoin = "round";
    const x = end ? u.bbox.left + u.bbox.width - 4 * ratio : u.bbox.left + 4 * ratio;
    u.ctx.strokeText(text, x, y + (room ? -3 : 3) * ratio);
    u.ctx.setLineDash(dash);
    u.ctx.strokeStyle = stroke;
    u.ctx.fillText(text, x, y + (room ? -3 : 3) * ratio);
  };
  return {
    hooks: {
      drawClear: [
        (u) => {
          if (!view.band) return;
          const [low, high] = [level(u, view.band.low), level(u, view.band.high)];
          u.ctx.save();
          u.ctx.fillStyle = colours.lines[0] + "22";
          u.ctx.fillRect(u.bbox.left, high, u.bbox.width, Math.max(ratio, low - high));
          u.ctx.strokeStyle = colours.lines[0];
          u.ctx.lineWidth = ratio;
          across(u, level(u, view.band.value));
          u.ctx.restore();
        },
      ],
      draw: [
        (u) => {
          u.ctx.save();
          view.lines.forEach((line, i) => {
            if (!line.low || !u.series[i + 1].show) return;
            u.ctx.strokeStyle = colours.lines[line.color];
            u.ctx.lineWidth = 1.5 * ratio;
            line.dots?.forEach((values, at) => {
              const x = u.valToPos(u.data[0][at], "x", true);
              for (const value of values) {
                u.ctx.beginPath();
                u.ctx.arc(x, level(u, value), 2.2 * ratio, 0, 2 * Math.PI);
                u.ctx.stroke();
              }
            });
            line.low.forEach((low, at) => {
              if (low === null) return;
              const x = u.valToPos(u.data[0][at], "x", true);
              const [bottom, top] = [level(u, low), level(u, line.high[at])];
              u.ctx.beginPath();
              u.ctx.moveTo(x, bottom);
              u.ctx.lineTo(x, top);
              for (const y of [bottom, top]) {
                u.ctx.moveTo(x - 4 * ratio, y);
                u.ctx.lineTo(x + 4 * ratio, y);
              }
              u.ctx.stroke();
            });
          });
          if (view.band) words(u, tr(view.band.label), level(u, view.band.value), colours.lines[0], true, false);
          const limit = limitOf(spec, view);
          if (limit) {
            const y = level(u, limit.value);
            u.ctx.strokeStyle = colours.bad;
            u.ctx.lineWidth = 1.6 * ratio;
            u.ctx.setLineDash([6 * ratio, 4 * ratio]);
            across(u, y);
            words(u, tr(limit.label), y, colours.bad, true, true);
          }
          u.ctx.restore();
        },
      ],
    },
  };
}

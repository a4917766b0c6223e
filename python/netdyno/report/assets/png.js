/** A plot as a picture: title, legend and what is drawn, on the paper of the page. */

import { tr } from "./i18n.js";
import { DASHES, theme } from "./theme.js";

const MARGIN = 14;

/**
 * @param {HTMLCanvasElement} plot what uPlot drew
 * @param {string} title
 * @param {{label: any, color: number, dash: number}[]} lines those that are shown
 * @returns {HTMLCanvasElement}
 */
export function picture(plot, title, lines) {
  const colours = theme();
  const ratio = devicePixelRatio;
  const made = document.createElement("canvas");
  const ctx = made.getContext("2d");
  const font = (size, weight = 400) => `${weight} ${size * ratio}px ${colours.font.replace(/^\S+ /, "")}`;
  // The legend wraps: its rows are known before the picture has a size, which would clear what is drawn.
  ctx.font = font(12);
  const width = plot.width + 2 * MARGIN * ratio;
  const rows = [[]];
  let x = MARGIN * ratio;
  for (const line of lines) {
    const text = tr(line.label);
    const needs = ctx.measureText(text).width + 50 * ratio;
    if (x + needs > width && rows.at(-1).length) {
      rows.push([]);
      x = MARGIN * ratio;
    }
    rows.at(-1).push({ line, text, x });
    x += needs;
  }
  const [above, row] = [34 * ratio, 20 * ratio];
  made.width = width;
  made.height = above + plot.height + rows.length * row + MARGIN * ratio;
  ctx.fillStyle = colours.paper;
  ctx.fillRect(0, 0, made.width, made.height);
  ctx.fillStyle = colours.text;
  ctx.font = font(14, 600);
  ctx.textBaseline = "middle";
  ctx.fillText(title, MARGIN * ratio, above / 2, width - 2 * MARGIN * ratio);
  ctx.drawImage(plot, MARGIN * ratio, above);
  ctx.font = font(12);
  ctx.lineWidth = 2 * ratio;
  rows.forEach((entries, i) => {
    const y = above + plot.height + (i + 0.5) * row;
    for (const { line, text, x: at } of entries) {
      ctx.strokeStyle = colours.lines[line.color];
      ctx.setLineDash(DASHES[line.dash].map((n) => n * ratio));
      ctx.beginPath();
      ctx.moveTo(at, y);
      ctx.lineTo(at + 24 * ratio, y);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.fillText(text, at + 32 * ratio, y);
    }
  });
  return made;
}

/** @param {HTMLCanvasElement} canvas @param {string} name */
export function savePicture(canvas, name) {
  canvas.toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }, "image/png");
}

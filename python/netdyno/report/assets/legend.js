/** The legend of a chart: switches lines on and off, and shows their values under the cursor. */

import { element } from "./i18n.js";
import { show } from "./format.js";
import { DASHES } from "./theme.js";

const SVG = "http://www.w3.org/2000/svg";

/** A short piece of the line itself, or one of its points. @param {{color: number, dash: number, points?: boolean, joined?: boolean}} line */
function swatch(line) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 8");
  svg.setAttribute("aria-hidden", "true");
  svg.classList.add(`ink-${line.color}`);
  const path = document.createElementNS(SVG, "path");
  if (line.points && !line.joined) {
    path.setAttribute("d", "M12 4h0.01");
    path.setAttribute("stroke-width", "7");
    path.setAttribute("stroke-linecap", "round");
  } else {
    path.setAttribute("d", "M0 4h24");
    path.setAttribute("stroke-dasharray", DASHES[line.dash].join(" "));
  }
  svg.append(path);
  return svg;
}

/**
 * @param {any[]} lines the lines of a view
 * @param {(index: number, on: boolean) => void} toggle
 */
export function legend(lines, toggle) {
  const list = document.createElement("ul");
  list.className = "legend";
  const values = lines.map((line, i) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.append(swatch(line), element("span", line.label));
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      toggle(i, on);
    });
    const value = document.createElement("span");
    value.className = "value";
    item.append(button, value);
    list.append(item);
    return value;
  });
  return {
    list,
    /** @param {number | null} index @param {string} unit */
    update(index, unit) {
      values.forEach((value, i) => {
        value.textContent = index === null ? "" : show(lines[i].values[index], unit);
      });
    },
  };
}

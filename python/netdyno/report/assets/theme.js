/** Colours and type of the charts, from the style sheet: light, dark and print each have their own. */

/** @type {Array<() => void>} */
const watchers = [];

/** Dash patterns: lines differ by more than their colour. */
export const DASHES = [[], [2, 3], [7, 4], [9, 3, 2, 3]];

export function theme() {
  const style = getComputedStyle(document.documentElement);
  const get = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  return {
    lines: [0, 1, 2, 3, 4, 5].map((i) => get(`--line-${i}`)),
    grid: get("--grid"),
    ink: get("--muted"),
    text: get("--ink"),
    bad: get("--bad"),
    shade: get("--shade"),
    paper: get("--paper"),
    font: `11px ${get("--sans")}`,
  };
}

/** @param {() => void} watcher called when the colours are others than before */
export function onTheme(watcher) {
  watchers.push(watcher);
}

const changed = () => watchers.forEach((watcher) => watcher());

export function startTheme() {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  addEventListener("beforeprint", () => {
    document.documentElement.dataset.print = "";
    // What is folded on a screen is read on paper.
    for (const details of document.querySelectorAll("details.folded:not([open])")) {
      details.dataset.unfolded = "";
      details.open = true;
    }
    changed();
  });
  addEventListener("afterprint", () => {
    delete document.documentElement.dataset.print;
    for (const details of document.querySelectorAll("details[data-unfolded]")) {
      delete details.dataset.unfolded;
      details.open = false;
    }
    changed();
  });
}

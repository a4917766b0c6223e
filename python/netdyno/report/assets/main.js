/** The page comes alive: language, colours, tables, downloads, then the charts of what is shown. */

import { startLanguage } from "./i18n.js";
import { startTheme } from "./theme.js";
import { startDownloads } from "./store.js";
import { startCopies } from "./copy.js";
import { figure } from "./figure.js";
import { startTables } from "./tables.js";
import { readFlows, flowTable } from "./flows.js";

const page = JSON.parse(document.getElementById("data")?.textContent ?? "{}");
const flows = readFlows(page.downloads);

/** Charts and devices of one trial, made when it is first shown. @param {Element} panel */
async function fill(panel) {
  if (panel.hasAttribute("data-filled")) return;
  panel.setAttribute("data-filled", "");
  const leg = Number(panel.getAttribute("data-leg"));
  const index = Number(panel.getAttribute("data-trial"));
  const trial = page.legs[leg].trials[index];
  panel.querySelector(".charts")?.append(...trial.charts.map((spec) => figure(spec, trial, panel.id)));
  const place = panel.querySelector(".flows");
  if (place) {
    const mine = (f) => f.repetition === page.indices[leg][index] && (!f.leg || f.leg === page.names[leg]);
    flowTable(place, (await flows).filter(mine));
  }
}

startTheme();
startLanguage(page.catalogues);
startTables();
startDownloads(page.downloads);
startCopies(page.copies ?? {});
for (const choice of document.querySelectorAll("[data-trials]")) {
  const leg = choice.getAttribute("data-trials");
  choice.addEventListener("change", (event) => {
    for (const panel of document.querySelectorAll(`.trial[data-leg="${leg}"]`)) {
      panel.toggleAttribute("hidden", panel.getAttribute("data-trial") !== event.target.value);
      if (!panel.hasAttribute("hidden")) fill(panel);
    }
  });
}
for (const place of document.querySelectorAll("[data-charts]")) {
  const nothing = { t: [], phases: [] };
  place.append(...page.charts[place.getAttribute("data-charts")].map((spec) => figure(spec, spec.trial ?? nothing, "")));
}
for (const folded of document.querySelectorAll(".leg > details")) {
  // what is folded has no width to draw in: it is filled when it opens
  folded.addEventListener("toggle", () => folded.open && folded.querySelectorAll(".trial:not([hidden])").forEach(fill));
}
const unfold = () => {
  const details = location.hash ? document.querySelector(`${CSS.escape(location.hash.slice(1)).replace(/^/, "#")} > details`) : null;
  if (details) details.open = true;
};
addEventListener("hashchange", unfold);
unfold();
const filled = [...document.querySelectorAll(".trial:not([hidden])")].filter((panel) => !panel.closest("details:not([open])")).map(fill);
Promise.all(filled).then(() => requestAnimationFrame(() => document.documentElement.setAttribute("data-ready", "")));

/** Texts to paste: shown in the page's language, and put on the clipboard at the press of a button. */

import { current, onLanguage, say } from "./i18n.js";

/** @param {string} text @returns {Promise<boolean>} whether it is on the clipboard */
async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // No clipboard for a page that came over plain HTTP: the old way needs something that is selected.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "sr";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** @param {Record<string, Record<string, string>>} texts name → language → text */
export function startCopies(texts) {
  const text = (name) => texts[name]?.[current()] ?? texts[name]?.en ?? "";
  const show = () => {
    for (const where of document.querySelectorAll("[data-copied]")) where.textContent = text(where.getAttribute("data-copied"));
  };
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const done = await toClipboard(text(button.getAttribute("data-copy")));
      const where = button.parentElement.querySelector(".said");
      say(where, done ? { t: "Copied." } : { t: "The browser did not allow it. Select the text below." });
      if (!done) button.parentElement.querySelector("details").open = true;
      button.focus();
    });
  }
  onLanguage(show);
  show();
}

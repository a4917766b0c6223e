/** Tables that sort by any column: by mouse, by keyboard, and told to screen readers. */

/** @param {HTMLTableCellElement} cell */
function key(cell) {
  const given = cell?.dataset.s ?? cell?.textContent?.trim() ?? "";
  const number = Number(given);
  return given !== "" && Number.isFinite(number) ? number : given;
}

/** Numbers before text, each in its own order. @param {string | number} a @param {string | number} b */
export function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

/** Mark the sorted column and give the new direction: 1 up, -1 down. @param {HTMLElement} head */
export function turn(head) {
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of head.parentElement?.children ?? []) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  return up ? 1 : -1;
}

export function startTables() {
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.querySelectorAll("thead th")];
    heads.forEach((head, column) => {
      head.querySelector("button")?.addEventListener("click", () => {
        const direction = turn(head);
        const body = table.querySelector("tbody");
        const rows = [...(body?.rows ?? [])];
        rows.sort((a, b) => direction * compare(key(a.cells[column]), key(b.cells[column])));
        body?.append(...rows);
      });
    });
  }
}

/** Numbers as people read them; the same rules as `units.py`. */

const THIN = "\u202f";
export const NONE = "–";
const BIG = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

/** @param {number} x @param {number} [digits] */
export function significant(x, digits = 3) {
  if (x === 0) return "0";
  const rounded = Number(x.toPrecision(digits));
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(rounded))));
  return group(rounded.toFixed(places));
}

/** @param {string} text */
function group(text) {
  const [whole, part] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return part ? `${grouped}.${part}` : grouped;
}

/** @param {number} ns */
function duration(ns, digits = 3) {
  const [scale, unit] = TIMES.find(([s]) => Math.abs(ns) >= Number(s)) ?? [1, "ns"];
  return `${significant(ns / Number(scale), digits)}${THIN}${unit}`;
}

/** @param {number} x @param {string} unit @param {number} digits */
function scaled(x, unit, digits) {
  const [scale, prefix] = BIG.find(([s]) => Math.abs(x) >= Number(s)) ?? [1, ""];
  return `${significant(x / Number(scale), digits)}${THIN}${prefix}${unit}`;
}

/** A value with its unit. @param {number | null | undefined} x @param {string} unit */
export function show(x, unit) {
  if (x === null || x === undefined || !Number.isFinite(x)) return NONE;
  switch (unit) {
    case "id":
      return String(x);
    case "ns":
      return duration(x);
    case "/s":
      return Math.abs(x) < 1e5 ? `${significant(x, Math.abs(x) < 1000 ? 3 : 4)}${THIN}/s` : scaled(x, "/s", 4);
    case "number":
      return significant(x, 4);
    case "cpu":
    case "ratio":
      return `${significant(x * 100)}${THIN}%`;
    case "B/s":
    case "bit/s":
      return scaled(x, unit, 3);
    case "s":
      return `${significant(x, x < 10 ? 2 : 4)}${THIN}s`;
    default:
      return group(String(Math.round(x)));
  }
}

/** The same for an axis: no trailing zeros. @param {number | null} x @param {string} unit */
export function tick(x, unit) {
  if (x === null || x === undefined) return "";
  const trim = (/** @type {string} */ text) => text.replace(/(\.\d*?)0+(?=\u202f|$)/, "$1").replace(/\.(?=\u202f|$)/, "");
  if (unit === "count" || unit === "number") return trim(scaled(x, "", 3)).replace(/\u202f$/, "");
  if (unit === "/s") return x === 0 ? "0" : trim(scaled(x, "", 3)).replace(/\u202f$/, "");
  if (x === 0) return "0";
  return trim(show(x, unit));
}

/** A percentile for the x of a curve, `1 / (1 - quantile)`. @param {number | null} x */
export function percentile(x) {
  if (x === null) return "";
  const nines = Math.log10(x);
  const places = Math.max(0, Math.ceil(nines - 2 - 1e-9));
  return `${(100 - 100 / x).toFixed(x < 10 ? 0 : places)}${THIN}%`;
}

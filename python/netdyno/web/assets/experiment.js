/** What the builder has for experiments: documents to begin with, topologies to choose from, and paths of factors. */

import { fits } from "./schema.js";

const thresholds = [{ metric: "web.errors", max: 0 }];

/** @param {string} target */
const profile = (target) => ({
  name: "web",
  phases: { warmup: "1s", measure: "5s" },
  targets: { web: target },
  groups: [{ name: "web", target: "web", devices: 10, model: { http: { path: "/512", interval: "100ms" } } }],
  thresholds,
});

/** @param {any} [impair] */
const cable = (impair) => ({
  hosts: { gen: { role: "generator" }, server: {} },
  links: [
    {
      a: { host: "gen", addresses: ["10.93.1.1/24"] },
      b: { host: "server", addresses: ["10.93.1.2/24"] },
      ...(impair ? { impair } : {}),
    },
  ],
});

const delayed = { a_to_b: { delay: { constant: "5ms" } }, b_to_a: { delay: { constant: "5ms" } } };

/** @param {any} leg @param {any} factors */
const experiment = (leg, factors) => ({ format: "netdyno-experiment/1", name: "my-experiment", repeat: 3, order: "interleaved", factors, legs: [leg] });

/** Documents to begin with. */
export const TEMPLATES = {
  web: {
    label: { t: "a web server and two hosts" },
    make: () =>
      experiment(
        { name: "web", profile: profile("http://10.93.1.2/"), topology: cable(), duts: { web: { driver: "http-server", host: "server" } } },
        { "profile.groups.web.model.http.interval": ["100ms", "50ms"] },
      ),
  },
  path: {
    label: { t: "an impaired link" },
    make: () =>
      experiment(
        { name: "web", profile: profile("http://10.93.1.2/"), topology: cable(delayed), duts: { web: { driver: "http-server", host: "server" } } },
        { "topology.links.0.impair.a_to_b.delay.constant": ["5ms", "20ms"] },
      ),
  },
  here: {
    label: { t: "a server of this machine" },
    make: () => experiment({ name: "web", profile: profile("http://127.0.0.1:8080/") }, { "trial.load": [1, 2] }),
  },
};

/** Topologies to choose from. */
export const TOPOLOGIES = {
  none: { label: { t: "this machine as it is" }, make: () => undefined },
  cable: { label: { t: "two hosts and a cable" }, make: () => cable() },
  impaired: { label: { t: "two hosts and an impaired link" }, make: () => cable(delayed) },
};

/** The experiment with a topology in each leg, and its devices under test where they can stand. @param {any} document @param {string} name */
export function placed(document, name) {
  const legs = Array.isArray(document.legs) ? document.legs : [];
  return {
    ...document,
    legs: legs.map((/** @type {any} */ leg) => {
      const { topology: _, ...rest } = leg;
      const made = TOPOLOGIES[name].make();
      const duts = Object.entries(fits("map", leg.duts) ? (leg.duts ?? {}) : {}).map(([dut, spec]) => {
        const { host: __, ...own } = /** @type {any} */ (spec);
        return [dut, made ? { ...own, host: "server" } : own];
      });
      return { ...rest, ...(made ? { topology: made } : {}), ...(duts.length ? { duts: Object.fromEntries(duts) } : {}) };
    }),
  };
}

/** Places of a document that a factor may lead to. @param {any} document @returns {string[]} */
export function factorPaths(document) {
  /** @type {Set<string>} */
  const found = new Set(["trial.load", "trial.measure"]);
  /** @param {any} value @param {string} path */
  const walk = (value, path) => {
    if (value === null || typeof value !== "object") found.add(path);
    else for (const [key, one] of Object.entries(value)) walk(one, `${path}.${Array.isArray(value) && one && typeof one === "object" && one.name ? one.name : key}`);
  };
  for (const leg of Array.isArray(document?.legs) ? document.legs : []) {
    if (leg?.profile && typeof leg.profile === "object") walk(leg.profile, "profile");
    for (const [name, dut] of Object.entries(leg?.duts ?? {})) walk(/** @type {any} */ (dut)?.options ?? {}, `duts.${name}`);
    if (leg?.topology) walk(leg.topology.links ?? [], "topology.links");
  }
  return [...found].filter((path) => !path.startsWith("profile.thresholds")).slice(0, 300);
}

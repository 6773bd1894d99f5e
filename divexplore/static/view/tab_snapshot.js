// Snapshot: what was asked for, what ran, and where; what differs is bright.

import { element, OWN_KEYS } from "./dom.js";

export const snapshotTab = { name: "Snapshot", present: () => true, make: (view) => new SnapshotTab(view) };

/** Names of both mappings, those that differ first, each with both values. */
export function pairs(a, b) {
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  const rows = names.map((name) => ({ name, a: a[name] ?? "—", b: b[name] ?? "—", differs: a[name] !== b[name] }));
  return [...rows.filter((row) => row.differs), ...rows.filter((row) => !row.differs)];
}

class SnapshotTab {
  constructor(view) {
    const { a, b } = view.comparison;
    const { header } = view.comparison;
    const environment = pairs(a.facts.environment, b.facts.environment);
    const differing = environment.filter((row) => row.differs).length;
    this.element = element(
      "div.dx-snapshot",
      {},
      element("p.dx-lead", {
        text: `${header.model.name} · ${promptWords(header.prompt.ids)} · A ended by ${a.facts.finish_reason} after ${a.steps} steps, B by ${b.facts.finish_reason} after ${b.steps}`,
      }),
      ...warnings(a, b),
      table("Configuration that ran", configuration(a.facts, b.facts)),
      element(
        "details",
        { open: differing > 0 },
        element("summary", {
          text: `Environment: ${environmentWords(environment.length, differing)}`,
          ...OWN_KEYS,
        }),
        table("Versions, processor, start variables", environment),
      ),
    );
  }

  show() {}
}

function promptWords(ids) {
  return ids.length ? `prompt of ${ids.length} tokens` : "prompt without recorded ids";
}

function environmentWords(known, differing) {
  if (!known) return "not recorded";
  return differing ? `${differing} differ` : "the same on both sides";
}

function configuration(a, b) {
  return pairs(a.effective, b.effective).map((row) => ({
    ...row,
    a: withRequest(row.a, a.requested[row.name]),
    b: withRequest(row.b, b.requested[row.name]),
  }));
}

/** What ran, and what was asked for where that is something else. */
function withRequest(ran, asked) {
  return asked === undefined || asked === ran ? ran : `${ran} (asked: ${asked})`;
}

function warnings(a, b) {
  const lines = [
    ["A", a],
    ["B", b],
  ].flatMap(([name, side]) => side.facts.warnings.map((text) => element("li", { text: `${name}: ${text}` })));
  return lines.length ? [element("ul.dx-warnings", {}, ...lines)] : [];
}

function table(title, rows) {
  const heads = ["", "A", "B"].map((text) => (text ? element("th", { scope: "col", text }) : element("td")));
  const body = rows.map((row) =>
    element(
      `tr${row.differs ? ".dx-bright" : ""}`,
      {},
      element("th", { scope: "row", text: row.name.replaceAll("_", " ") }),
      value(row.a),
      value(row.b),
    ),
  );
  return element(
    "table.dx-table.dx-facts",
    {},
    element("caption", { text: title }),
    element("thead", {}, element("tr", {}, ...heads)),
    element("tbody", {}, ...body),
  );
}

function value(text) {
  return element("td", {}, element("bdi", { text }));
}

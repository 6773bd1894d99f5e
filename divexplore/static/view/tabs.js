// The tabs below the streams: a list of modules, each `{ name, present(comparison), make(view, signal) }`; what `make`
// gives has an `element`, `show(column)` and, where it has a chart, `draw()` and `resize()` for another width of the view.
// A tab whose part was not measured is absent.

import { button, element, freshId } from "./dom.js";
import { cascadeTab } from "./tab_cascade.js";
import { causeTab } from "./tab_cause.js";
import { logitsTab } from "./tab_logits.js";
import { snapshotTab } from "./tab_snapshot.js";

const TABS = [logitsTab, cascadeTab, causeTab, snapshotTab];

export class Tabs {
  constructor(view, actions, signal) {
    this.view = view;
    this.signal = signal;
    this.list = element("div.dx-tablist", { role: "tablist", "aria-label": "Details of the selected column" });
    this.element = element("div.dx-tabs", {}, element("div.dx-tabs-head", {}, this.list, actions));
    this.tabs = TABS.filter((tab) => tab.present(view.comparison)).map((tab) => this.add(tab));
    this.list.addEventListener("keydown", (event) => this.pressed(event), { signal });
    this.follow();
  }

  add(definition) {
    const ids = { tab: freshId("tab"), panel: freshId("panel") };
    const head = button(definition.name, {
      id: ids.tab,
      role: "tab",
      "aria-controls": ids.panel,
      signal: this.signal,
      on: { click: () => this.choose(tab) },
    });
    const panel = element("div.dx-panel", { id: ids.panel, role: "tabpanel", "aria-labelledby": ids.tab });
    const tab = { definition, head, panel, content: null };
    this.list.append(head);
    this.element.append(panel);
    return tab;
  }

  /** A person opens a tab: the model hears of it, so that other displays follow and the tab outlives a new comparison. */
  choose(tab) {
    this.view.model.set("tab", tab.definition.name);
    this.view.model.save_changes();
  }

  /** Open the tab that the model names; the first where it names none that is here. */
  follow() {
    const name = this.view.model.get("tab");
    this.open(this.tabs.find((tab) => tab.definition.name === name) ?? this.tabs[0]);
  }

  open(tab) {
    this.current = tab;
    for (const one of this.tabs) {
      one.head.setAttribute("aria-selected", String(one === tab));
      one.head.setAttribute("tabindex", one === tab ? "0" : "-1");
      one.panel.hidden = one !== tab;
    }
    if (!tab.content) {
      tab.content = tab.definition.make(this.view, this.signal);
      tab.panel.append(tab.content.element);
      if (this.drawn) tab.content.draw?.();
    }
    if (this.column !== undefined) tab.content.show(this.column);
  }

  /** Draw the charts; called once the streams are painted. */
  draw() {
    this.drawn = true;
    for (const tab of this.tabs) tab.content?.draw?.();
  }

  /** The view has another width. */
  resize() {
    for (const tab of this.tabs) tab.content?.resize?.();
  }

  show(column) {
    this.column = column;
    this.current.content.show(column);
  }

  pressed(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const next = this.tabs[(this.tabs.indexOf(this.current) + step + this.tabs.length) % this.tabs.length];
    this.choose(next);
    next.head.focus();
  }
}

// The header: what a table is, how it is, and the line on which its records lie. And the tabs.

import { bandOf, drawSpine } from "./bands.js";
import { button, clipped, h, icon, refill, roving, stateMark } from "./dom.js";
import { age, number } from "./figures.js";
import { PAGE_TITLES, STATES } from "./tree.js";

export class Header {
  constructor(explorer, tabs, menu) {
    this.explorer = explorer;
    this.tabs = tabs;
    this.title = h("h2", { class: "fx-path" });
    this.marks = h("span", { class: "fx-marks" });
    this.tail = button("Tail", { icon: "tail", on: () => explorer.openTail() });
    this.acts = h("span", { class: "fx-row" }, explorer.actions.button("round", { stays: true }), this.tail);
    this.facts = h("dl", { class: "fx-facts" });
    this.spine = h("div");
    this.head = h("div", { class: "fx-h" }, h("div", { class: "fx-h1" }, menu, this.title, this.marks, h("span", { class: "sp" }), this.acts), this.facts, this.spine);
    this.list = h("div", { class: "fx-tabs", role: "tablist" }, tabs.map(([key, text], at) => h(
      "button",
      { type: "button", role: "tab", id: `fx-${explorer.id}-tab-${key}`, "aria-controls": `fx-${explorer.id}-panel`, onclick: () => explorer.openTab(key),
        onkeydown: (event) => roving(event, tabs.length, at, (to) => {
          explorer.openTab(tabs[to][0]);
          this.focusTab();
        }) },
      text,
    )));
    this.root = h("div", { class: "fx-top" }, this.head, this.list);
    this.widest = [];
  }

  focusTab() {
    this.list.querySelector('[aria-selected="true"]').focus();
  }

  /** Another table: what was the widest fact of the last one does not count. */
  reset() {
    this.widest = [];
  }

  draw() {
    const { explorer } = this, { head } = explorer.data, { path } = explorer;
    this.list.hidden = !path || Boolean(explorer.dropped) || Boolean(explorer.page);
    this.facts.hidden = this.spine.hidden = this.acts.hidden = this.list.hidden;
    this.tail.disabled = !head || Boolean(explorer.away || explorer.isAlone);
    explorer.actions.draw();
    this.list.setAttribute("aria-label", `Views of ${path}`);
    this.tabs.forEach(([key], at) => {
      const isShown = explorer.tab === key;
      this.list.children[at].setAttribute("aria-selected", String(isShown));
      this.list.children[at].tabIndex = isShown ? 0 : -1;
    });
    if (explorer.page || !path) {
      refill(this.title, explorer.page ? PAGE_TITLES[explorer.page] : "No table");
      refill(this.marks);
      return;
    }
    const cut = path.indexOf(".");
    refill(this.title, h("span", { class: "db" }, path.slice(0, cut + 1)), clipped(path.slice(cut + 1)));
    if (explorer.dropped) return void refill(this.marks, stateMark("off", "dropped"));
    refill(this.marks, head ? this.badges(head) : null);
    this.drawFacts(head);
    this.drawSpine(head);
  }

  badges(head) {
    const { explorer } = this, stamp = explorer.away || explorer.isAlone;
    const kind = head.kind === "pk" ? `primary key ${head.key.join(", ")}` : "log table";
    const state = stamp ? h("span", { class: "st mut" }, h("span", { class: "dot off" }), `as of ${explorer.when(explorer.headAt)}`)
      : head.action === "round" || head.tiering === "Tiering" || (explorer.actions.run && explorer.actions.run.kind === "round") ? stateMark("run", "tiering")
      : head.lake_enabled || head.state === "bad" ? stateMark(...STATES[head.state]) : h("span", { class: "st mut" }, h("span", { class: "dot off" }), "not in the lake");
    if (head.trouble && !stamp) state.title = head.trouble;
    return [h("span", { class: "tag hide-n cut" }, icon(head.kind), kind), state];
  }

  drawFacts(head) {
    const lake = head && head.lake_enabled;
    const least = head && !head.lag_complete ? "≥ " : "";
    const late = head && (head.state === "warn" || head.state === "bad") ? head.state : null;
    const facts = [
      [head && head.kind === "pk" ? "Changes" : "Rows", head ? number(head.rows) : ""],
      ["Lake", lake ? number(head.lake_rows) : "–", "lake"],
      ["Log", head ? (head.log_records == null ? "not known" : number(head.log_records)) : "", "log"],
      ["Only in the log", lake ? [least + number(head.lag_records), h("small", null, ({ 0: "", 1: " record" })[head.lag_records] ?? " records")] : "–"],
      ["Lag", lake ? [h("span", { class: late }, age(head.lag_ms)), h("small", null, head.freshness_ms == null ? "" : ` of ${age(head.freshness_ms)}`)] : "–"],
      ["Last round", head && head.last_round_ms ? [age(head.now_ms - head.last_round_ms), h("small", null, " ago")] : "none"],
    ];
    refill(this.facts, facts.map(([name, value, key]) => h("div", null, h("dt", null, key ? h("i", { class: `key k-${key}` }) : null, name), h("dd", null, value))));
    // A fact's width is that of the widest value seen: nothing moves when one changes.
    [...this.facts.children].forEach((fact, at) => {
      this.widest[at] = Math.max(this.widest[at] || 0, Math.ceil(fact.getBoundingClientRect().width));
      fact.style.minWidth = `${this.widest[at]}px`;
    });
  }

  drawSpine(head) {
    const { buckets } = this.explorer.data;
    const key = JSON.stringify([buckets && buckets.rows, head && head.rows]);
    if (key === this.spineKey) return;
    this.spineKey = key;
    const label = head ? `${number(head.lake_rows)} of ${number(head.rows)} records in the lake, ${number(head.log_records)} in the log` : "";
    refill(this.spine, buckets ? drawSpine(buckets.rows.map((row) => bandOf(row)).filter((band) => band.known), label) : h("div", { class: "fx-spine" }));
  }
}

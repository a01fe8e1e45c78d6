// The screen Diff: what was added, removed and changed between two moments.

import { button, field, h, refill, segmented, shownValue } from "../parts/dom.js";
import { age, number, plural } from "../parts/figures.js";

const SIGNS = { added: "+I", removed: "-D", changed: "+U" };
/** A comparison that takes longer says how far it is. */
const PROGRESS_MS = 300;
/** Characters of a value that are shown; of one that changed fewer, since what it was stands beside it. */
const LONG = 60, HALF = 32;
/** Snapshots that are offered as moments: the newest. */
const OFFERED_MAX = 50;

const part = (text, from, length) => (text == null ? text : `${from ? "…" : ""}${text.slice(from, from + length)}${text.length > from + length ? "…" : ""}`);

/** Where two long values begin to be shown: not far before they differ. */
function beginOf(one, other) {
  if (one == null || other == null) return 0;
  let at = 0;
  while (at < one.length && one[at] === other[at]) at++;
  return at + 8 > HALF ? at - 8 : 0;
}

export class Diff {
  constructor(explorer) {
    this.explorer = explorer;
    this.rows = { added: null, removed: null, changed: null };
    this.moments = h("datalist", { id: `fx-${explorer.id}-moments` });
    this.before = this.momentField("Before: a time, or the id of a lake snapshot", "10 minutes ago", "when");
    this.after = this.momentField("After: a time, the id of a lake snapshot, or now", "now", "short");
    this.bar = h("div", { class: "bar" });
    this.status = h("div", { class: "status", role: "status" });
    this.list = h("div", { class: "fx-scroll", tabindex: 0, role: "region", "aria-label": "Rows that differ" });
    this.root = h("div", { class: "fx-col" }, this.bar, this.status, this.list, this.moments);
    this.makeBar();
    this.drawStart();
  }

  momentField(label, placeholder, kind) {
    const made = field({ class: `mono ${kind}`, label, placeholder, onkeydown: (event) => event.key === "Enter" && this.compare() });
    made.setAttribute("list", `fx-${this.explorer.id}-moments`);
    return made;
  }

  show() {
    const { explorer } = this;
    explorer.setCode(this.code, this);
    this.askMoments();
  }

  update(what) {
    if (what === "head") this.askMoments();
  }

  askMoments() {
    const { explorer } = this;
    if (this.isOffered || !explorer.data.head.lake_enabled || explorer.channel.isWaiting("diff_moments") || !explorer.channel.pauses.isDue("diff_moments")) return;
    explorer.ask("diff_moments", "lake", {}, (answer) => {
      this.isOffered = !answer.error || !answer.error.retriable;
      if (!answer.error) this.offer(answer.snapshots);
    });
  }

  /** Offers the lake's snapshots as moments; the newest is the one to begin with. */
  offer(snapshots) {
    refill(this.moments, h("option", { value: "now" }), snapshots.slice(-OFFERED_MAX).reverse().map(([id, time, operation, ours]) =>
      h("option", { value: id, label: `${this.explorer.when(time)} ${ours ? "round" : operation}` })));
    if (snapshots.length && !this.before.value && !this.found) this.before.value = snapshots.at(-1)[0];
  }

  /** Compares a moment with now. */
  openAt(before) {
    this.before.value = before;
    this.after.value = "";
    this.compare();
  }

  makeBar() {
    const { found } = this, focused = this.bar.contains(document.activeElement) ? document.activeElement : null;
    const kinds = found ? segmented("Changes", ["added", "removed", "changed"].filter((kind) => found.keyed || kind !== "changed").map((kind) => [kind, `${kind[0].toUpperCase()}${kind.slice(1)} ${number(found.counts[kind])}`]), this.kind, (kind) => {
      this.kind = kind;
      this.drawKind();
    }) : null;
    const run = this.isRunning ? button("Cancel", { icon: "x", key: "run", on: () => this.cancel() }) : button("Compare", { class: "pri", key: "run", on: () => this.compare() });
    refill(this.bar, h("span", { class: "mut sm hide-l" }, "before"), this.before, h("span", { class: "mut", "aria-hidden": "true" }, "→"), h("span", { class: "mut sm hide-l" }, "after"), this.after,
      button("Swap", { class: "hide-n", key: "swap", on: () => this.swap() }), run, h("span", { class: "sp" }), kinds);
    if (focused) (this.bar.contains(focused) ? focused : this.bar.querySelector(`[data-key="${focused.dataset.key}"]`))?.focus();
  }

  swap() {
    const { before, after } = this;
    [before.value, after.value] = [after.value.trim() || "now", before.value.trim() === "now" ? "" : before.value];
    if (this.found) this.compare();
  }

  // -- comparing -----------------------------------------------------------------------------------------------------

  compare() {
    const before = this.before.value.trim(), after = this.after.value.trim();
    if (!before || this.explorer.isAlone) return this.before.focus();
    this.isRunning = true;
    this.asked = Date.now();
    this.makeBar();
    refill(this.status);
    clearTimeout(this.late);
    this.late = setTimeout(() => this.drawProgress(), PROGRESS_MS);
    this.progress = null;
    return this.explorer.ask("diff", "diff", { op: "run", before, after }, (answer) => {
      if (answer.progress) {
        this.progress = answer.progress;
        if (Date.now() - this.asked >= PROGRESS_MS) this.drawProgress();
        return;
      }
      this.over();
      if (answer.error) this.failed(answer.error);
      else this.took(answer);
    });
  }

  over() {
    clearTimeout(this.late);
    this.isRunning = false;
    this.makeBar();
  }

  cancel() {
    this.explorer.ask("diff", "diff", { op: "stop" }, () => {});
    this.over();
    this.drawStatus();
    if (!this.found) refill(this.status, h("span", null, "Cancelled: nothing was compared."));
    this.explorer.say("Cancelled");
  }

  drawProgress() {
    const [records, done, all] = this.progress || ["0", 0, 0];
    refill(this.status, h("span", null, `Comparing ${this.explorer.path} at two moments …`), h("span", null, h("b", null, number(records)), " records read"),
      all ? h("span", { class: "st" }, `${number(done)} of ${plural(all, "bucket")}`, h("span", { class: "prog", role: "progressbar", "aria-label": "Buckets compared", "aria-valuemin": 0, "aria-valuemax": all, "aria-valuenow": done }, h("i", { style: { width: `${(done / all) * 100}%` } }))) : null);
  }

  failed(error) {
    this.found = null;
    this.code = [];
    this.explorer.setCode(this.code, this);
    this.makeBar();
    refill(this.status);
    refill(this.list, this.explorer.errorView(error, () => this.compare(), "The two moments cannot be compared"));
  }

  took(answer) {
    this.found = answer;
    this.rows = { added: null, removed: null, changed: null };
    const has = (kind) => answer.counts[kind] !== "0";
    const wanted = this.kind && has(this.kind) ? this.kind : ["changed", "added", "removed"].find(has);
    this.kind = wanted || (answer.keyed ? "changed" : "added");
    this.makeBar();
    this.drawStatus();
    this.drawKind();
    this.explorer.say(["added", "removed", "changed"].map((kind) => `${number(answer.counts[kind])} ${kind}`).join(", "));
  }

  // -- what came of it -----------------------------------------------------------------------------------------------

  drawStart() {
    refill(this.list, h("div", { class: "empty" }, h("h3", null, "Two moments of the table"), h("p", null, "Rows that were added, removed or changed from one to the other: a time, the id of a lake snapshot, or now. Nothing is read before Compare.")));
  }

  drawStatus() {
    const { found } = this;
    if (!found) return refill(this.status);
    const { counts, moments, lake, log } = found, total = BigInt(counts.added) + BigInt(counts.removed) + BigInt(counts.changed), between = age(Math.abs(moments[1] - moments[0]));
    const what = found.keyed ? (total === 1n ? " key differs" : " keys differ") : counts.removed !== "0" ? " rows are not there after" : " rows were added";
    return refill(this.status, h("span", null, h("b", null, number(total)), what), h("span", null, `${between} between`),
      h("span", { class: "hide-n" }, found.keyed ? `${number(BigInt(lake) + BigInt(log))} records between them, lake ${number(lake)}, log ${number(log)}` : "a log table only grows"),
      found.hidden ? h("span", { class: "hide-n" }, "hidden columns count") : null, h("span", { class: "sp" }),
      this.kind === "changed" && counts.changed !== "0" ? h("span", { class: "st" }, h("span", { class: "old" }, "before"), h("mark", { class: "alone" }, "after")) : null);
  }

  drawKind() {
    this.drawStatus();
    const known = this.rows[this.kind];
    if (known) {
      this.code = known.code;
      this.explorer.setCode(this.code, this);
      this.drawRows();
    } else this.more();
  }

  /** Asks for the next rows of the kind that is shown. */
  more() {
    const { kind, found } = this, known = this.rows[kind];
    if (!known) refill(this.list, h("p", { class: "sm mut pad" }, "Reading the rows …"));
    this.explorer.ask("diff_rows", "diff_rows", { diff: found.diff, change: kind, first: known ? known.cells.length : 0 }, (answer) => {
      if (this.found !== found) return;
      if (answer.error) return void refill(this.list, this.explorer.errorView(answer.error, () => this.compare(), "The rows cannot be shown"));
      const all = this.rows[kind];
      if (answer.from === 0 || !all) this.rows[kind] = answer;
      else for (const name of ["rows", "cells", "old"]) if (all[name]) all[name] = [...all[name], ...answer[name]];
      this.code = answer.code;
      this.explorer.setCode(this.code, this);
      if (this.kind === kind) this.drawRows();
    });
  }

  drawRows() {
    const { kind, found } = this, known = this.rows[kind];
    if (found.counts[kind] === "0") {
      refill(this.list, h("div", { class: "empty" }, h("h3", null, `No row was ${kind}`), h("p", null, "Rows that are the same at both moments are left out.")));
      return;
    }
    const where = this.list.scrollTop, hadFocus = this.list.contains(document.activeElement), isMore = known.cells.length < known.total;
    refill(this.list, this.table(known), isMore || known.total < Number(found.counts[kind]) || known.columns_left_out ? h("div", { class: "fx-row pad" }, this.leftOut(known), isMore ? button("Show more", { class: "sm", key: "more", on: () => this.more() }) : null) : null);
    this.list.scrollTop = where;
    if (hadFocus) (this.list.querySelector('[data-key="more"]') || this.list).focus();
  }

  leftOut(known) {
    const all = this.found.counts[this.kind], rows = String(known.cells.length) === all ? "" : `The first ${number(known.cells.length)} of ${number(all)}. `;
    const columns = known.columns_left_out ? `${plural(known.columns_left_out, "column")} left out. ` : "";
    return h("span", { class: "sm mut" }, `${rows}${columns}The Python line gives all.`);
  }

  table({ columns, rows, cells, old }) {
    const kinds = new Map((this.explorer.data.schema ? this.explorer.data.schema.columns : []).map((column) => [column.name, column.kind]));
    const parted = rows.some(([partition]) => partition != null), sign = this.found.keyed ? SIGNS[this.kind] : this.kind === "added" ? "+A" : "-D";
    const before = (old || []).map((list) => new Map(list)), align = (name) => (kinds.get(name) === "number" ? "num" : "");
    return h("table", { class: "fx-t d" }, h("caption", { class: "vh" }, `Rows ${this.kind}`),
      h("thead", null, h("tr", null, h("th", { scope: "col" }, h("span", { class: "vh" }, "change")), columns.map((name) => h("th", { scope: "col", class: align(name) }, name)),
        parted ? h("th", { scope: "col", class: "hide-n" }, "partition") : null, h("th", { scope: "col", class: "num hide-n" }, "bucket"), h("th", { scope: "col", class: "num hide-n" }, "offset"))),
      h("tbody", null, cells.map((row, at) => h("tr", null, h("td", null, h("span", { class: `ct ${sign[1]}` }, sign)),
        row.map((text, k) => h("td", { class: align(columns[k]) }, this.cell(text, before[at], k))),
        parted ? h("td", { class: "hide-n" }, rows[at][0]) : null, h("td", { class: "num hide-n" }, String(rows[at][1])), h("td", { class: "num hide-n" }, number(rows[at][2]))))));
  }

  /** A value; of a changed row, what it was struck and what it is marked, and what stayed without weight. */
  cell(text, before, k) {
    if (!before) return shownValue(part(text, 0, LONG));
    if (!before.has(k)) return h("span", { class: "mut" }, shownValue(part(text, 0, LONG)));
    const from = beginOf(before.get(k), text);
    return h("span", { class: "fx-both" }, h("span", { class: "old" }, shownValue(part(before.get(k), from, HALF))), h("mark", { class: "alone" }, shownValue(part(text, from, HALF))));
  }

  close() {
    clearTimeout(this.late);
    if (this.isRunning) this.cancel();
  }
}

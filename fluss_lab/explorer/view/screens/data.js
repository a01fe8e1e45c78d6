// The screen Data: rows of the union read at one read point, a condition, a moment, and where a row came from.

import { columnHead } from "../parts/column_head.js";
import { button, field, h, icon, pairs, refill, segmented, shownValue, sourceMark } from "../parts/dom.js";
import { age, clock, number, plural } from "../parts/figures.js";
import { Grid } from "../parts/grid.js";
import { PAGE_ROWS, RowStore } from "../parts/row_store.js";

const FACTS_MAX = 40;
/** Columns beside those in view that come with a page. */
const BESIDE = 10;
const SKELETON_MS = 120;

export class Data {
  constructor(explorer) {
    this.explorer = explorer;
    this.where = "";
    this.good = { where: "", asOf: null };
    this.asOf = null;
    this.mode = "now";
    this.hidden = new Set();
    this.store = new RowStore();
    this.facts = new Map();
    this.chosen = null;
    this.bar = h("div", { class: "bar" });
    this.slider = h("div", { class: "bar low", hidden: true });
    this.status = h("div", { class: "status", role: "status" });
    this.pageText = h("span");
    this.side = h("aside", { class: "fx-side", "aria-label": "Row", hidden: true, onkeydown: (event) => event.key === "Escape" && this.closeRow() });
    this.grid = new Grid({
      id: `fx-${explorer.id}`, label: `Rows of ${explorer.path}`, gutterWidth: 112,
      gutterHead: () => h("div", { class: "fx-gc" }, h("div", { class: "n" }, "_source"), h("div", { class: "y" }, "and row")),
      gutter: (i) => {
        const row = this.store.row(i);
        return row && h("span", { class: "fx-gutter" }, sourceMark(row.source), h("span", { class: "mut xs" }, number(i + 1)));
      },
      headVersion: () => `${this.point ? this.point.name : ""} ${this.facts.size}`,
      head: (column) => columnHead(column, this.facts.get(column.name), (condition) => this.addCondition(condition)),
      cell: (i, column) => {
        const text = this.store.text(i, column.name);
        return text === undefined ? undefined : this.store.isCut(i, column.name) ? `${text}…` : shownValue(text);
      },
      open: (i) => this.openRow(i), close: () => this.closeRow(), seen: (first, last, missing) => this.seen(first, last, missing),
    });
    this.place = h("div", { class: "fx-place" });
    this.root = h("div", { class: "fx-col" }, this.bar, this.slider, this.status, h("div", { class: "fx-split v" }, this.place, this.side));
    this.makeBar();
  }

  show() {
    this.explorer.setCode(this.chosen ? this.rowCode : this.code);
    if (!this.point && !this.explorer.channel.isWaiting("page")) this.readAgain();
    this.grid.later();
  }

  update(what) {
    if (what === "schema") this.columnsChanged();
    const { head } = this.explorer.data;
    if (what === "head" && this.point && this.total === 0 && !this.where && !this.asOf && head.rows !== "0") this.readAgain();
  }

  // -- the toolbar ---------------------------------------------------------------------------------------------------

  makeBar() {
    this.input = field({
      class: "mono grow", label: "Filter", placeholder: this.example(), key: "where",
      onkeydown: (event) => event.key === "Enter" && this.apply(), onchange: () => this.apply(),
    });
    this.time = field({
      class: "mono when", label: "Moment: a time, or the id of a lake snapshot", placeholder: "10 minutes ago", key: "when",
      onkeydown: (event) => event.key === "Enter" && this.applyTime(), onchange: () => this.applyTime(),
    });
    this.time.hidden = true;
    const modes = [["now", "Now"], ["time", "Time"]];
    if (this.explorer.data.head && this.explorer.data.head.lake_enabled) modes.push(["snap", "Snapshot"]);
    this.columnsButton = button("Columns", { icon: "cols", expanded: "false", on: () => this.togglePopover() });
    refill(this.bar, h("label", { class: "mut sm" }, "where"), this.input, segmented("As of", modes, this.mode, (mode) => this.setMode(mode)), this.time, this.columnsButton);
    this.columnsText();
  }

  example() {
    const columns = this.explorer.data.schema ? this.explorer.data.schema.columns : [];
    const numeric = columns.find((column) => column.kind === "number"), text = columns.find((column) => column.kind === "text");
    return [numeric && `${numeric.name} > 60`, text && `${text.name} = '…'`].filter(Boolean).join(" and ") || "a condition, as in SQL";
  }

  apply() {
    if (this.input.value.trim() === this.where) return;
    this.where = this.input.value.trim();
    this.readAgain();
  }

  addCondition(condition) {
    const before = this.input.value.trim();
    this.input.value = before ? `${/\bor\b/i.test(before) ? `(${before})` : before} and ${condition}` : condition;
    this.apply();
  }

  setMode(mode) {
    this.mode = mode;
    this.time.hidden = mode !== "time";
    this.slider.hidden = mode !== "snap";
    if (mode === "now") this.setMoment(null);
    else if (mode === "snap") this.askSnapshots();
    else this.time.focus();
  }

  applyTime() {
    if (this.mode === "time" && this.time.value.trim()) this.setMoment(this.time.value.trim());
  }

  setMoment(asOf) {
    if (asOf === this.asOf) return;
    this.asOf = asOf;
    this.readAgain();
  }

  /** Shows the rows of a lake snapshot. */
  openSnapshot(id) {
    this.mode = "snap";
    this.makeBar();
    this.input.value = this.where;
    this.slider.hidden = false;
    this.setMoment(id);
    this.askSnapshots();
  }

  askSnapshots() {
    this.explorer.ask("snapshots", "snapshots", {}, (answer) => {
      if (answer.error) return this.failed(answer.error);
      this.snapshots = answer.snapshots;
      return this.drawSlider();
    });
  }

  drawSlider() {
    const { snapshots, explorer } = this;
    if (!snapshots.length) {
      refill(this.slider, h("span", { class: "mut sm" }, "The lake has no snapshot of this table yet."));
      return;
    }
    const at = Math.max(0, snapshots.findIndex(([id]) => id === this.asOf));
    const begin = this.asOf && snapshots[at][0] === this.asOf ? at : snapshots.length - 1;
    const time = (k) => clock(snapshots[k][1], explorer.offsetMs);
    const label = h("span", { class: "cut fx-snap" });
    const say = (k) => refill(label, h("b", null, time(k)), `  ${snapshots[k][3] ? "round" : snapshots[k][2]}  `, h("span", { class: "mono mut" }, snapshots[k][0]));
    const range = field({
      type: "range", min: 0, max: snapshots.length - 1, value: begin, label: "Lake snapshot", class: "range",
      oninput: (event) => say(Number(event.target.value)), onchange: (event) => this.setMoment(snapshots[Number(event.target.value)][0]),
    });
    range.value = begin;
    say(begin);
    refill(this.slider, h("span", { class: "mut sm" }, time(0)), range, h("span", { class: "mut sm" }, time(snapshots.length - 1)), label);
    this.setMoment(snapshots[begin][0]);
  }

  // -- columns -------------------------------------------------------------------------------------------------------

  columns() {
    return (this.explorer.data.schema ? this.explorer.data.schema.columns : []).filter((column) => !this.hidden.has(column.name));
  }

  columnsText() {
    const { schema } = this.explorer.data;
    const all = schema ? schema.columns.length : 0;
    refill(this.columnsButton, icon("cols"), this.hidden.size ? `Columns ${all - this.hidden.size} / ${all}` : `Columns ${all}`);
  }

  columnsChanged() {
    this.columnsText();
    this.input.placeholder = this.example();
    this.measure();
  }

  /** Widths by what is in the first rows; they stay as long as the grid does. */
  measure() {
    const rows = Math.min(60, this.grid.count || 0);
    this.widths ??= new Map();
    this.grid.setColumns(this.columns().map((column) => {
      const known = this.widths.get(column.name);
      let width = known;
      if (!known) {
        let longest = 0;
        for (let i = 0; i < rows; i++) longest = Math.max(longest, (this.store.text(i, column.name) || "").length);
        const named = Math.max(column.name.length * 7.8, (column.type.length + 10) * 6.3);
        width = Math.round(Math.min(column.kind === "text" || column.kind === "other" ? 320 : 200, Math.max(68, Math.min(260, named) + 18, longest * 6.7 + 18)));
        if (longest) this.widths.set(column.name, width);
      }
      return { ...column, width, isNumber: column.kind === "number" };
    }));
  }

  togglePopover() {
    if (this.popover) return this.closePopover();
    const { schema } = this.explorer.data;
    const boxes = (schema ? schema.columns : []).map((column) => {
      const box = h("input", { type: "checkbox", "data-name": column.name });
      box.checked = !this.hidden.has(column.name);
      return h("label", null, box, h("span", { class: "cut" }, column.name), h("span", { class: "r mut xs" }, column.type));
    });
    const set = (hidden) => {
      this.hidden = new Set(hidden);
      this.closePopover();
      this.columnsText();
      this.measure();
      this.readCode();
    };
    this.popover = h(
      "div", { class: "pop", role: "dialog", "aria-label": "Columns", onkeydown: (event) => event.key === "Escape" && (event.stopPropagation(), this.closePopover()) },
      field({ placeholder: "Find a column", label: "Find a column", class: "sm wide", oninput: (event) => {
        for (const label of boxes) label.hidden = !label.textContent.toLowerCase().includes(event.target.value.toLowerCase());
      } }),
      h("div", { class: "popl" }, boxes),
      h("div", { class: "popf" },
        button("Apply", { class: "sm pri", on: () => set(boxes.map((label) => label.firstChild).filter((box) => !box.checked).map((box) => box.dataset.name)) }),
        button("All", { class: "sm", on: () => set([]) })),
    );
    this.root.append(this.popover);
    this.columnsButton.setAttribute("aria-expanded", "true");
    return this.popover.querySelector("input").focus();
  }

  closePopover() {
    if (!this.popover) return;
    this.popover.remove();
    this.popover = null;
    this.columnsButton.setAttribute("aria-expanded", "false");
    this.columnsButton.focus();
  }

  // -- reading -------------------------------------------------------------------------------------------------------

  query() {
    const body = { where: this.where, as_of: this.asOf, point: this.point ? this.point.name : null };
    return body;
  }

  /** Takes a new read point: what is shown stays until the first of its rows are there. */
  readAgain() {
    this.point = null;
    this.closeRow();
    for (const slot of ["count", "facts", "row"]) this.explorer.channel.drop(slot);
    const begun = Date.now();
    this.reading = begun;
    this.input.classList.remove("err");
    setTimeout(() => {
      if (this.reading !== begun) return;
      this.drawStatus();
      this.drawEmpty();
    }, SKELETON_MS);
    this.ask(0, true);
  }

  names(from, to) {
    const columns = this.columns().map((column) => column.name);
    return columns.slice(Math.max(0, from - BESIDE), to + BESIDE).slice(0, 100);
  }

  ask(page, isFirst) {
    const [from, to] = this.grid.columns.length ? this.grid.span() : [0, 12];
    const names = this.names(from, to);
    const wanted = !this.explorer.data.schema ? null : isFirst ? names : this.store.missing(page, names);
    const body = { ...this.query(), first: page * PAGE_ROWS, count: PAGE_ROWS, columns: wanted, shown: this.hidden.size ? this.columns().map((column) => column.name) : null };
    this.asked = page;
    this.explorer.ask("page", "page", body, (answer) => (answer.error ? this.failed(answer.error) : this.took(answer, isFirst)));
  }

  /** The lines for other columns, with the first rows again. */
  readCode() {
    this.ask(Math.floor(this.grid.position / PAGE_ROWS), false);
  }

  took(answer, isFirst) {
    this.asked = null;
    if (isFirst || !this.point || answer.point.name !== this.point.name) {
      if (!isFirst && this.point) return this.readAgain(); // the kernel has another point than this grid
      this.store = new RowStore();
      this.facts = new Map();
      this.factsAsked = new Set();
      this.point = answer.point;
      this.error = null;
      this.good = { where: this.where, asOf: this.asOf };
      this.reading = 0;
      this.grid.root.setAttribute("aria-label", `Rows of ${this.explorer.path}`);
      this.store.take(answer);
      this.counted(answer);
      this.measure();
      this.grid.moveTo(0);
      if (answer.total == null) this.askCount();
      this.explorer.say(`${answer.total == null ? "at least " : ""}${plural(answer.total ?? answer.at_least, "row")}`);
    } else {
      this.store.take(answer);
      this.counted(answer);
    }
    this.code = answer.code;
    if (!this.chosen) this.explorer.setCode(this.code);
    this.explorer.keep("page", answer);
    this.drawEmpty();
    this.grid.later();
    return this.drawStatus();
  }

  counted({ total, at_least: atLeast }) {
    this.total = total;
    this.atLeast = atLeast;
    this.grid.setCount(total ?? atLeast);
  }

  askCount() {
    this.explorer.ask("count", "count", this.query(), (answer) => {
      if (answer.error || !this.point || answer.point.name !== this.point.name) return;
      this.counted(answer);
      if (answer.total != null) this.explorer.say(plural(answer.total, "row"));
      this.drawEmpty();
      this.drawStatus();
    });
  }

  askFacts(names) {
    const missing = names.filter((name) => !this.factsAsked.has(name)).slice(0, FACTS_MAX);
    if (!missing.length || this.explorer.channel.isWaiting("facts")) return;
    for (const name of missing) this.factsAsked.add(name);
    this.explorer.ask("facts", "facts", { ...this.query(), columns: missing }, (answer) => {
      if (answer.error || !this.point || answer.point.name !== this.point.name) return;
      for (const facts of answer.columns) this.facts.set(facts.name, facts);
      this.grid.later();
    });
  }

  /** The grid has drawn these rows; what is missing of them is asked for, then one page ahead. */
  seen(first, last, missing) {
    const text = !this.grid.count ? "" : missing >= 0 ? `reading rows ${number(first + 1)}–${number(last)} …` : `rows ${number(first + 1)}–${number(last)}`;
    if (this.pageText.textContent !== text) this.pageText.textContent = text;
    if (!this.point || this.explorer.isStatic) return;
    const ahead = first >= (this.before || 0);
    this.before = first;
    const [from, to] = this.grid.span(), names = this.grid.columns.slice(from, to).map((column) => column.name);
    const wanted = [missing >= 0 ? missing : first, Math.max(first, last - 1), ahead ? last + PAGE_ROWS / 2 : first - PAGE_ROWS / 2];
    for (const row of wanted) {
      if (row < 0 || row >= this.grid.count) continue;
      const page = Math.floor(row / PAGE_ROWS);
      if (!this.store.missing(page, names).length) continue;
      if (this.asked !== page || !this.explorer.channel.isWaiting("page")) this.ask(page, false);
      return;
    }
    this.askFacts(names);
  }

  failed(error) {
    this.asked = null;
    this.reading = 0;
    this.error = error;
    if (error.class === "InvalidFilterError") this.input.classList.add("err");
    this.explorer.say(error.text);
    this.drawEmpty();
    this.drawStatus();
  }

  // -- what is shown -------------------------------------------------------------------------------------------------

  drawStatus() {
    const { head } = this.explorer.data, again = button("Read again", { class: "sm ghost", on: () => this.readAgain(), off: this.explorer.isStatic, key: "again" });
    const hadFocus = this.status.contains(document.activeElement);
    if (this.error && this.isShort(this.error)) {
      const shown = this.good.where ? `where ${this.good.where}` : "all rows";
      refill(this.status, h("span", { class: "bad st cut", role: "alert" }, icon("warn"), this.error.text), h("span", { class: "sp" }), h("span", { class: "hide-n cut" }, `shown: ${shown}`));
    } else if (!this.point && this.reading) {
      const buckets = head ? `snapshot and ${plural(head.buckets, "bucket")}` : "…";
      refill(this.status, h("span", null, `Reading ${this.explorer.path}: ${buckets} …`));
    } else if (this.point) {
      const rows = this.total == null ? [h("b", null, `≥ ${number(this.atLeast)}`), " rows"] : [h("b", null, number(this.total)), this.good.where ? this.ofAll() : this.total === 1 ? " row" : " rows"];
      const back = Math.max(0, this.explorer.nowMs() - this.point.moment_ms);
      const when = this.good.asOf == null ? `read at ${clock(this.point.moment_ms, this.explorer.offsetMs, true)}` : `as of ${clock(this.point.moment_ms, this.explorer.offsetMs)}, ${age(back)} back`;
      refill(this.status, h("span", null, rows), h("span", null, when), h("span", { class: "sp" }), this.pageText, again);
      if (hadFocus) again.focus();
    } else refill(this.status);
  }

  ofAll() {
    const { head } = this.explorer.data;
    return head && head.kind === "log" ? ` of ${number(this.point.records)} rows` : " rows";
  }

  /** Errors of what was typed stand in the status line; the last good rows stay. */
  isShort(error) {
    return Boolean(this.point || this.grid.count) && /Filter|Timestamp|InvalidRequest/.test(error.class) && this.grid.count > 0;
  }

  drawEmpty() {
    if (this.error && !this.isShort(this.error)) return this.put(this.explorer.errorView(this.error, () => this.readAgain()));
    if (!this.point) return this.put(this.grid.count ? this.grid.root : this.loading());
    if (this.grid.count || this.total == null) return this.put(this.grid.root);
    if (this.good.where) {
      const { head } = this.explorer.data, all = head && head.kind === "log" ? `All ${number(this.point.records)} rows were looked at.` : "All rows were looked at.";
      return this.put(h("div", { class: "empty" }, h("h3", null, "No row fits the filter"), h("p", null, all), button("Clear the filter", { on: () => {
        this.input.value = "";
        this.apply();
        this.input.focus();
      } })));
    }
    const { head } = this.explorer.data;
    return this.put(h("div", { class: "empty" }, h("h3", null, "No rows yet"),
      h("p", null, `The table has ${plural(head ? head.buckets : 0, "bucket")} and nothing in them. Rows show here as soon as a writer’s call returns.`),
      button("Read again", { icon: "rerun", on: () => this.readAgain() })));
  }

  put(element) {
    if (this.place.firstChild !== element) this.place.replaceChildren(element);
  }

  loading() {
    const line = (i) => h("div", { class: "fx-line" }, [60, 110, 70, 90, 60, 120, 80].map((width, j) => h("span", { class: "sk", style: { width: `${width * (0.5 + ((i * 5 + j * 3) % 10) / 20)}px` } })));
    return h("div", { class: "fx-scroll fx-loading", "aria-busy": "true" }, Array.from({ length: 16 }, (_, i) => line(i)));
  }

  // -- a row ---------------------------------------------------------------------------------------------------------

  openRow(i) {
    const row = this.store.row(i);
    if (!row) return;
    this.chosen = row;
    this.grid.choose(i);
    this.explorer.ask("row", "row", { ...this.query(), partition: row.partition, bucket: row.bucket, offset: row.offset }, (answer) => {
      if (this.chosen !== row) return;
      this.side.hidden = false;
      refill(this.side, this.rowHead(), answer.error ? this.explorer.errorView(answer.error, () => this.openRow(i)) : this.rowBody(answer));
      this.rowCode = answer.code || this.code;
      this.explorer.setCode(this.rowCode);
      requestAnimationFrame(() => this.grid.reveal(i));
    });
  }

  rowHead() {
    return h("div", { class: "fx-sh" }, h("h3", null, "Where did this row come from"), h("span", { class: "sp" }), button("", { class: "sm ghost icon", icon: "x", title: "Close row detail (Esc)", on: () => this.closeRow() }));
  }

  rowBody(answer) {
    const { place } = answer, known = (key, value, kind) => (value == null ? [] : [[key, value, kind]]);
    const facts = [
      ["source", sourceMark(place.source)], ...known("partition", answer.partition), ["bucket", String(answer.bucket)], ["offset", number(answer.offset)], ["timestamp", answer.timestamp],
      ...known("file", place.file, "mono"), ...known("position", place.position), ...known("snapshot", place.snapshot_id, "mono"),
      ...known("server", place.server == null ? null : `${place.server}${place.local == null ? "" : place.local ? ", local segment" : ", remote segment"}`), ...known("segment", place.segment, "mono"),
    ];
    const show = button("Show in changelog", { class: "sm", on: () => this.explorer.openChanges(answer.partition, answer.bucket, answer.offset) });
    return h("div", { class: "two" }, h("div", null, pairs(facts), show),
      h("div", null, h("h3", null, "Values"), pairs(answer.values.map(([name, text, isCut]) => [name, [shownValue(text), isCut ? h("span", { class: "mut" }, "… cut") : null]]))));
  }

  closeRow() {
    if (!this.chosen) return;
    const hadFocus = this.side.contains(document.activeElement);
    this.chosen = null;
    this.side.hidden = true;
    this.grid.choose(-1);
    this.explorer.setCode(this.code);
    if (hadFocus) this.grid.root.focus();
  }

  /** The saved rows, where there is no kernel. */
  restore(answer) {
    this.point = answer.point;
    this.store.take(answer);
    this.counted({ total: answer.rows.length, at_least: answer.rows.length });
    this.good = { where: "", asOf: null };
    this.measure();
    this.drawEmpty();
    refill(this.status, h("span", null, h("b", null, number(answer.rows.length)), ` of ${number(answer.total ?? answer.at_least)} rows saved`));
    for (const control of this.bar.querySelectorAll("input,button")) control.disabled = true;
  }

  close() {
    this.grid.close();
  }
}

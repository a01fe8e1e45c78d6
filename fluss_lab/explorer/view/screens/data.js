// The screen Data: rows of the union read at one read point, a condition, a moment, and where a row came from.

import { columnChoice } from "../parts/column_choice.js";
import { columnHead } from "../parts/column_head.js";
import { button, field, h, icon, keepFocus, refill, shownValue, sourceMark } from "../parts/dom.js";
import { age, number, plural, sizeBytes } from "../parts/figures.js";
import { Grid } from "../parts/grid.js";
import { MomentChoice } from "../parts/moment_choice.js";
import { rowDetail } from "../parts/row_detail.js";
import { firstRows, PAGE_ROWS, RowStore } from "../parts/row_store.js";

const FACTS_MAX = 40;
/** Columns beside those in view that come with a page. */
const BESIDE = 10;
const SKELETON_MS = 120;
/** Bytes of the rows and of the facts that a notebook keeps. */
const SAVED_PAGE_MAX = 100000, SAVED_FACTS_MAX = 40000;

export class Data {
  constructor(explorer) {
    this.explorer = explorer;
    /** What is wanted; `good` is the condition and the moment of the rows that are shown, `point` their read point. */
    this.where = "";
    this.asOf = null;
    this.good = { where: "", asOf: null };
    this.point = null;
    this.hidden = new Set();
    this.store = new RowStore();
    this.facts = new Map();
    this.chosen = null;
    this.bar = h("div", { class: "bar" });
    this.moment = new MomentChoice(explorer, (asOf) => this.setMoment(asOf), (error) => this.failed(error, true));
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
      version: (i) => `${this.point ? this.point.name : ""} ${this.store.version(i)}`,
      headVersion: () => `${this.point ? this.point.name : ""} ${this.facts.size}`,
      head: (column) => columnHead(column, this.facts.get(column.name), (condition) => this.addCondition(condition)),
      cell: (i, column) => {
        const text = this.store.text(i, column.name);
        return text === undefined ? undefined : this.store.isCut(i, column.name) ? `${text}…` : shownValue(text);
      },
      open: (i) => this.openRow(i), close: () => this.closeRow(), seen: (first, last, missing) => this.seen(first, last, missing),
    });
    this.place = h("div", { class: "fx-place", tabindex: -1 });
    this.root = h("div", { class: "fx-col" }, this.bar, this.moment.slider, this.status, h("div", { class: "fx-split v" }, this.place, this.side));
    this.makeBar();
  }

  show() {
    this.explorer.setCode(this.chosen ? this.rowCode : this.code, this);
    if (this.explorer.isAlone && !this.point) return this.drawEmpty();
    if (!this.point && !this.reading) this.readAgain();
    return this.grid.later();
  }

  update(what) {
    if (what === "schema") this.columnsChanged();
    if (what === "schema" && (this.explorer.data.schemaError || this.place.firstChild)) this.drawEmpty();
    if (what === "schema" && this.isOutdated) return this.reading ? this.readAgain() : this.lost();
    const { head } = this.explorer.data;
    if (what !== "head") return undefined;
    // Records of a primary-key table may be there without a row: it is read again when there are others.
    if (this.point && this.total === 0 && !this.where && !this.asOf && head.rows !== this.recordsThen) return this.readAgain();
    return this.askFailed();
  }

  /** Asks again for what failed while no server, or no lake, answered: after a pause, or when a server does again. */
  askFailed() {
    const { pauses } = this.explorer.channel;
    if (this.error && this.error.retriable && pauses.isDue(this.failedRead ? "grid" : "page")) {
      this.error = null;
      if (this.failedRead) this.readAgain();
      this.drawEmpty();
      this.drawStatus();
    }
    if (this.countFailed && pauses.isDue("count")) this.askCount();
    this.grid.later();
  }

  // -- the toolbar ---------------------------------------------------------------------------------------------------

  makeBar() {
    this.input = field({
      class: "mono grow", label: "Filter", placeholder: this.example(), key: "where",
      onkeydown: (event) => event.key === "Enter" && this.apply(), onchange: () => this.apply(),
    });
    this.columnsButton = button("Columns", { icon: "cols", expanded: "false", on: () => this.togglePopover() });
    refill(this.bar, h("label", { class: "mut sm" }, "where"), this.input, this.moment.modes, this.moment.time, this.columnsButton);
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

  setMoment(asOf) {
    if (asOf === this.asOf) return;
    this.asOf = asOf;
    this.readAgain();
  }

  /** Shows the rows of a lake snapshot. */
  openSnapshot(id) {
    this.moment.openSnapshot(id);
  }

  // -- columns -------------------------------------------------------------------------------------------------------

  /** Whether the table was altered since the read point: its rows have the columns of then, others come with a new point. */
  get isOutdated() {
    const { schema } = this.explorer.data;
    return Boolean(schema && this.point && schema.schema_id > this.point.schema_id);
  }

  columns() {
    const { schema } = this.explorer.data;
    if (schema && !(this.isOutdated && this.known)) this.known = schema.columns;
    return (this.known || []).filter((column) => !this.hidden.has(column.name));
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

  /** How wide a digit is: no digit of a number may be cut off where there is room for it. */
  measureDigit() {
    const digits = h("span", { class: "fx-digits" }, "0".repeat(10));
    this.root.append(digits);
    this.digitPx = Math.max(6.7, digits.getBoundingClientRect().width / 10);
    digits.remove();
  }

  /** Widths by what is in the first rows; they stay as long as the grid does. */
  measure() {
    const rows = Math.min(60, this.grid.count || 0);
    this.measureDigit();
    this.widths ??= new Map();
    this.grid.setColumns(this.columns().map((column) => {
      const known = this.widths.get(column.name);
      let width = known;
      if (!known) {
        let longest = 0;
        for (let i = 0; i < rows; i++) longest = Math.max(longest, (this.store.text(i, column.name) || "").length);
        const named = Math.max(column.name.length * 7.8, (column.type.length + 10) * 6.3);
        width = Math.round(Math.min(column.kind === "bool" || column.kind === "time" ? 200 : 320, Math.max(68, Math.min(260, named) + 18, longest * this.digitPx + 18)));
        if (longest) this.widths.set(column.name, width);
      }
      return { ...column, width, isNumber: column.kind === "number" };
    }));
  }

  togglePopover() {
    if (this.popover) return this.closePopover();
    const { schema } = this.explorer.data;
    this.popover = columnChoice(schema ? schema.columns : [], this.hidden, (hidden) => {
      this.hidden = new Set(hidden);
      this.closePopover();
      this.columnsText();
      this.measure();
      this.readCode();
    }, () => this.closePopover());
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

  /** A request about the rows that are shown. */
  query() {
    return { where: this.good.where, as_of: this.good.asOf, point: this.point.name };
  }

  /** Takes a new read point: what is shown stays, and can be used, until the first of its rows are there. */
  readAgain({ where, asOf } = { where: this.where, asOf: this.asOf }, position = 0) {
    const begun = Date.now();
    this.reading = begun;
    this.recordsThen = this.explorer.data.head && this.explorer.data.head.rows;
    this.error = null;
    this.failedRead = false;
    this.input.classList.remove("err");
    setTimeout(() => {
      if (this.reading !== begun) return;
      this.drawStatus();
      this.drawEmpty();
    }, SKELETON_MS);
    const names = this.explorer.data.schema ? this.names(...this.span()) : null;
    const body = { where, as_of: asOf, point: null, first: 0, count: PAGE_ROWS, columns: names, shown: this.shownColumns() };
    this.explorer.ask("grid", "page", body, (answer) => {
      if (answer.error) this.failed(answer.error, true);
      else if (this.point && answer.point.name === this.point.name) this.took(answer);
      else this.began(answer, { where, asOf }, position);
    });
  }

  span() {
    return this.grid.columns.length ? this.grid.span() : [0, 12];
  }

  names(from, to) {
    const columns = this.columns().map((column) => column.name);
    return columns.slice(Math.max(0, from - BESIDE), to + BESIDE).slice(0, 100);
  }

  shownColumns() {
    return this.hidden.size ? this.columns().map((column) => column.name) : null;
  }

  ask(page) {
    const columns = this.explorer.data.schema ? this.store.missing(page, this.names(...this.span()), this.grid.count) : null;
    const body = { ...this.query(), first: page * PAGE_ROWS, count: PAGE_ROWS, columns, shown: this.shownColumns() };
    this.asked = page;
    this.explorer.ask("page", "page", body, (answer) => {
      if (answer.error) this.failed(answer.error, false);
      else if (answer.point.name === this.point.name) this.took(answer);
      else this.lost();
    });
  }

  /** The kernel no longer has the point of this grid, but another one: all of it is read anew, at the same place. */
  lost() {
    this.readAgain(this.good, this.grid.position);
  }

  /** The lines for other columns, with the first rows again. */
  readCode() {
    if (this.point) this.ask(Math.floor(this.grid.position / PAGE_ROWS));
  }

  /** The first rows of a new grid are there. */
  began(answer, good, position) {
    for (const slot of ["page", "count", "facts", "row"]) this.explorer.channel.drop(slot);
    this.point = answer.point;
    this.closeRow();
    this.store = new RowStore();
    this.facts = new Map();
    this.factsAsked = new Set();
    this.factRows = this.wrong = this.error = null;
    this.failedRead = this.countFailed = false;
    this.asked = answer.partial ? 0 : null;
    this.good = good;
    this.reading = 0;
    this.grid.root.setAttribute("aria-label", `Rows of ${this.explorer.path}`);
    this.take(answer);
    this.measure();
    this.grid.moveTo(position);
    if (answer.total == null) this.askCount();
    this.explorer.say(`${answer.total == null ? "at least " : ""}${plural(answer.total ?? answer.at_least, "row")}`);
    this.drawn(answer);
    if (this.isOutdated) this.lost();
  }

  /** More rows of the grid that is shown are there. */
  took(answer) {
    if (!answer.partial) this.asked = null;
    if (!this.failedRead) this.error = null;
    this.take(answer);
    if (!this.widths.size) this.measure();
    this.drawn(answer);
  }

  take(answer) {
    this.store.take(answer);
    this.counted(answer);
  }

  drawn(answer) {
    this.code = answer.code;
    if (!this.chosen) this.explorer.setCode(this.code, this);
    const { saved } = this, isOther = !saved || saved.point.name !== answer.point.name;
    if (answer.from === 0 && (isOther || answer.columns.length >= saved.columns.length)) {
      this.saved = firstRows(answer, SAVED_PAGE_MAX);
      this.keep();
    }
    this.drawEmpty();
    this.grid.later();
    this.drawStatus();
  }

  counted({ total, at_least: atLeast }) {
    if (this.total != null && total == null && this.counting === this.point.name) return;
    this.counting = this.point.name;
    this.total = total;
    this.atLeast = atLeast;
    this.grid.setCount(total ?? atLeast);
  }

  askCount() {
    this.countFailed = false;
    this.explorer.ask("count", "count", this.query(), (answer) => {
      this.countFailed = Boolean(answer.error && answer.error.retriable);
      if (answer.error) this.wrong = this.countFailed ? null : `not counted: ${answer.error.text}`;
      else if (answer.point.name !== this.point.name) return this.lost();
      else this.counted(answer);
      if (answer.total != null) this.explorer.say(plural(answer.total, "row"));
      this.drawEmpty();
      this.grid.later();
      return this.drawStatus();
    });
  }

  askFacts(names) {
    const missing = names.filter((name) => !this.factsAsked.has(name)).slice(0, FACTS_MAX);
    if (!missing.length || this.explorer.channel.isWaiting("facts") || !this.explorer.channel.pauses.isDue("facts")) return;
    for (const name of missing) this.factsAsked.add(name);
    this.explorer.ask("facts", "facts", { ...this.query(), columns: missing }, (answer) => {
      if (answer.error) {
        if (answer.error.retriable) for (const name of missing) this.factsAsked.delete(name);
        else this.wrong = `no facts of columns: ${answer.error.text}`;
        this.drawStatus();
        return;
      }
      if (answer.point.name !== this.point.name) {
        this.lost();
        return;
      }
      for (const facts of answer.columns) this.facts.set(facts.name, facts);
      this.factRows = answer.rows;
      this.keep();
      this.drawStatus();
      this.grid.later();
    });
  }

  /** The grid has drawn these rows; what is missing of them is asked for, then one page ahead. */
  seen(first, last, missing) {
    const text = !this.grid.count ? "" : missing >= 0 ? `reading rows ${number(first + 1)}–${number(last)} …` : `rows ${number(first + 1)}–${number(last)}`;
    if (this.pageText.textContent !== text) this.pageText.textContent = text;
    if (!this.point || this.explorer.isStatic || (this.error && !this.failedRead)) return;
    const ahead = first >= (this.before || 0);
    this.before = first;
    const [from, to] = this.grid.span(), names = this.grid.columns.slice(from, to).map((column) => column.name);
    const wanted = [missing >= 0 ? missing : first, Math.max(first, last - 1), ahead ? last + PAGE_ROWS / 2 : first - PAGE_ROWS / 2];
    for (const row of wanted) {
      if (row < 0 || row >= this.grid.count) continue;
      const page = Math.floor(row / PAGE_ROWS);
      if (!this.store.missing(page, names, this.grid.count).length) continue;
      if (this.asked !== page) this.ask(page);
      return;
    }
    this.askFacts(names);
  }

  /** A read failed: a new one, or one of the rows that are shown, which stay. */
  failed(error, isNew) {
    if (isNew) this.reading = 0;
    else this.asked = null;
    this.failedRead = isNew;
    this.error = error;
    if (error.class === "InvalidFilterError") this.input.classList.add("err");
    this.explorer.say(error.text);
    this.drawEmpty();
    this.drawStatus();
  }

  tryAgain() {
    const { failedRead } = this;
    this.error = null;
    if (failedRead) this.readAgain();
    this.drawEmpty();
    this.drawStatus();
    this.grid.later();
  }

  // -- the saved view ------------------------------------------------------------------------------------------------

  keep() {
    if (!this.saved || this.explorer.isStatic) return;
    const facts = [];
    let size = 0;
    for (const each of this.facts.values()) if ((size += sizeBytes(JSON.stringify(each))) <= SAVED_FACTS_MAX) facts.push(each);
    const { where, asOf } = this.good;
    this.explorer.keep("page", { ...this.saved, where, as_of: asOf, code: this.code, total: this.total, at_least: this.atLeast, facts, fact_rows: this.factRows });
  }

  // -- what is shown -------------------------------------------------------------------------------------------------

  drawStatus() {
    keepFocus([this.status], () => this.fillStatus(), () => this.status.querySelector("button") || this.grid.root);
  }

  fillStatus() {
    const { head } = this.explorer.data;
    if (this.explorer.isStatic) return this.point ? this.drawSavedStatus() : refill(this.status);
    if (!this.grid.count) this.pageText.textContent = "";
    const again = button("Read again", { class: "sm ghost", on: () => this.readAgain(), key: "again" });
    if (this.error && this.isShort(this.error)) {
      const retry = this.error.retriable ? button("Try again", { class: "sm", key: "retry", on: () => this.tryAgain() }) : null;
      refill(this.status, h("span", { class: "bad st cut", role: "alert" }, icon("warn"), this.error.text), retry, h("span", { class: "sp" }), h("span", { class: "hide-n cut" }, `shown: ${this.shownText()}`));
    } else if (this.reading && Date.now() - this.reading >= SKELETON_MS) {
      const buckets = head ? `snapshot and ${plural(head.buckets, "bucket")}` : "…";
      refill(this.status, h("span", null, `Reading ${this.explorer.path}: ${buckets} …`), h("span", { class: "sp" }), again);
    } else if (this.point) {
      const wrong = this.wrong && h("span", { class: "bad cut", role: "alert" }, this.wrong);
      refill(this.status, h("span", null, this.countText()), wrong, h("span", null, this.momentText()), this.sampleText(), h("span", { class: "sp" }), this.pageText, again);
    } else refill(this.status);
    return null;
  }

  /** Of a saved view: how much of what it is. */
  drawSavedStatus() {
    const { where, asOf } = this.good, saved = this.grid.count;
    refill(this.status, h("span", null, h("b", null, number(saved)), " of ", this.countText(), " saved"), where ? h("span", { class: "cut" }, `where ${where}`) : null,
      h("span", null, this.momentText(), asOf ? ` (${asOf})` : ""), this.sampleText());
  }

  countText() {
    if (this.total == null) return [h("b", null, `≥ ${number(this.atLeast)}`), " rows"];
    return [h("b", null, number(this.total)), this.good.where ? this.ofAll() : this.total === 1 ? " row" : " rows"];
  }

  momentText() {
    const { explorer, point } = this;
    if (this.good.asOf == null) return `read at ${explorer.when(point.moment_ms, true)}`;
    const back = explorer.isStatic ? "" : `, ${age(Math.max(0, explorer.nowMs() - point.moment_ms))} back`;
    return `as of ${explorer.when(point.moment_ms)}${back}`;
  }

  /** Of how many rows the columns' facts are, where not of all. */
  sampleText() {
    const isSample = [...this.facts.values()].some((facts) => facts.sampled);
    return isSample ? h("span", { class: "hide-n" }, `columns from ${plural(this.factRows, "row")}`) : null;
  }

  shownText() {
    return this.good.where ? `where ${this.good.where}` : "all rows";
  }

  ofAll() {
    const { head } = this.explorer.data;
    return head && head.kind === "log" ? ` of ${number(this.point.records)} rows` : " rows";
  }

  /** Errors of what was typed, and of what is asked again, stand in the status line; the last good rows stay. */
  isShort(error) {
    return this.grid.count > 0 && (error.retriable || /Filter|Timestamp|InvalidRequest/.test(error.class));
  }

  drawEmpty() {
    const { head, schema, schemaError } = this.explorer.data, { isStatic, isAlone } = this.explorer;
    if (!schema && schemaError) return this.put(this.explorer.schemaErrorView());
    if (isAlone && !this.point) return this.put(h("div", { class: "empty" }, h("h3", null, "No rows are saved"), h("p", null, "The rows of this table had not been looked at when this view was saved.")));
    if (this.error && !this.isShort(this.error)) return this.put(this.explorer.errorView(this.error, () => this.tryAgain(), null, (text) => this.moment.openTime(text)));
    if (!this.point) return this.put(this.grid.count ? this.grid.root : this.loading());
    if (this.grid.count || this.total == null) return this.put(this.grid.root);
    if (this.good.where) {
      const all = head && head.kind === "log" ? `All ${number(this.point.records)} rows were looked at.` : "All rows were looked at.";
      return this.put(h("div", { class: "empty" }, h("h3", null, "No row fits the filter"), h("p", null, all), isStatic ? null : button("Clear the filter", { on: () => {
        this.input.value = "";
        this.apply();
        this.input.focus();
      } })));
    }
    const isBare = this.point.records === "0", then = this.good.asOf == null ? "" : " at that moment";
    const why = isBare ? `The table has ${plural(head ? head.buckets : 0, "bucket")} and nothing in them${then}.` : "Every row that was written was deleted.";
    return this.put(h("div", { class: "empty" }, h("h3", null, isBare ? "No rows yet" : "No rows"), h("p", null, `${why} Rows show here as soon as a writer’s call returns.`),
      isStatic ? null : button("Read again", { icon: "rerun", key: "again", on: () => this.readAgain() })));
  }

  put(element) {
    if (this.place.firstChild === element) return;
    keepFocus([this.place], () => this.place.replaceChildren(element), () => element.querySelector("button") || (element === this.grid.root ? element : this.place));
  }

  loading() {
    const line = (i) => h("div", { class: "fx-line" }, [60, 110, 70, 90, 60, 120, 80].map((width, j) => h("span", { class: "sk", style: { width: `${width * (0.5 + ((i * 5 + j * 3) % 10) / 20)}px` } })));
    return h("div", { class: "fx-scroll fx-loading", "aria-busy": "true" }, Array.from({ length: 16 }, (_, i) => line(i)));
  }

  // -- a row ---------------------------------------------------------------------------------------------------------

  openRow(i) {
    const row = this.store.row(i);
    if (!row || this.explorer.isStatic) return;
    this.chosen = row;
    this.grid.choose(i);
    this.explorer.ask("row", "row", { ...this.query(), partition: row.partition, bucket: row.bucket, offset: row.offset }, (answer) => {
      if (this.chosen !== row) return;
      if (!answer.error && answer.point.name !== this.point.name) {
        this.lost();
        return;
      }
      const body = answer.error ? this.explorer.errorView(answer.error, () => this.openRow(i)) : rowDetail(answer, () => this.explorer.openChanges(answer.partition, answer.bucket, answer.offset));
      this.side.hidden = false;
      const close = button("", { class: "sm ghost icon", icon: "x", title: "Close row detail (Esc)", on: () => this.closeRow() });
      keepFocus([this.side], () => refill(this.side, h("div", { class: "fx-sh" }, h("h3", null, "Where did this row come from"), h("span", { class: "sp" }), close), body), () => close);
      this.rowCode = answer.code || this.code;
      this.explorer.setCode(this.rowCode, this);
      // The detail takes room of the rows: the one that it is of stays in sight.
      this.grid.resized();
      this.grid.reveal(i);
    });
  }

  closeRow() {
    if (!this.chosen) return;
    const hadFocus = this.side.contains(document.activeElement);
    this.chosen = null;
    this.side.hidden = true;
    this.grid.choose(-1);
    this.explorer.setCode(this.code, this);
    if (hadFocus) this.grid.root.focus();
  }

  /** The saved rows, where there is no kernel. */
  restore(answer) {
    this.point = answer.point;
    this.good = { where: answer.where || "", asOf: answer.as_of || null };
    this.store.take(answer);
    this.facts = new Map((answer.facts || []).map((facts) => [facts.name, facts]));
    this.factRows = answer.fact_rows;
    this.total = answer.total;
    this.atLeast = answer.at_least;
    this.grid.setCount(answer.rows.length);
    this.code = answer.code || [];
    this.input.value = this.good.where;
    this.moment.restore(this.good.asOf);
    const saved = new Set(answer.columns);
    for (const column of this.columns()) if (!saved.has(column.name)) this.hidden.add(column.name);
    this.columnsText();
    this.measure();
    this.drawEmpty();
    this.drawStatus();
    this.explorer.setCode(this.code, this);
    for (const control of this.bar.querySelectorAll("input,button")) control.disabled = true;
  }

  close() {
    this.grid.close();
  }
}

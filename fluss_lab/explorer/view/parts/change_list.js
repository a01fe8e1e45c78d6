// The records of a changelog: as rows that stay what they are while others come and go, and one of them in detail.

import { h, pairs, refill, rowList, shownValue, sourceMark } from "./dom.js";
import { number } from "./figures.js";
import { shortTime } from "./moments.js";

/** Columns and characters of a row; the rest is in the detail. */
const COLUMNS_MAX = 12, CELL_MAX = 60;
const KINDS = { "+A": "A", "+I": "I", "-U": "P", "+U": "U", "-D": "D", INSERT: "I", DELETE: "D", UPDATE_BEFORE: "P", UPDATE_AFTER: "U" };

const isOld = (type) => type === "-U" || type === "UPDATE_BEFORE";
const isNew = (type) => type === "+U" || type === "UPDATE_AFTER";
const changeMark = (type) => h("span", { class: `ct ${KINDS[type] || "P"}` }, type);
const bucketOf = ({ partition, bucket }) => (partition == null ? `bucket ${bucket}` : `${partition} / ${bucket}`);
const valueOrCut = ([, text, isCut]) => [shownValue(text), isCut ? h("span", { class: "mut" }, "… cut") : null];
/** Name, text and whether it is cut of each value of records: as they came with their rows, until they are there whole. */
const valuesOf = (records, columns) => records.map((record) => (records.every(({ whole }) => whole) ? record.whole : columns.map((name, k) => [name, record.cells[k], Boolean(record.cut && record.cut.has(k))])));

/** The records of an answer. */
export function recordsOf(answer) {
  const found = answer.types.map((type, at) => {
    const [partition, bucket, offset] = answer.rows[at];
    return { type, partition, bucket, offset, time: answer.times[at], cells: answer.cells[at], source: answer.source[at] === "L" ? "lake" : "log", other: null, row: null, cut: null, whole: null };
  });
  for (const [at, k] of answer.cut) (found[at].cut ??= new Set()).add(k);
  for (const [old, fresh] of answer.pairs) join(found[old], found[fresh]);
  return found;
}

function join(old, fresh) {
  old.other = fresh;
  fresh.other = old;
  old.row = fresh.row = null;
}

/** Joins the two records of an update that came in different answers: they follow each other. */
export function joinUpdates(records) {
  for (let i = 1; i < records.length; i++) {
    const old = records[i - 1], fresh = records[i];
    if (old.type === "-U" && fresh.type === "+U" && !old.other && !fresh.other && old.bucket === fresh.bucket && old.partition === fresh.partition && BigInt(old.offset) + 1n === BigInt(fresh.offset)) join(old, fresh);
  }
}

export class ChangeList {
  constructor(explorer, pick) {
    this.explorer = explorer;
    this.pick = pick;
    this.chosen = null;
    this.records = [];
    this.layout = "";
    this.body = null;
    this.root = rowList("Records");
    this.root.style.overflowAnchor = "none";
  }

  /** Shows records in this order. What is being read stays where it is; what was chosen stays chosen. */
  show(records, columns) {
    this.records = records;
    this.layOut(columns);
    const { root, body } = this, focused = body.contains(document.activeElement) ? document.activeElement : null;
    const rows = records.map((record) => this.rowOf(record)), kept = new Set(rows), top = root.getBoundingClientRect().top + 28;
    const anchor = root.scrollTop > 0 ? [...body.children].find((row) => kept.has(row) && row.getBoundingClientRect().bottom > top) : null;
    const was = anchor ? anchor.getBoundingClientRect().top : 0;
    body.replaceChildren(...rows);
    if (anchor) root.scrollTop += anchor.getBoundingClientRect().top - was;
    if (focused && focused.isConnected) focused.focus({ preventScroll: true });
  }

  /** Puts records before those that are there, of which the last ones go. */
  add(records, columns, most) {
    if (this.layOut(columns, records)) return void this.show([...records, ...this.records].slice(0, most), columns);
    this.records = [...records, ...this.records].slice(0, most);
    this.body.prepend(...records.map((record) => this.rowOf(record)));
    while (this.body.children.length > most) this.body.lastChild.remove();
    return undefined;
  }

  /** Shows something else in place of records. */
  showNone(...children) {
    this.records = [];
    this.body = null;
    this.layout = "";
    refill(this.root, ...children);
  }

  /** Makes the table anew where its columns change; returns whether it did. */
  layOut(columns, more = []) {
    const { schema } = this.explorer.data;
    this.kinds = new Map((schema ? schema.columns : []).map((column) => [column.name, column.kind]));
    this.columns = columns;
    this.names = columns.slice(0, COLUMNS_MAX);
    this.isParted = [...more, ...this.records].some((record) => record.partition != null);
    const layout = JSON.stringify([this.isParted, this.names.map((name) => [name, this.kinds.get(name)])]);
    if (this.body && layout === this.layout) return false;
    this.layout = layout;
    for (const record of [...more, ...this.records]) record.row = null;
    const heads = [["change"], [this.isParted ? "partition / bucket" : "bucket", this.isParted ? "" : "num"], ["offset", "num"], ["timestamp"], ["in"], ...this.names.map((name) => [name, this.kindOf(name)])];
    this.body = h("tbody");
    refill(this.root, h("table", { class: "fx-t d" }, h("caption", { class: "vh" }, "Changelog"), h("thead", null, h("tr", null, heads.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))), this.body));
    return true;
  }

  kindOf(name) {
    return this.kinds.get(name) === "number" ? "num" : "";
  }

  rowOf(record) {
    if (record.row) return record.row;
    const open = () => this.pick(record);
    record.row = h("tr", { class: "pick", tabindex: -1, onclick: open, onkeydown: (event) => event.key === "Enter" && open() },
      h("td", null, changeMark(record.type)), h("td", { class: this.isParted ? "" : "num" }, this.isParted ? `${record.partition} / ${record.bucket}` : String(record.bucket)),
      h("td", { class: "num" }, number(record.offset)), h("td", { class: "mut" }, shortTime(record.time, this.explorer.zone, this.explorer.nowMs())), h("td", null, sourceMark(record.source)),
      this.names.map((name, k) => h("td", { class: this.kindOf(name) }, this.cell(record, k))));
    record.row.classList.toggle("sel", record === this.chosen);
    return record.row;
  }

  cell(record, k) {
    const text = record.cells[k], isCut = (record.cut && record.cut.has(k)) || (text != null && text.length > CELL_MAX);
    const isChanged = record.other && record.other.cells[k] !== text, shown = shownValue(isCut ? `${text.slice(0, CELL_MAX)}…` : text);
    if (isOld(record.type)) return h("span", { class: isChanged ? "old" : "mut" }, shown);
    return isChanged && isNew(record.type) ? h("mark", null, shown) : shown;
  }

  choose(record) {
    for (const each of [this.chosen, record]) if (each && each.row) each.row.classList.toggle("sel", each === record);
    this.chosen = record;
  }

  /** What there is to see of a record: its values, beside those of the other record of its update, and where it is. */
  detail(record, close) {
    const both = record.other ? (isOld(record.type) ? [record, record.other] : [record.other, record]) : null;
    const keys = new Set(this.explorer.data.head ? this.explorer.data.head.key : []);
    const sides = valuesOf(both || [record], this.columns), names = sides[0].map(([name]) => name);
    const isChanged = (k) => both && sides[0][k][1] !== sides[1][k][1];
    const rank = (k) => (keys.has(names[k]) ? 0 : isChanged(k) ? 1 : 2);
    const order = names.map((_, k) => k).sort((a, b) => rank(a) - rank(b) || a - b), changed = order.filter(isChanged).length;
    const title = both ? `Update: ${changed} of ${names.length} fields changed` : /D/.test(record.type) ? "Deleted row" : "Record";
    const values = both
      ? h("table", { class: "ba" }, h("thead", null, h("tr", null, h("td"), both.map((each) => h("th", { scope: "col" }, changeMark(each.type))))),
        h("tbody", null, order.map((k) => h("tr", null, h("th", { scope: "row", title: names[k] }, names[k]), sides.map((side, at) => h("td", { class: isChanged(k) ? "" : "mut" }, isChanged(k) ? h(at ? "mark" : "span", { class: at ? "" : "old" }, valueOrCut(side[k])) : valueOrCut(side[k])))))))
      : pairs(order.map((k) => [names[k], valueOrCut(sides[0][k])]));
    const offset = both ? `${number(both[0].offset)} and ${number(both[1].offset)}` : number(record.offset);
    return [
      h("div", { class: "fx-sh" }, h("h3", null, title), h("span", { class: "sp" }), close),
      h("div", { class: "two" }, h("div", null, values),
        h("div", null, h("h3", null, "Where"), pairs([["bucket", bucketOf(record)], ["offset", offset], ["timestamp", record.time], ["read from", sourceMark(record.source)]]))),
    ];
  }
}

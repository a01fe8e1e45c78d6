// The screen Changelog: what happened when, and where each record is read from.

import { button, field, h, pairs, refill, segmented, shownValue, sourceMark, stateMark } from "../parts/dom.js";
import { clock, number } from "../parts/figures.js";

const STARTS = [["earliest", "Earliest"], ["newest", "Newest"], ["time", "Time"], ["offset", "Offset"]];
/** Records that are kept in view. */
const KEPT_MAX = 1000;
const COLUMNS_MAX = 12;
/** Records of the live tail that are kept in view. */
const TAIL_MAX = 500;
/** So often the kernel hears that the tail is still looked at. */
const BEAT_MS = 20000;

export const isOld = (type) => type === "-U" || type === "UPDATE_BEFORE";
const isNew = (type) => type === "+U" || type === "UPDATE_AFTER";
const KINDS = { "+A": "A", "+I": "I", "-U": "P", "+U": "U", "-D": "D", INSERT: "I", DELETE: "D", UPDATE_BEFORE: "P", UPDATE_AFTER: "U" };
const changeMark = (type) => h("span", { class: `ct ${KINDS[type] || "P"}` }, type);

export class Changelog {
  constructor(explorer) {
    this.explorer = explorer;
    this.start = "newest";
    this.newestFirst = true;
    this.net = false;
    this.records = [];
    this.bar = h("div", { class: "bar" });
    this.status = h("div", { class: "status", role: "status" });
    this.list = h("div", { class: "fx-scroll" });
    this.side = h("aside", { class: "fx-side w", "aria-label": "Record", hidden: true, onkeydown: (event) => event.key === "Escape" && this.choose(null) });
    this.root = h("div", { class: "fx-col" }, this.bar, this.status, h("div", { class: "fx-split v" }, this.list, this.side));
    this.makeBar();
  }

  show() {
    this.explorer.setCode(this.code);
    if (!this.asked) this.ask();
  }

  update() {}

  /** Shows the records of a bucket from an offset on. */
  openAt(partition, bucket, offset) {
    this.bucket = { partition, bucket };
    this.start = "offset";
    this.value = String(offset);
    this.newestFirst = false;
    this.net = false;
    this.makeBar();
    this.ask();
  }

  // -- the live tail -------------------------------------------------------------------------------------------------

  follow(op) {
    const was = this.tail;
    this.tail = op === "stop" ? null : { op: op === "start" ? "resume" : op, rate: was ? was.rate : 0, held: was ? was.held : 0, limit: 10000, state: op === "pause" ? "paused" : "following", skipped: 0 };
    clearInterval(this.beating);
    if (this.tail) this.beating = setInterval(() => this.tailAsk(this.tail.op), BEAT_MS);
    if (op === "start") {
      this.records = [];
      this.newestFirst = true;
      this.net = false;
      this.choose(null);
    }
    this.makeBar();
    this.tailAsk(op);
    if (op === "stop") this.draw();
    else this.drawTail();
  }

  tailAsk(op) {
    this.explorer.ask("tail", "tail", { op }, (answer) => {
      if (answer.error) {
        this.tail = null;
        clearInterval(this.beating);
        this.makeBar();
        return this.failed(answer.error);
      }
      return this.cameIn(answer);
    });
  }

  cameIn(answer) {
    if (!this.tail) return;
    const before = this.tail.state;
    this.tail = { ...this.tail, ...answer };
    if (answer.state === "ended") return void this.follow("stop");
    if (answer.code) this.explorer.setCode((this.code = answer.code));
    if (answer.types.length) {
      this.answer = answer;
      this.earliest = this.latest = { older: false, newer: false };
      this.records = [...this.records, ...this.made(answer)].slice(-TAIL_MAX);
      if (this.explorer.tab === "changelog") this.drawList();
    }
    if (before !== answer.state) this.explorer.say(answer.state === "full" ? "Buffer full: reading has stopped, nothing is lost" : answer.state);
    this.drawTail();
  }

  drawTail() {
    const { state, rate, held, limit } = this.tail, isPaused = state !== "following";
    refill(this.status, stateMark(isPaused ? "warn" : "ok", isPaused ? "Paused" : "Following"), h("span", null, h("b", null, number(isPaused ? 0 : rate)), " records/s"),
      isPaused ? null : h("span", { class: "hide-m" }, "20 records/s are shown"),
      h("span", { class: "st" }, "buffer", h("span", { class: "prog" }, h("i", { style: { width: `${Math.min(100, (held / limit) * 100)}%` } })), h("span", null, `${number(held)} of ${number(limit)}`)),
      h("span", { class: "sp" }), state === "full" ? h("span", { class: "warn" }, "buffer full: reading has stopped, nothing is lost") : null);
  }

  makeBar() {
    const isKeyed = this.explorer.data.head && this.explorer.data.head.kind === "pk", isTime = this.start === "time", isOffset = this.start === "offset";
    const starts = segmented("Start", STARTS, this.start, (start) => {
      this.start = start;
      this.newestFirst = start === "newest";
      this.value = start === "offset" ? "0" : "";
      this.bucket = this.bucket || this.firstBucket();
      this.makeBar();
      this.bar.querySelector(`[data-value="${start}"]`).focus();
      if (start !== "time") this.ask();
    });
    const apply = (event) => {
      this.value = event.target.value.trim();
      if (this.value) this.ask();
    };
    const value = field({ class: `mono ${isTime ? "when" : "short"}`, label: isTime ? "Time" : "Offset", value: this.value, placeholder: isTime ? "10 minutes ago" : "0", onchange: apply });
    const order = button(h("span", { class: "hide-n" }, this.newestFirst ? "Newest first" : "Oldest first"), { icon: this.newestFirst ? "down" : "up", title: "Turn the order round", on: () => {
      this.newestFirst = !this.newestFirst;
      this.makeBar();
      this.draw();
    } });
    const net = h("button", { type: "button", class: "sw", role: "switch", "aria-checked": String(this.net), onclick: () => {
      this.net = !this.net;
      this.makeBar();
      this.bar.querySelector('[role="switch"]').focus();
      this.ask();
    } }, h("i"), "Net changes");
    const { tail } = this;
    if (tail) {
      const isPaused = tail.op === "pause";
      refill(this.bar, h("span", { class: "mut sm" }, "new records as they come"), h("span", { class: "sp" }),
        button(isPaused ? "Resume" : "Pause", { icon: isPaused ? "play" : "pause", on: () => this.follow(isPaused ? "resume" : "pause"), key: "pause" }), button("Stop", { icon: "x", on: () => this.follow("stop") }));
      return;
    }
    refill(this.bar, h("span", { class: "mut sm" }, "from"), starts, isTime || isOffset ? value : null,
      isOffset && this.bucket ? h("span", { class: "sm mut cut" }, `of ${this.bucketName(this.bucket)}`) : null, order, h("span", { class: "sp" }), isKeyed ? net : null,
      button("Read again", { class: "ghost", on: () => this.ask() }), button("Live tail", { class: "pri", icon: "play", on: () => this.follow("start") }));
  }

  firstBucket() {
    const { buckets } = this.explorer.data;
    return buckets && buckets.rows.length ? { partition: buckets.rows[0][0], bucket: buckets.rows[0][1] } : { partition: null, bucket: 0 };
  }

  bucketName({ partition, bucket }) {
    return partition == null ? `bucket ${bucket}` : `${partition} / ${bucket}`;
  }

  ask(window = null, older = true) {
    this.asked = true;
    const body = { start: this.start, value: this.value || "", net: this.net, window, older };
    if (this.start === "offset") Object.assign(body, this.bucket || this.firstBucket());
    refill(this.status, h("span", null, `Reading the changelog of ${this.explorer.path} …`));
    this.explorer.ask("changes", "changes", body, (answer) => {
      if (answer.error) return this.failed(answer.error);
      return this.took(answer, window, older);
    });
  }

  failed(error) {
    refill(this.status);
    if (this.records.length) refill(this.status, h("span", { class: "bad st cut", role: "alert" }, error.text));
    else refill(this.list, this.explorer.errorView(error, () => this.ask()));
  }

  made(answer) {
    const found = answer.types.map((type, at) => {
      const [partition, bucket, offset, time] = answer.rows[at];
      return { type, partition, bucket, offset, time, cells: answer.cells[at], source: answer.source[at] === "L" ? "lake" : "log", other: null };
    });
    for (const [old, fresh] of answer.pairs) {
      found[old].other = found[fresh];
      found[fresh].other = found[old];
    }
    return found;
  }

  took(answer, window, older) {
    const found = this.made(answer);
    if (window == null) {
      this.records = found;
      this.earliest = this.latest = answer;
      this.chosen = null;
    } else if (older) this.records = [...found, ...this.records].slice(0, KEPT_MAX);
    else this.records = [...this.records, ...found].slice(-KEPT_MAX);
    if (window == null || older) this.earliest = answer;
    if (window == null || !older) this.latest = answer;
    this.answer = answer;
    this.code = answer.code;
    this.explorer.setCode(this.code);
    this.draw();
    this.explorer.say(`${number(found.length)} records`);
  }

  draw() {
    if (!this.answer) return;
    if (this.tail) {
      this.drawTail();
      this.drawList();
      return;
    }
    const { head } = this.explorer.data, count = this.records.length;
    const from = this.start === "newest" ? "the newest of every bucket" : this.start === "earliest" ? "from the earliest" : this.start === "time" ? `from ${this.value}` : `from offset ${number(this.value)}`;
    refill(this.status, h("span", null, h("b", null, number(count)), this.net ? ` net changes${this.answer.limited ? ", the first" : ""}` : ` of ${number(head ? head.rows : null)} records`), h("span", null, from),
      h("span", { class: "hide-n" }, this.newestFirst ? "newest first" : "oldest first"), h("span", { class: "sp" }),
      this.earliest.older ? button("Older", { class: "sm ghost", on: () => this.ask(this.earliest.window, true) }) : null,
      this.latest.newer ? button("Newer", { class: "sm ghost", on: () => this.ask(this.latest.window, false) }) : null);
    this.drawList();
  }

  drawList() {
    if (!this.records.length) {
      refill(this.list, h("div", { class: "empty" }, h("h3", null, "No record there"), h("p", null, "Nothing was written from that start on. Records show here when they are read again.")));
      return;
    }
    const where = this.list.scrollTop, focused = this.list.contains(document.activeElement) ? Number(document.activeElement.dataset.at) : null;
    refill(this.list, this.table());
    this.list.scrollTop = where;
    if (focused !== null) this.list.querySelector(`tr[data-at="${focused}"]`)?.focus();
  }

  table() {
    const { columns } = this.answer, shown = columns.slice(0, COLUMNS_MAX), parted = this.records.some((record) => record.partition != null);
    const kinds = new Map((this.explorer.data.schema ? this.explorer.data.schema.columns : []).map((column) => [column.name, column.kind]));
    const order = this.records.map((_, at) => at);
    if (this.newestFirst) order.reverse();
    const heads = [["change"], [parted ? "partition / bucket" : "bucket", parted ? "" : "num"], ["offset", "num"], ["timestamp"], ["in"], ...shown.map((name) => [name, kinds.get(name) === "number" ? "num" : ""])];
    return h("table", { class: "fx-t d" }, h("caption", { class: "vh" }, "Changelog"),
      h("thead", null, h("tr", null, heads.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
      h("tbody", null, order.map((at) => {
        const record = this.records[at], pick = () => this.choose(record);
        return h("tr", { class: `pick${record === this.chosen ? " sel" : ""}`, tabindex: 0, "data-at": at, onclick: pick, onkeydown: (event) => event.key === "Enter" && pick() },
          h("td", null, changeMark(record.type)), h("td", { class: parted ? "" : "num" }, parted ? `${record.partition} / ${record.bucket}` : String(record.bucket)), h("td", { class: "num" }, number(record.offset)),
          h("td", { class: "mut" }, clock(record.time, this.explorer.offsetMs, true)), h("td", null, sourceMark(record.source)),
          shown.map((name, k) => h("td", { class: kinds.get(name) === "number" ? "num" : "" }, this.cell(record, k))));
      })));
  }

  cell(record, k) {
    const text = record.cells[k], isChanged = record.other && record.other.cells[k] !== text, shown = shownValue(text == null ? text : text.slice(0, 60) + (text.length > 60 ? "…" : ""));
    if (isOld(record.type)) return h("span", { class: isChanged ? "old" : "mut" }, shown);
    return isChanged && isNew(record.type) ? h("mark", null, shown) : shown;
  }

  choose(record) {
    const hadFocus = this.side.contains(document.activeElement);
    this.chosen = record;
    this.side.hidden = !record;
    if (record) refill(this.side, this.detail(record));
    this.draw();
    if (!record && hadFocus) this.list.querySelector("tr[data-at]")?.focus();
  }

  detail(record) {
    const { columns } = this.answer, both = record.other ? (isOld(record.type) ? [record, record.other] : [record.other, record]) : null;
    const keys = new Set(this.explorer.data.head ? this.explorer.data.head.key : []);
    const isChanged = (k) => both && both[0].cells[k] !== both[1].cells[k];
    const rank = (k) => (keys.has(columns[k]) ? 0 : isChanged(k) ? 1 : 2);
    const order = columns.map((_, k) => k).sort((a, b) => rank(a) - rank(b) || a - b);
    const changed = order.filter(isChanged).length;
    const title = both ? `Update: ${changed} of ${columns.length} fields changed` : /D/.test(record.type) ? "Deleted row" : "Record";
    const values = both
      ? h("table", { class: "ba" }, h("thead", null, h("tr", null, h("td"), both.map((each) => h("th", { scope: "col" }, changeMark(each.type))))),
        h("tbody", null, order.map((k) => h("tr", null, h("th", { scope: "row" }, columns[k]), both.map((each, side) => h("td", { class: isChanged(k) ? "" : "mut" }, isChanged(k) ? h(side ? "mark" : "span", { class: side ? "" : "old" }, shownValue(each.cells[k])) : shownValue(each.cells[k])))))))
      : pairs(order.map((k) => [columns[k], shownValue(record.cells[k])]));
    const offset = both ? `${number(both[0].offset)} and ${number(both[1].offset)}` : number(record.offset);
    return [
      h("div", { class: "fx-sh" }, h("h3", null, title), h("span", { class: "sp" }), button("", { class: "sm ghost icon", icon: "x", title: "Close record (Esc)", on: () => this.choose(null) })),
      h("div", { class: "two" }, h("div", null, values),
        h("div", null, h("h3", null, "Where"), pairs([["bucket", this.bucketName(record)], ["offset", offset], ["timestamp", clock(record.time, this.explorer.offsetMs, true)], ["read from", sourceMark(record.source)]]))),
    ];
  }

  close() {
    if (this.tail) this.follow("stop");
    clearInterval(this.beating);
    this.records = [];
  }
}

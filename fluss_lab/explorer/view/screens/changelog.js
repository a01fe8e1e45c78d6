// The screen Changelog: what happened when, and where each record is read from.

import { ChangeList, joinUpdates, recordsOf } from "../parts/change_list.js";
import { button, field, h, keepFocus, refill, segmented, stateMark } from "../parts/dom.js";
import { number, plural } from "../parts/figures.js";

const STARTS = [["earliest", "Earliest"], ["newest", "Newest"], ["time", "Time"], ["offset", "Offset"]];
/** Records of the live tail that are kept, and those of them that are drawn as long as nobody scrolls down to the others. */
const TAIL_MAX = 500, DRAWN_MAX = 60;
/** So often the kernel hears that the tail is still looked at. */
const BEAT_MS = 20000;
/** Farther down the list, records that come are counted and not shown: what is read stays where it is. */
const AWAY_PX = 12;
/** By state of a tail: its mark, and what is said of it. */
const TAIL_STATES = {
  following: ["ok", "Following"], paused: ["warn", "Paused"], full: ["warn", "Paused", "buffer full: reading has stopped, nothing is lost"],
  away: ["bad", "The server does not answer", "what is written meanwhile is read when it does"],
};

export class Changelog {
  constructor(explorer) {
    this.explorer = explorer;
    this.start = "newest";
    this.newestFirst = true;
    this.net = false;
    this.records = [];
    this.bar = h("div", { class: "bar" });
    this.status = h("div", { class: "status", role: "status" });
    this.list = new ChangeList(explorer, (record) => this.choose(record));
    this.side = h("aside", { class: "fx-side w", "aria-label": "Record", hidden: true, onkeydown: (event) => event.key === "Escape" && this.choose(null) });
    this.root = h("div", { class: "fx-col" }, this.bar, this.status, h("div", { class: "fx-split v" }, this.list.root, this.side));
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.list.root.addEventListener("scroll", () => this.scrolled());
    this.makeBar();
  }

  show() {
    this.explorer.setCode(this.code, this);
    if (this.explorer.isAlone && !this.asked) this.list.showNone(h("div", { class: "empty" }, h("h3", null, "Not in the saved view"), h("p", null, "The changelog is read from the cluster and the lake. Run the cell again to see it.")));
    else if (!this.asked && !this.tail) this.ask();
  }

  /** What failed since no server answered is asked again when one does. */
  update(what) {
    const { again } = this;
    if (what === "schema") this.draw();
    if (what !== "head" || !again || !this.explorer.channel.pauses.isDue(this.failedSlot)) return;
    this.again = null;
    again();
  }

  /** Shows the records of a bucket from an offset on. */
  openAt(partition, bucket, offset) {
    if (this.tail) this.follow("stop");
    this.bucket = { partition, bucket };
    this.start = "offset";
    this.value = String(offset);
    this.newestFirst = false;
    this.net = false;
    this.makeBar();
    this.ask();
  }

  key(event) {
    if (event.key !== " " || !this.tail || event.target.closest("button, input")) return;
    event.preventDefault();
    event.stopPropagation();
    this.follow(this.tail.op === "pause" ? "resume" : "pause");
  }

  // -- the live tail -------------------------------------------------------------------------------------------------

  follow(op) {
    const was = this.tail;
    this.tail = op === "stop" ? null : { rate: 0, held: 0, limit: 10000, skipped: 0, total: 0, ...was, op: op === "start" ? "resume" : op, state: op === "pause" ? "paused" : "following" };
    clearInterval(this.beating);
    if (this.tail) this.beating = setInterval(() => this.tailAsk(this.tail.op), BEAT_MS);
    if (op === "start") {
      this.explorer.channel.drop("changes");
      this.asked = true;
      this.records = [];
      this.answer = null;
      this.newestFirst = true;
      this.net = false;
      this.choose(null);
      this.list.showNone(h("div", { class: "empty" }, h("h3", null, "Nothing new yet"), h("p", null, "Records show here as they are written.")));
    }
    const hadFocus = this.bar.contains(document.activeElement);
    this.makeBar();
    if (hadFocus) this.bar.querySelector(`[data-key="${this.tail ? "pause" : "tail"}"]`).focus();
    this.tailAsk(op);
    if (this.tail) this.drawTail();
    else if (this.answer) this.draw();
    else this.drawNothing();
  }

  /** Of a tail that has ended, and in which no record came. */
  drawNothing() {
    refill(this.status, h("span", null, "The live tail has ended."));
    this.list.showNone(h("div", { class: "empty" }, h("h3", null, "Nothing new came"), h("p", null, "The live tail has ended. Records show here when they are read again.")));
  }

  tailAsk(op) {
    this.explorer.ask("tail", "tail", { op }, (answer) => {
      if (!this.tail) return undefined;
      if (!answer.error) return this.cameIn(answer);
      this.follow("stop");
      return this.failed(answer.error, "tail", () => this.follow("start"));
    });
  }

  cameIn(answer) {
    if (answer.state === "ended") {
      this.follow("stop");
      return void this.explorer.say("The live tail has ended");
    }
    const before = this.tail.state, isAway = this.list.root.scrollTop > AWAY_PX, count = answer.types.length;
    // Of answers that were lost on the way nothing is shown.
    const skipped = this.tail.skipped + answer.total - this.tail.total - (isAway ? 0 : count);
    this.tail = { ...this.tail, rate: answer.rate, held: answer.held, limit: answer.limit, state: answer.state, total: answer.total, skipped };
    if (answer.code) this.explorer.setCode((this.code = answer.code), this);
    if (count && !isAway) {
      const fresh = recordsOf(answer);
      this.answer = answer;
      this.window = null;
      this.records = [...this.records, ...fresh].slice(-TAIL_MAX);
      this.isWhole = false;
      this.list.add(fresh.reverse(), answer.columns, DRAWN_MAX);
    }
    if (answer.state !== "following") this.drawWhole();
    if (before !== answer.state) this.explorer.say(TAIL_STATES[answer.state].slice(1).join(": "));
    this.drawTail();
  }

  scrolled() {
    if (this.list.root.scrollTop > AWAY_PX) this.drawWhole();
  }

  /** Draws all records of the tail that are kept: it does not move now. */
  drawWhole() {
    if (!this.tail || this.isWhole || !this.records.length) return;
    this.isWhole = true;
    this.list.show([...this.records].reverse(), this.answer.columns);
  }

  drawTail() {
    const { state, rate, held, limit, skipped } = this.tail, [mark, text, more] = TAIL_STATES[state];
    refill(this.status, stateMark(mark, text), h("span", null, h("b", null, number(state === "following" ? rate : 0)), " records/s"),
      skipped && !more ? h("span", { "data-key": "skipped" }, h("b", null, number(skipped)), " more came, not shown") : null,
      h("span", { class: "st" }, "buffer", h("span", { class: "prog" }, h("i", { style: { width: `${Math.min(100, (held / limit) * 100)}%` } })), h("span", null, `${number(held)} of ${number(limit)}`)),
      h("span", { class: "sp" }), more ? h("span", { class: "warn cut" }, more) : null);
  }

  // -- what is asked for ---------------------------------------------------------------------------------------------

  makeBar() {
    const isKeyed = this.explorer.data.head && this.explorer.data.head.kind === "pk", isTime = this.start === "time", isOffset = this.start === "offset";
    const { tail } = this;
    if (tail) {
      const isPaused = tail.op === "pause";
      refill(this.bar, h("span", { class: "mut sm" }, "new records as they come"), h("span", { class: "sp" }),
        button(isPaused ? "Resume" : "Pause", { icon: isPaused ? "play" : "pause", on: () => this.follow(isPaused ? "resume" : "pause"), key: "pause" }), button("Stop", { icon: "x", on: () => this.follow("stop") }));
      return;
    }
    const starts = segmented("Start", STARTS, this.start, (start) => {
      this.start = start;
      this.newestFirst = start === "newest";
      this.value = start === "offset" ? "0" : "";
      this.bucket = this.bucket || this.firstBucket();
      this.makeBar();
      this.bar.querySelector(`[data-value="${start}"]`).focus();
      if (start !== "time") this.ask();
    });
    // A notebook keeps Enter from a field that does not take it; leaving the field applies it too.
    const apply = (event) => {
      const text = event.target.value.trim(), isEntered = event.key === "Enter";
      if (isEntered) {
        event.preventDefault();
        event.stopPropagation();
      } else if (event.type === "keydown") return;
      if (!text || (text === this.value && !isEntered)) return;
      this.value = text;
      this.ask();
    };
    const value = field({ class: `mono ${isTime ? "when" : "short"}`, label: isTime ? "Time" : "Offset", value: this.value, placeholder: isTime ? "10 minutes ago" : "0", onchange: apply, onkeydown: apply });
    const order = button(h("span", { class: "hide-m" }, this.newestFirst ? "Newest first" : "Oldest first"), { icon: this.newestFirst ? "down" : "up", title: "Turn the order round", off: this.net, on: () => {
      this.newestFirst = !this.newestFirst;
      this.makeBar();
      this.bar.querySelector('[title="Turn the order round"]').focus();
      this.draw();
    } });
    const net = h("button", { type: "button", class: "sw", role: "switch", "aria-label": "Net changes", "aria-checked": String(this.net), onclick: () => {
      this.net = !this.net;
      this.makeBar();
      this.bar.querySelector('[role="switch"]').focus();
      // Of the newest records, the net changes are those of what is shown.
      this.ask(this.net && this.start === "newest" && this.window ? { window: this.window } : {});
    } }, h("i"), "Net", h("span", { class: "hide-m" }, " changes"));
    refill(this.bar, h("span", { class: "mut sm hide-n" }, "from"), starts, isTime || isOffset ? value : null,
      isOffset && this.bucket ? h("span", { class: "sm mut cut", style: { minWidth: "56px" } }, `of ${this.bucketName(this.bucket)}`) : null, order, h("span", { class: "sp" }), isKeyed ? net : null,
      button(h("span", { class: "hide-m" }, "Read again"), { class: "ghost", icon: "rerun", title: "Read again", on: () => this.ask() }), button("Live tail", { class: "pri", icon: "play", on: () => this.follow("start"), key: "tail" }));
  }

  firstBucket() {
    const { buckets } = this.explorer.data;
    return buckets && buckets.rows.length ? { partition: buckets.rows[0][0], bucket: buckets.rows[0][1] } : { partition: null, bucket: 0 };
  }

  bucketName({ partition, bucket }) {
    return partition == null ? `bucket ${bucket}` : `${partition} / ${bucket}`;
  }

  /** Asks for records from the start that is chosen, or for those beside a window. */
  ask(more = {}) {
    this.asked = true;
    this.again = null;
    const body = { start: this.start, value: this.value || "", net: this.net, ...more };
    if (this.start === "offset") Object.assign(body, this.bucket || this.firstBucket());
    // What was pressed there stays until there is an answer.
    const { activeElement } = document, pressed = this.status.contains(activeElement) ? [h("span", { class: "sp" }), activeElement] : null;
    keepFocus([this.status], () => refill(this.status, h("span", null, `Reading the changelog of ${this.explorer.path} …`), pressed), () => null);
    this.explorer.ask("changes", "changes", body, (answer) => (answer.error ? this.failed(answer.error, "changes", () => this.ask(more)) : this.took(answer, more)));
  }

  failed(error, slot, again) {
    if (error.retriable) [this.failedSlot, this.again] = [slot, again];
    keepFocus([this.status, this.list.root], () => {
      refill(this.status);
      if (this.records.length) refill(this.status, h("span", { class: "bad st cut", role: "alert" }, error.text), h("span", { class: "sp" }), button("Try again", { class: "sm ghost", key: "retry", on: again }));
      else this.list.showNone(this.explorer.errorView(error, again));
    }, () => this.root.querySelector('[data-key="retry"]') || this.list.root);
  }

  took(answer, { window, older }) {
    const found = recordsOf(answer), isBeside = window != null && !this.net;
    if (!isBeside) {
      this.records = found;
      this.list.choose(null);
      this.side.hidden = true;
      this.list.root.scrollTop = 0;
    } else this.records = older ? [...found, ...this.records].slice(0, answer.kept) : [...this.records, ...found].slice(-answer.kept);
    joinUpdates(this.records);
    this.answer = answer;
    this.isOfShown = this.net && window != null;
    this.window = answer.window;
    this.code = answer.code;
    this.explorer.setCode(this.code, this);
    this.draw();
    this.explorer.say(plural(found.length, "record"));
  }

  draw() {
    if (!this.tail && this.answer) keepFocus([this.status, this.list.root], () => this.drawRecords(this.answer), () => this.list.root.querySelector("tr.pick") || this.list.root);
  }

  drawRecords(answer) {
    const { records } = this, count = records.length, beside = (text, older) => button(text, { class: "sm ghost", key: older ? "older" : "newer", on: () => this.ask({ window: this.window, older }) });
    const from = this.isOfShown ? "what was shown" : { newest: answer.newer ? "before the newest" : "the newest", earliest: "from the earliest", time: `from ${this.value}`, offset: `from offset ${this.value}` }[this.start];
    const all = answer.records == null ? "" : this.net ? ` of ${plural(answer.records, "record")}` : ` of ${number(answer.records)} records`;
    refill(this.status, h("span", null, answer.limited ? "the first " : null, h("b", null, number(count)), this.net ? ` net changes${all}` : all || " records that came"), h("span", null, answer.records == null ? "the live tail has ended" : from),
      h("span", { class: "hide-n" }, this.net ? "by bucket and offset" : this.newestFirst ? "newest first" : "oldest first"), h("span", { class: "sp" }),
      answer.older ? beside("Older", true) : null, answer.newer ? beside("Newer", false) : null);
    if (!count) this.list.showNone(h("div", { class: "empty" }, h("h3", null, "No record there"), h("p", null, "Nothing was written from that start on. Records show here when they are read again.")));
    else this.list.show(this.newestFirst && !this.net ? [...records].reverse() : records, answer.columns);
  }

  choose(record) {
    const hadFocus = this.side.contains(document.activeElement), before = this.list.chosen;
    this.list.choose(record);
    this.side.hidden = !record;
    if (record) {
      this.drawRecord(record);
      this.askWhole(record);
    } else if (hadFocus) (before && before.row && before.row.isConnected ? before.row : this.list.root.querySelector("tr.pick"))?.focus();
  }

  drawRecord(record) {
    refill(this.side, this.list.detail(record, button("", { class: "sm ghost icon", icon: "x", title: "Close record (Esc)", on: () => this.choose(null) })));
  }

  /** Asks for the values of a record of which the row has only a part, and for those of the other record of its update. */
  askWhole(record) {
    const both = [record, record.other].filter(Boolean), { partition, bucket } = record, { schema } = this.explorer.data;
    const isPart = both.some((each) => each.cut) || (schema && schema.columns.length > this.list.columns.length);
    if (!isPart || both.every((each) => each.whole)) return;
    this.explorer.ask("change", "change", { partition, bucket, offsets: both.map(({ offset }) => offset) }, (answer) => {
      if (this.list.chosen !== record) return;
      if (answer.error) return void this.explorer.say(answer.error.text);
      both.forEach((each, at) => (each.whole = answer.records[at]));
      const hadFocus = this.side.contains(document.activeElement);
      this.drawRecord(record);
      if (hadFocus) this.side.querySelector("button").focus();
    });
  }

  close() {
    if (this.tail) this.follow("stop");
    clearInterval(this.beating);
    this.records = [];
  }
}

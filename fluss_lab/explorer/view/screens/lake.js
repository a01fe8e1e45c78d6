// The screen Lake: its snapshots over time, and what the chosen one holds.

import { button, h, pairs, refill, rowList, s, segmented, stateMark } from "../parts/dom.js";
import { bytes, number, plural } from "../parts/figures.js";
import { DIAMOND, kindOf, TimeLine } from "../parts/time_line.js";

const PARTS = [["files", "Files"], ["manifests", "Manifests"], ["partitions", "Partitions"], ["schemas", "Schemas"], ["refs", "Refs"]];
const BAR_UNITS = 600;

/** A snapshot of an answer by name. */
const snapshotOf = ([id, time, operation, ours, rows, files, totalRows, totalFiles, deletes, tags]) => ({ id, time, operation, ours, rows, files, totalRows, totalFiles, deletes, tags });

export class Lake {
  constructor(explorer) {
    this.explorer = explorer;
    this.part = "files";
    this.chosen = null;
    this.status = h("div", { class: "status", role: "status" });
    this.compact = explorer.actions.button("compact", { class: "sm ghost" });
    this.acted = explorer.actions.note();
    this.line = new TimeLine(`fx-${explorer.id}-snapshot`, explorer, (at) => this.choose(this.snapshots[at].id));
    this.frame = h("div", { class: "fx-times" }, this.line.root);
    this.facts = h("div", { class: "read" });
    this.list = rowList("What the snapshot holds");
    this.side = h("aside", { class: "fx-side w", "aria-label": "Files of a bucket", hidden: true, onkeydown: (event) => event.key === "Escape" && this.open(null) });
    const parts = segmented("Part of the lake", PARTS, this.part, (part) => {
      this.part = part;
      this.open(null);
      this.askPart();
    }, "sm");
    this.below = [h("div", { class: "status tall" }, this.facts, h("span", { class: "sp" }), parts), h("div", { class: "fx-split v" }, this.list, this.side)];
    this.whole = [this.status, this.frame, ...this.below];
    this.root = h("div", { class: "fx-col" }, h("p", { class: "sm mut pad" }, explorer.waitingText()));
    this.resizing = new ResizeObserver(() => this.line.draw());
    this.resizing.observe(this.frame);
  }

  show() {
    this.explorer.setCode(this.code, this);
    this.line.draw();
    if (this.explorer.isAlone && !this.answer) refill(this.root, h("p", { class: "sm mut pad" }, "Nothing of the lake is saved with the view: run the cell to read it."));
    else if (!this.explorer.channel.isWaiting("lake")) this.ask(this.before);
  }

  /** The table has changed: when a round has ended there is another snapshot. */
  update(what) {
    if (what === "action" && this.answer && !this.before && !this.explorer.actions.run) this.ask();
    const { head } = this.explorer.data, { again } = this;
    if (what === "head" && again) {
      if (!this.explorer.channel.pauses.isDue(this.failedSlot)) return undefined;
      this.again = null;
      return again();
    }
    if (what !== "head" || !this.answer || this.before || this.explorer.channel.isWaiting("lake")) return undefined;
    if (head.last_round_ms !== this.seen.last_round_ms || head.lake_rows !== this.seen.lake_rows || head.lake_enabled !== this.answer.enabled) this.ask();
    return undefined;
  }

  ask(before = null) {
    const { last_round_ms, lake_rows } = this.explorer.data.head;
    this.explorer.ask("lake", "lake", { before }, (answer) => {
      this.seen = { last_round_ms, lake_rows };
      if (answer.error) return this.failed(answer.error, "lake", () => this.ask(before));
      this.before = before;
      return this.took(answer);
    });
  }

  failed(error, slot, again) {
    this.answer = null;
    this.code = [];
    this.explorer.setCode(this.code, this);
    refill(this.root, this.wrong(error, slot, again));
  }

  /** What no server answered is asked again when one does. */
  wrong(error, slot, again) {
    [this.failedSlot, this.again] = [slot, error.retriable ? again : null];
    return this.explorer.errorView(error, again, "The lake cannot be read");
  }

  took(answer) {
    this.answer = answer;
    this.snapshots = answer.snapshots.map(snapshotOf);
    this.code = answer.code;
    if (!this.snapshots.length) return this.drawNone(answer);
    // The newest is chosen as long as nobody has chosen another one.
    const isKept = this.snapshots.some(({ id }) => id === this.chosen) && (this.isPicked || this.snapshots.at(-1).id === this.chosen);
    if (this.root.firstChild !== this.status) refill(this.root, this.whole);
    this.drawStatus();
    if (isKept) this.draw();
    else this.choose(this.snapshots.at(-1).id, false);
    this.explorer.setCode(this.code, this);
    return null;
  }

  drawNone({ enabled, code }) {
    this.chosen = null;
    this.open(null);
    this.explorer.setCode(code, this);
    const [title, text] = enabled ? ["No snapshot yet", "The lake holds nothing of this table. The first tiering round makes a snapshot; it shows here at once."]
      : ["Not in the lake", "Only the cluster holds this table. Switched on, what the cluster still holds is tiered from its start."];
    refill(this.root, h("div", { class: "empty" }, h("h3", null, title), h("p", null, text), enabled ? null : h("pre", null, code.join("\n"))));
    return null;
  }

  drawStatus() {
    const { answer, snapshots } = this, isAll = !answer.older && !answer.newer, others = snapshots.some((each) => !["round", "compaction"].includes(kindOf(each)));
    const expired = answer.expired == null ? "" : `, ${number(answer.expired)} expired`, legend = "st hide-l";
    const count = isAll ? [h("b", null, number(answer.held)), answer.held === 1 ? " snapshot held" : " snapshots held", expired]
      : [h("b", null, `${number(answer.older + 1)}–${number(answer.older + snapshots.length)}`), ` of ${number(answer.held)} snapshots`, h("span", { class: "hide-n" }, expired)];
    const focused = this.status.contains(document.activeElement) ? document.activeElement : null;
    refill(this.status, h("span", null, count), h("span", { class: legend }, h("i", { class: "key k-lake" }), "round, height is rows"),
      h("span", { class: legend }, s("svg", { width: 10, height: 12, "aria-hidden": "true" }, s("path", { d: DIAMOND, fill: "none", stroke: "currentColor", "stroke-width": 1.3 })), "compaction"),
      others ? h("span", { class: "st hide-m" }, h("i", { class: "key k-other" }), "of others") : null, h("span", { class: "sp" }), this.acted, this.compact,
      answer.older ? button("Older", { class: "sm ghost", key: "older", on: () => this.ask(snapshots[0].id) }) : null,
      answer.newer ? button("Newest", { class: "sm ghost", key: "newest", on: () => this.ask() }) : null,
      button("Compare with now", { class: "sm ghost hide-n", on: () => this.explorer.openDiff(this.chosen) }),
      button("Read at this snapshot", { class: "sm ghost", icon: "clock", on: () => this.explorer.openSnapshot(this.chosen) }));
    if (focused) (this.status.contains(focused) ? focused : this.status.querySelector(`[data-key="${focused.dataset.key}"]`) || this.line.root).focus();
  }

  choose(id, isPicked = true) {
    this.chosen = id;
    this.isPicked = isPicked && id !== this.snapshots.at(-1).id;
    this.open(null);
    this.draw();
    this.askPart();
    if (isPicked) this.explorer.say(this.words().join(", "));
  }

  words() {
    const { time, rows, files } = this.snapshot();
    return [`${this.when(time)} ${kindOf(this.snapshot())}`, `${number(rows)} rows in ${plural(files ?? 0, "file")}`];
  }

  snapshot() {
    return this.snapshots.find(({ id }) => id === this.chosen);
  }

  when(ms) {
    return ms == null ? "–" : this.explorer.when(ms);
  }

  draw() {
    const found = this.snapshot();
    this.line.show(this.snapshots, this.snapshots.indexOf(found));
    const deletes = found.deletes && found.deletes !== "0" ? `, ${number(found.deletes)} deletes` : "";
    refill(this.facts, h("span", null, h("b", null, this.when(found.time)), ` ${kindOf(found)}`), h("span", { class: "mono hide-n" }, found.id),
      h("span", { class: "cut" }, "+", number(found.rows), " rows in ", h("b", null, number(found.files)), found.files === "1" ? " file" : " files"),
      h("span", { class: "hide-m cut" }, `${number(found.totalRows)} rows in ${number(found.totalFiles)} files after it${deletes}`));
  }

  // -- what the chosen snapshot has ----------------------------------------------------------------------------------

  askPart() {
    const { chosen, part } = this;
    if (!this.shown || this.shown.snapshot !== chosen || this.shown.part !== part) {
      clearTimeout(this.late);
      this.late = setTimeout(() => refill(this.list, h("p", { class: "sm mut pad" }, `Reading the ${part} of snapshot ${chosen} …`)), 120);
    }
    this.explorer.ask("lake_part", "lake_part", { part, snapshot: chosen }, (answer) => {
      clearTimeout(this.late);
      if (answer.error) {
        this.shown = null;
        return refill(this.list, this.wrong(answer.error, "lake_part", () => this.askPart()));
      }
      this.shown = answer;
      this.code = answer.code;
      this.explorer.setCode(this.code, this);
      return this.drawPart();
    });
  }

  drawPart() {
    const where = this.list.scrollTop, focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.at : null;
    refill(this.list, this[this.shown.part](this.shown));
    this.list.scrollTop = where;
    if (focused) this.list.querySelector(`tr[data-at="${focused}"]`)?.focus();
  }

  table(label, columns, rows, answer, pick = null) {
    const more = answer.left_out ? h("p", { class: "sm mut pad" }, `The first ${number(rows.length)}; ${number(answer.left_out)} more: the Python line gives all.`) : null;
    return [h("table", { class: "fx-t d" }, h("caption", { class: "vh" }, label),
      h("thead", null, h("tr", null, columns.map(([name, , kind]) => h("th", { scope: "col", class: kind && kind.replace("mono", "") }, name)))),
      h("tbody", null, rows.map((row, at) => h("tr", pick ? { class: `pick${at === this.opened ? " sel" : ""}`, tabindex: -1, "data-at": at, onclick: () => pick(at), onkeydown: (event) => event.key === "Enter" && pick(at) } : null,
        columns.map(([, cell, kind]) => h("td", { class: kind }, cell(row, at))))))), more];
  }

  files(answer) {
    const { buckets } = answer, most = Math.max(1, ...buckets.map((row) => row[4])), parted = buckets.some((row) => row[0] != null), byBucket = buckets.map(() => []);
    for (const file of answer.files) byBucket[file[0]].push(file);
    this.byBucket = byBucket;
    const deletes = buckets.some((row) => row[6]);
    const head = h("span", { class: "st" }, "files by size", deletes ? [h("i", { class: "key k-deletes" }), "deletes"] : null);
    return this.table("Files by bucket", [
      ...(parted ? [["partition", (row) => row[0]]] : []), ["bucket", (row) => String(row[1]), "num"], ["files", (row) => number(row[2]), "num"], ["rows", (row) => number(row[3]), "num"],
      ["bytes", (row) => bytes(row[4]), "num"], [head, (row, at) => this.bar(row, byBucket[at], most), "fx-sizes"], ["smallest", (row) => bytes(row[5]), "num hide-n"],
    ], buckets, answer, (at) => this.open(at));
  }

  /** The files of a bucket, each as wide as it is large; what is not drawn one by one is one grey part. */
  bar(row, files, most) {
    let x = 0, drawn = 0;
    const marks = files.map((file) => {
      const width = (file[7] / most) * BAR_UNITS, mark = s("rect", { x, width: Math.max(1, width - 2), height: 12, fill: "var(--fx-lake-fill)", "fill-opacity": file[1] === "data" ? 1 : 0.45 });
      x += width;
      drawn += file[7];
      return mark;
    });
    const left = ((row[4] - drawn) / most) * BAR_UNITS;
    return s("svg", { width: "100%", height: 12, viewBox: `0 0 ${BAR_UNITS} 12`, preserveAspectRatio: "none", role: "img", "aria-label": plural(row[2], "file") }, marks,
      row[2] > files.length ? s("rect", { x, width: Math.max(1, left), height: 12, fill: "var(--fx-line-2)" }) : null);
  }

  open(at) {
    const before = this.opened, hadFocus = this.side.contains(document.activeElement);
    this.opened = at;
    this.side.hidden = at == null;
    if (at != null) refill(this.side, this.filesOf(at));
    if (this.shown && this.part === "files" && before !== at) {
      for (const row of this.list.querySelectorAll("tr[data-at]")) row.classList.toggle("sel", row.dataset.at === String(at));
    }
    if (hadFocus && at == null && before != null) this.list.querySelector(`tr[data-at="${before}"]`)?.focus();
  }

  filesOf(at) {
    const row = this.shown.buckets[at], files = this.byBucket[at], name = row[0] == null ? `bucket ${row[1]}` : `${row[0]} / ${row[1]}`;
    const left = row[2] - files.length;
    return [h("div", { class: "fx-sh" }, h("h3", null, `${plural(row[2], "file")} of ${name}`), h("span", { class: "sp" }), button("", { class: "sm ghost icon", icon: "x", title: "Close files (Esc)", on: () => this.open(null) })),
      left ? h("p", { class: "mut" }, `The ${number(files.length)} that are among the largest of the snapshot; the Python line gives all.`) : null,
      files.map(([, content, first, last, from, to, rows, size, file]) => pairs([[content, h("span", { class: "mono" }, file)], ["offsets", first == null ? "–" : `${number(first)} to ${number(last)}`],
        ["records of", from == null ? "–" : `${this.when(from)} to ${this.when(to)}`], [content === "data" ? "rows" : "deletes", number(rows)], ["size", bytes(size)]]))];
  }

  manifests(answer) {
    return this.table("Manifests", [
      ["manifest", (row) => row[0], "mono wrap"], ["content", (row) => row[1]], ["added by", (row) => row[2], "mono hide-n"], ["added files", (row) => number(row[3]), "num"],
      ["existing files", (row) => number(row[4]), "num"], ["deleted files", (row) => number(row[5]), "num hide-n"], ["size", (row) => bytes(row[6]), "num"],
    ], answer.rows, answer);
  }

  partitions(answer) {
    return this.table("Partitions as Iceberg counts them: one a bucket", [
      ["partition", (row) => row[0]], ["rows", (row) => number(row[1]), "num"], ["data files", (row) => number(row[2]), "num"], ["bytes", (row) => bytes(row[3]), "num"], ["position deletes", (row) => number(row[4]), "num hide-n"],
      ["equality deletes", (row) => number(row[5]), "num hide-n"], ["changed", (row) => this.when(row[6])], ["by", (row) => row[7] || "–", "mono hide-n"],
    ], answer.rows, answer);
  }

  schemas(answer) {
    return this.table("Schemas", [
      ["schema", (row) => String(row[0]), "num"], ["current", (row) => (row[1] ? stateMark("ok", "yes") : h("span", { class: "mut" }, "no"))], ["of this snapshot", (row) => (row[2] ? "yes" : h("span", { class: "mut" }, "no"))],
      ["oldest snapshot", (row) => this.when(row[3])], ["columns", (row) => number(row[4]), "num"], ["change", (row) => row[5], "wrap"],
    ], answer.rows, answer);
  }

  refs(answer) {
    return this.table("Refs", [
      ["name", (row) => row[0], "wrap"], ["kind", (row) => row[1]], ["snapshot", (row) => (row[6] ? h("b", { class: "mono" }, row[2]) : h("span", { class: "mono" }, row[2]))], ["time", (row) => this.when(row[3])],
      ["kept for", (row) => row[4]], ["why", (row) => row[5], "mut"],
    ], answer.rows, answer);
  }

  close() {
    clearTimeout(this.late);
    this.resizing.disconnect();
  }
}

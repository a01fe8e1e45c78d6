// The screen Buckets: the numbers of the bands, as a table.

import { bandOf } from "../parts/bands.js";
import { h, refill, rowList, s, stateMark } from "../parts/dom.js";
import { bytes, number } from "../parts/figures.js";

const BAND_PX = 120;

function smallBand(band, max) {
  const x = (v) => (v / max) * BAND_PX;
  const rect = (from, to, y, fill) => (to > from ? s("rect", { x: x(from), y, width: Math.max(1.5, x(to) - x(from)), height: 4, fill }) : null);
  return s("svg", { width: BAND_PX, height: 10, "aria-hidden": "true" }, s("rect", { width: x(band.end), height: 9, fill: "var(--fx-hover)" }),
    rect(band.lakeStart, band.lakeEnd || 0, 0, "var(--fx-lake-fill)"), rect(band.start, band.end, 5, "var(--fx-log-fill)"),
    band.lakeEnd ? s("rect", { x: x(band.lakeEnd) - 1, width: 1.5, height: 9, fill: "var(--fx-ink)" }) : null);
}

export class Buckets {
  constructor(explorer) {
    this.explorer = explorer;
    this.picked = null;
    this.status = h("div", { class: "status" });
    this.hold = rowList("Buckets");
    this.root = h("div", { class: "fx-col" }, this.status, this.hold);
  }

  show() {
    this.explorer.askBuckets();
    this.draw();
  }

  update(what) {
    if (what === "buckets") this.draw();
  }

  draw() {
    const { explorer } = this, found = explorer.data.buckets;
    if (!found) return void refill(this.hold, h("p", { class: "sm mut pad" }, explorer.waitingText()));
    const bands = found.rows.map((row) => ({ ...bandOf(row, found.in_lake), row, key: JSON.stringify(row.slice(0, 2)) }));
    if (this.picked && !bands.some(({ key }) => key === this.picked)) this.picked = null;
    if (!this.picked) explorer.setCode(found.code, this);
    this.drawStatus(found, bands);
    const focused = this.hold.contains(document.activeElement) ? document.activeElement.dataset.key : null, where = this.hold.scrollTop;
    refill(this.hold, this.table(found, bands));
    this.hold.scrollTop = where;
    if (focused) [...this.hold.querySelectorAll("tr[data-key]")].find((row) => row.dataset.key === focused)?.focus();
    return undefined;
  }

  drawStatus(found, bands) {
    const sum = (of) => bands.reduce((total, band) => total + (of(band) || 0), 0), wrong = bands.filter((band) => band.error).length;
    const what = found.summed ? [h("b", null, number(bands.length)), ` sums of ${number(found.total)} buckets`] : [h("b", null, number(found.total)), found.total === 1 ? " bucket" : " buckets"];
    refill(this.status, h("span", null, what), h("span", null, h("b", null, number(sum((band) => band.end - band.start))), " records in the log, ", h("b", null, bytes(sum((band) => band.bytes)))),
      h("span", null, "lag ", h("b", null, bands.some((band) => band.lag != null) ? number(sum((band) => band.lag)) : "–")), h("span", { class: "sp" }),
      h("span", { class: wrong ? "bad" : "hide-n" }, wrong ? `${number(wrong)} not known` : "all leaders answer"));
  }

  table(found, bands) {
    const max = Math.max(1, ...bands.map((band) => Math.max(band.end, band.lakeEnd || 0))), parted = bands.some((band) => band.partition != null);
    const columns = [
      ...(parted ? [["partition", (band) => band.partition]] : []), ["bucket", (band) => String(band.bucket), "num"], ["where", (band) => smallBand(band, max)],
      ["log start", ({ row }) => number(row[2]), "num"], ["local start", ({ row }) => number(row[3]), "num hide-m"],
      ["lake end", ({ row }) => (row[7] == null ? "–" : h("span", { class: "lake" }, number(row[7]))), "num"], ["high watermark", ({ row }) => number(row[5]), "num hide-n"],
      ["end", ({ row }) => number(row[4]), "num"], ["lag", ({ lag }) => (lag ? h("b", null, number(lag)) : h("span", { class: "mut" }, number(lag))), "num"],
      ["bytes", (band) => bytes(band.bytes), "num hide-n"], ["leader", (band) => (band.leader == null || band.leader < 0 ? "–" : String(band.leader)), "num"],
      ["state", (band) => (band.error ? h("span", { title: band.error }, stateMark("bad", "not known")) : stateMark("ok", "leads"))],
    ];
    return h("table", { class: "fx-t d" }, h("caption", { class: "vh" }, "Buckets"),
      h("thead", null, h("tr", null, columns.map(([name, , kind]) => h("th", { scope: "col", class: kind }, name)))),
      h("tbody", null, bands.map((band) => {
        const pick = () => this.pick(found, band);
        return h("tr", { class: `pick${band.key === this.picked ? " sel" : ""}`, tabindex: -1, "data-key": band.key, onclick: pick, onkeydown: (event) => event.key === "Enter" && pick() },
          columns.map(([, cell, kind]) => h("td", { class: kind }, cell(band))));
      })));
  }

  pick(found, band) {
    if (found.summed) return;
    this.picked = band.key;
    const [partition, bucket] = band.row;
    this.explorer.ask("bucket", "bucket", { partition, bucket, start: band.row[7] ?? band.row[2] ?? "0" }, (answer) => {
      if (this.picked === band.key && answer.code) this.explorer.setCode(answer.code, this);
    });
    this.draw();
  }

  close() {
    this.picked = null;
  }
}

// The screen Overview: where the records are, the schema, the properties.

import { bandOf, drawBands, whereIs } from "../parts/bands.js";
import { h, pairs, refill, segmented } from "../parts/dom.js";
import { number, plural } from "../parts/figures.js";

export class Overview {
  constructor(explorer) {
    this.explorer = explorer;
    this.scale = "all";
    this.read = h("div", { class: "read" });
    this.hold = h("div", { class: "fx-scroll", tabindex: 0, role: "region", "aria-label": "Bands" });
    this.keys = h("div", { class: "keys only-m" });
    this.picture = h("div");
    this.below = h("div", { class: "only-n fx-below" });
    this.hold.append(this.keys, this.picture, this.below);
    this.side = h("aside", { class: "fx-side flat hide-n", tabindex: 0, "aria-label": "Schema" });
    const scales = segmented("Scale", [["all", "All offsets"], ["edge", "Around the boundary"]], "all", (scale) => {
      this.scale = scale;
      this.draw();
    }, "sm");
    this.root = h(
      "div", { class: "fx-split" },
      h("div", { class: "fx-left" }, h("div", { class: "status tall" }, this.read, h("span", { class: "sp" }), scales), this.hold),
      this.side,
    );
    this.resizing = new ResizeObserver(() => this.draw());
    this.resizing.observe(this.hold);
  }

  show() {
    const { explorer } = this;
    explorer.askBuckets();
    explorer.setCode(explorer.data.buckets && explorer.data.buckets.code, this);
    this.schema();
    this.draw();
  }

  /** Something of the table has changed. */
  update(what) {
    if (what === "schema") this.schema();
    if (what === "buckets") {
      this.explorer.setCode(this.explorer.data.buckets.code, this);
      this.draw();
    }
  }

  bands() {
    const found = this.explorer.data.buckets;
    return found ? found.rows.map((row, at) => ({ ...bandOf(row, found.in_lake), label: found.summed ? row[0] ?? row[1] : undefined, at })) : null;
  }

  /** What the marks mean: in the line above, and where that has no room, above the bands. */
  legend(count) {
    const key = (kind, text, style) => h("span", { class: "st" }, h("i", { class: `key ${kind}`, style }), text);
    const keys = () =>
      count > 48
        ? [key("k-lake", "only in the lake", { opacity: 0.5 }), key("k-lake", "in both"), key("k-log", "only in the log")]
        : [key("k-lake", "lake"), key("k-log", "log, local"), key("k-rem", "log, remote"), key("tick", "read boundary")];
    const more = count > 48 ? "point at a bucket for its numbers" : "left of it a read takes the lake, right of it the log";
    refill(this.read, h("span", { class: "keys hide-m" }, keys()), h("span", { class: "cut hide-l", title: more }, more));
    refill(this.keys, keys());
  }

  draw() {
    const bands = this.bands(), width = this.hold.clientWidth;
    if (width < 50) return;
    if (!bands) {
      refill(this.picture, h("p", { class: "sm mut pad" }, this.explorer.waitingText()));
      return;
    }
    this.legend(bands.length);
    const where = this.hold.scrollTop, { summed, total } = this.explorer.data.buckets;
    const what = summed ? `${bands.length} sums of ${plural(total, "bucket")}` : plural(bands.length, "bucket");
    refill(this.picture, drawBands(bands, width, {
      scale: this.scale, label: `Bands of ${what}: which offsets the lake holds, and which the log`,
      pick: (band, offset) => band.known && !summed && this.explorer.openChanges(band.partition, band.bucket, Math.min(offset, Math.max(band.start, band.end - 1))),
      hover: (band, offset) => (band ? this.point(band, offset) : this.legend(bands.length)),
    }));
    this.hold.scrollTop = where;
  }

  point(band, offset) {
    const name = band.partition != null ? `${band.partition} / ${band.bucket}` : `bucket ${band.bucket}`;
    refill(
      this.read, h("b", null, name),
      band.error ? h("span", { class: "bad cut" }, band.error) : [
        h("span", null, "offset ", h("b", null, number(offset))), h("span", null, whereIs(band, offset)),
        h("span", { class: "hide-n" }, `lag ${number(band.lag)}`),
      ],
    );
  }

  schema() {
    const { schema, schemaError, head } = this.explorer.data;
    const made = () => {
      if (!schema) return schemaError ? this.explorer.schemaErrorView() : [];
      const hidden = schema.masked ? `, ${schema.masked} hidden` : "";
      const buckets = head ? (head.partitions == null ? number(head.buckets) : `${number(head.buckets)} in ${plural(head.partitions, "partition")}`) : "–";
      return [
        h("table", { class: "fx-t d" }, h("caption", { class: "vh" }, "Schema"),
          h("thead", null, h("tr", null, [plural(schema.total, "column") + hidden, "type", "role"].map((text) => h("th", { scope: "col" }, text)))),
          h("tbody", null, schema.columns.map((column) => h("tr", null, h("td", { class: "wrap", title: column.comment }, column.name), h("td", { class: "mut words" }, column.type), h("td", { class: "mut xs words" }, column.role))))),
        h("div", { class: "sec" }, h("h3", null, "Properties"),
          pairs([["buckets", buckets], ...schema.properties.map(([key, value]) => [key, value]), ...(schema.comment ? [["comment", schema.comment]] : [])])),
      ];
    };
    refill(this.side, made());
    refill(this.below, made());
  }

  close() {
    this.resizing.disconnect();
  }
}

// The choice of the moment that is read: now, a time as it is typed, or a snapshot of the lake on a slider.

import { field, h, refill, segmented } from "./dom.js";

export class MomentChoice {
  /** `change` gets a time or a snapshot's id as text, null for now; `failed` an error. */
  constructor(explorer, change, failed) {
    this.explorer = explorer;
    this.change = change;
    this.failed = failed;
    this.asOf = null;
    this.mode = "now";
    this.modes = this.makeModes();
    this.slider = h("div", { class: "bar low", hidden: true });
    this.time = field({
      class: "mono when", label: "Moment: a time, or the id of a lake snapshot", placeholder: "10 minutes ago", key: "when",
      onkeydown: (event) => event.key === "Enter" && this.applyTime(), onchange: () => this.applyTime(),
    });
    this.time.hidden = true;
  }

  makeModes() {
    const { head } = this.explorer.data, modes = [["now", "Now"], ["time", "Time"]];
    if (this.mode === "snap" || (head && head.lake_enabled)) modes.push(["snap", "Snapshot"]);
    return segmented("As of", modes, this.mode, (mode) => this.setMode(mode));
  }

  /** Shows another choice than was made here. */
  turn(mode) {
    const before = this.modes;
    this.mode = mode;
    this.modes = this.makeModes();
    before.replaceWith(this.modes);
    this.time.hidden = mode !== "time";
    this.slider.hidden = mode !== "snap";
  }

  openSnapshot(id) {
    this.turn("snap");
    this.wanted = id;
    this.set(id);
    this.askSnapshots();
  }

  openTime(text) {
    this.time.value = text;
    this.turn("time");
    this.set(text);
  }

  set(asOf) {
    this.asOf = asOf;
    this.change(asOf);
  }

  setMode(mode) {
    this.mode = mode;
    this.wanted = null;
    this.time.hidden = mode !== "time";
    this.slider.hidden = mode !== "snap";
    if (mode === "now") this.set(null);
    else if (mode === "snap") this.askSnapshots();
    else this.time.focus();
  }

  applyTime() {
    if (this.mode === "time" && this.time.value.trim()) this.set(this.time.value.trim());
  }

  askSnapshots() {
    this.explorer.ask("snapshots", "snapshots", {}, (answer) => {
      // Somebody may have gone on to now or to a time meanwhile.
      if (this.mode !== "snap") return undefined;
      return answer.error ? this.failed(answer.error) : this.drawSlider(answer.snapshots);
    });
  }

  drawSlider(listed) {
    // Only the newest are listed: an older one that is wanted is before them.
    const isOlder = this.wanted != null && !listed.some(([id]) => id === this.wanted), snapshots = isOlder ? [[this.wanted, null, "older than those listed"], ...listed] : listed;
    if (!snapshots.length) {
      refill(this.slider, h("span", { class: "mut sm" }, "The lake has no snapshot of this table yet."));
      return;
    }
    const found = snapshots.findIndex(([id]) => id === this.asOf), begin = found < 0 ? snapshots.length - 1 : found;
    const time = (k) => (snapshots[k][1] == null ? "" : this.explorer.when(snapshots[k][1]));
    const label = h("span", { class: "cut fx-snap" });
    const say = (k) => refill(label, h("b", null, time(k)), `  ${snapshots[k][3] ? "round" : snapshots[k][2]}  `, h("span", { class: "mono mut" }, snapshots[k][0]));
    const range = field({
      type: "range", min: 0, max: snapshots.length - 1, value: begin, label: "Lake snapshot", class: "range",
      oninput: (event) => say(Number(event.target.value)), onchange: (event) => this.set(snapshots[Number(event.target.value)][0]),
    });
    range.value = begin;
    say(begin);
    refill(this.slider, h("span", { class: "mut sm" }, time(0)), range, h("span", { class: "mut sm" }, time(snapshots.length - 1)), label);
    this.set(snapshots[begin][0]);
  }

  /** Shows the moment of a saved view. */
  restore(asOf) {
    this.time.value = asOf || "";
    this.turn(asOf ? "time" : "now");
  }
}

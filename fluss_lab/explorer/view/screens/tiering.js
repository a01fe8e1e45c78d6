// The screen Tiering: whether the lake keeps up, the round under way, the rounds before it, and what went wrong.

import { button, h, icon, refill, s, stateMark } from "../parts/dom.js";
import { age, bytes, clock, number, plural } from "../parts/figures.js";
import { spark } from "../parts/spark.js";

const STATES_IN_ORDER = ["New", "Initialized", "Scheduled", "Pending", "Tiering", "Tiered"];
const STAGES = ["plan", "write", "commit", "maintain", "finish"];
const STAGE_FILLS = ["var(--fx-line-2)", "var(--fx-lake-fill)", "var(--fx-ink-2)", "color-mix(in srgb,var(--fx-lake-fill) 45%,var(--fx-bg))", "var(--fx-line-2)"];
const ROUND_MARKS = { done: "ok", limited: "warn", failed: "bad", cancelled: "off", tiering: "run" };
/** So far back the lag is drawn. */
const SPAN_MS = 1800000;

const meter = (label, right, share) => h("div", null,
  h("div", { class: "fx-mh" }, h("span", { class: share ? "cut" : "cut mut" }, label), h("span", { class: "mut" }, right)),
  h("div", { class: "meter", role: "progressbar", "aria-label": label, "aria-valuenow": Math.round(share * 100), "aria-valuemin": 0, "aria-valuemax": 100 }, h("i", { style: { width: `${share * 100}%` } })));

const seconds = (value) => (value == null ? "–" : `${value.toFixed(2)} s`);

export class Tiering {
  constructor(explorer) {
    this.explorer = explorer;
    this.bar = h("div", { class: "bar low" });
    this.note = explorer.actions.note();
    this.said = h("span");
    this.status = h("div", { class: "status", role: "status" }, this.said, h("span", { class: "sp" }), this.note);
    this.trouble = h("div");
    this.round = h("div");
    this.lag = h("div");
    this.rounds = h("div");
    this.hold = h("div", { class: "fx-scroll", tabindex: 0, role: "region", "aria-label": "Tiering" }, this.trouble, this.round, this.lag, this.rounds);
    this.root = h("div", { class: "fx-col" }, this.bar, this.status, this.hold);
  }

  show() {
    const { actions } = this.explorer;
    this.explorer.setCode(actions.run && actions.code ? actions.code : this.code, this);
    this.ask();
    this.draw();
  }

  update(what) {
    if (what === "head" && this.explorer.channel.pauses.isDue("tiering")) this.ask();
    if (what === "action") {
      this.drawBar();
      this.drawRound();
      if (!this.explorer.actions.run) this.ask();
    }
  }

  ask() {
    if (this.explorer.channel.isWaiting("tiering")) return;
    this.explorer.ask("tiering", "tiering", {}, (answer) => {
      if (answer.error) return this.failed(answer.error);
      this.answer = answer;
      this.code = answer.code;
      if (!this.explorer.actions.run) this.explorer.setCode(answer.code, this);
      return this.draw();
    });
  }

  failed(error) {
    if (this.answer) return void refill(this.said, h("span", { class: "bad cut", role: "alert" }, `${error.class}: ${error.text}`));
    if (this.roundsKey !== error.text) refill(this.rounds, this.explorer.errorView(error, () => this.ask()));
    this.roundsKey = error.text;
    return null;
  }

  draw() {
    const { answer, explorer } = this;
    if (!answer) return void refill(this.rounds, h("p", { class: "sm mut pad" }, explorer.isAlone ? "Nothing of the tiering is saved with the view: run the cell to read it." : explorer.waitingText()));
    if (!answer.enabled) {
      this.bar.hidden = true;
      return void refill(this.rounds, h("div", { class: "empty" }, h("h3", null, "Not in the lake"),
        h("p", null, "Only the cluster holds this table. Switched on, what the cluster still holds is tiered from its start."), h("pre", null, answer.todo)));
    }
    this.bar.hidden = false;
    this.drawBar();
    this.drawTrouble();
    this.drawRound();
    this.drawLag();
    return this.drawRounds();
  }

  drawBar() {
    const { answer, explorer } = this, { run } = explorer.actions;
    if (!answer || !answer.enabled) return;
    const state = run && run.kind === "round" ? "Tiering" : answer.state;
    const step = (name, kind) => h("li", { class: name === state ? "cur" : "", "aria-current": name === state ? "step" : null }, h("span", { class: kind }, name));
    const now = explorer.nowMs(), due = answer.due_ms == null ? "" : answer.due_ms > now ? `, due in ${age(answer.due_ms - now)}` : `, due since ${age(now - answer.due_ms)}`;
    const text = state === "Tiering" ? `epoch ${run && run.progress && run.progress.epoch != null ? run.progress.epoch : answer.epoch}, ${run ? "begun from here" : "held elsewhere"}` : answer.epoch == null ? "" : `epoch ${answer.epoch}${due}`;
    refill(this.bar, h("ol", { class: "steps", "aria-label": "State machine" }, STATES_IN_ORDER.map((name) => step(name)), state === "Failed" ? step("Failed", "bad") : null), h("span", { class: "sp" }), h("span", { class: "mut sm cut hide-n" }, text));
    const said = `${plural(answer.rounds.length, "round")}${answer.state === "Tiering" && !run ? ", one is under way elsewhere" : ""}`;
    if (this.said.textContent !== said) refill(this.said, said);
  }

  drawTrouble() {
    const { trouble: error } = this.answer, { explorer } = this;
    const key = JSON.stringify(error);
    if (key === this.troubleKey) return;
    this.troubleKey = key;
    if (!error) return void refill(this.trouble);
    const since = error.since_ms == null ? "" : ` since ${explorer.when(error.since_ms)}`;
    refill(this.trouble, h("div", { class: "sec" }, h("div", { class: "note", role: "alert" }, h("span", { class: "bad" }, icon("warn")),
      h("div", { class: "fx-told" }, h("p", null, h("b", null, error.class || "The coordinator gave the round up"), `${since}, ${plural(error.attempts, "attempt")}.`), h("p", { class: "mono" }, error.text),
        h("p", null, `What to do: ${error.todo}.`), error.command ? h("p", { class: "mono" }, error.command) : null,
        h("div", { class: "fx-row" }, !error.command ? null : button(`Copy “${error.command.split(" --folder ")[0]}”`, { class: "sm", icon: "copy", on: () => explorer.copy(error.command), key: "copy" }), explorer.hasTab("lake") ? button("Show the lake", { class: "sm", on: () => explorer.openTab("lake") }) : null)))));
  }

  drawRound() {
    const { actions } = this.explorer, { run } = actions;
    if (!run || run.kind !== "round") return void refill(this.round);
    const hadFocus = this.round.contains(document.activeElement), p = run.progress;
    const cancel = button(run.cancelled ? "Cancelling…" : "Cancel", { class: "sm", off: run.cancelled, on: () => actions.cancel(), key: "cancel" });
    const at = p ? STAGES.indexOf(p.stage) : 0;
    const stage = (name, k) => {
      const took = p && p.stages[name] != null && k < at ? seconds(p.stages[name]) : "", [done, tasks] = p ? p.tasks : [0, 0];
      const share = !p || k > at ? 0 : k < at ? 1 : name === "write" && p.planned ? Math.min(1, p.rows / p.planned) : tasks ? done / tasks : 0;
      return meter(name, k === at && tasks ? `${number(done)} of ${plural(tasks, "task")}` : took, share);
    };
    const text = p ? `${number(p.rows)} of ${number(p.planned)} records, ${p.seconds.toFixed(1)} s so far` : "waits for the coordinator, and for Spark where it has not started";
    refill(this.round, h("div", { class: "sec" }, h("div", { class: "fx-rh" }, h("h3", null, p && p.epoch != null ? `Round ${p.epoch}` : "Round"), h("span", { class: "mut sm cut" }, text), h("span", { class: "sp" }), cancel),
      h("div", { class: "fx-stages" }, STAGES.map(stage)),
      p && p.buckets.length ? h("div", { class: "fx-parts" }, p.buckets.map(([partition, bucket, rows, planned]) => meter(partition == null ? `bucket ${bucket}` : `${partition} / ${bucket}`, planned ? `${number(rows)} of ${number(planned)}` : number(rows), planned ? Math.min(1, rows / planned) : 0))) : null,
      p && p.bucket_count > p.buckets.length ? h("p", { class: "mut xs" }, `and ${number(p.bucket_count - p.buckets.length)} buckets with less to do`) : null));
    if (hadFocus) this.round.querySelector("button").focus();
  }

  drawLag() {
    const { answer, explorer } = this, { head } = explorer.data, to = answer.now_ms;
    const first = answer.lag.length ? Math.max(to - SPAN_MS, answer.lag[0][0]) : to - SPAN_MS, last = answer.lag.at(-1);
    const isLate = last && answer.freshness_ms != null && last[2] > answer.freshness_ms, kind = isLate ? "warn" : "";
    const freshness = answer.freshness_ms == null ? "" : `freshness ${age(answer.freshness_ms)}`;
    const part = (name, now, note, points, limit, label) => h("div", null, h("div", { class: "fx-lh" }, h("span", { class: "mut" }, name), h("b", { class: kind }, now), h("span", { class: "sp" }), h("span", { class: "mut" }, limit ? h("span", { "aria-hidden": "true" }, "┄ ") : null, note)),
      spark(points, { from: first, to, limit, label, kind }), h("div", { class: "fx-lh mut xs" }, h("span", null, clock(first, explorer.zone).slice(0, 5)), h("span", { class: "sp" }), h("span", null, "now")));
    refill(this.lag, h("div", { class: "sec g2" },
      part("Lag", last ? age(last[2]) : "not known", freshness, answer.lag.map(([time, , ms]) => [time, ms]), answer.freshness_ms, "Lag over the last 30 minutes, in milliseconds, at each round and now"),
      part("Only in the log", last ? plural(last[1], "record") : "not known", head && head.lag_complete === false ? "a bucket is not known" : "", answer.lag.map(([time, records]) => [time, Number(records)]), null, "Records only in the log over the last 30 minutes, at each round and now")));
  }

  stagesOf(parts, total, most) {
    const known = parts.map((part) => part || 0), rest = Math.max(0, (total || 0) - known.reduce((sum, part) => sum + part, 0));
    let x = 0;
    const label = STAGES.map((name, k) => `${name} ${seconds([...known, rest][k])}`).join(", ");
    return s("svg", { width: "100%", height: 10, viewBox: "0 0 200 10", preserveAspectRatio: "none", role: "img", "aria-label": label }, [...known, rest].map((part, k) => {
      const width = (part / most) * 200, rect = part ? s("rect", { x, width: Math.max(0.8, width - 0.8), height: 10, fill: STAGE_FILLS[k] }, s("title", null, `${STAGES[k]} ${seconds(part)}`)) : null;
      x += width;
      return rect;
    }));
  }

  drawRounds() {
    const { rounds } = this.answer, key = JSON.stringify(rounds);
    if (key === this.roundsKey) return;
    this.roundsKey = key;
    if (!rounds.length) return void refill(this.rounds, h("p", { class: "sm mut pad" }, "No round yet. A tiering service runs them by freshness; Tier now runs one at once."));
    const most = Math.max(0.001, ...rounds.map((round) => round[8] || 0)), { explorer } = this;
    const columns = [
      ["round", ([n]) => number(n), "num"], ["ended", ([, , end]) => (end == null ? "–" : explorer.when(end))], ["state", ([, , , state]) => stateMark(ROUND_MARKS[state] || "off", state)],
      ["rows", (row) => number(row[4]), "num"], ["files", (row) => number(row[5]), "num"], ["bytes", (row) => bytes(row[6]), "num hide-n"],
      ["rows/s", (row) => (row[4] != null && row[8] ? number(Number(row[4]) / row[8]) : "–"), "num hide-m"],
      [h("span", null, "plan, ", h("span", { class: "lake" }, "write"), ", commit, maintain, finish"), (row) => (row[11] ? h("span", { class: "cut mut fx-why", title: row[11] }, `${row[10] ? `${row[10]}: ` : ""}${row[11]}`) : this.stagesOf(row[7], row[8], most)), "fx-wide"],
      ["total", (row) => seconds(row[8]), "num"], ["snapshot", (row) => h("span", { class: "mono mut" }, row[9] ? `…${row[9].slice(-8)}` : "–"), "hide-m"],
    ];
    return void refill(this.rounds, h("table", { class: "fx-t d" }, h("caption", { class: "vh" }, "Rounds"),
      h("thead", null, h("tr", null, columns.map(([name, , kind]) => h("th", { scope: "col", class: kind }, name)))),
      h("tbody", null, rounds.map((round) => h("tr", null, columns.map(([, cell, kind]) => h("td", { class: kind }, cell(round))))))));
  }

  close() {}
}

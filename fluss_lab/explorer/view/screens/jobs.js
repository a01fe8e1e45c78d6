// The screen Jobs: what runs by itself, what has run, and what a person does about it. Of the lab, of no table.

import { button, clipped, h, pairs, redraw, refill, rowList, s, stateMark } from "../parts/dom.js";
import { age, dayClock, number, plural } from "../parts/figures.js";

const RUN_STATES = {
  queued: ["off", "queued"], running: ["run", "running"], succeeded: ["ok", "done"], failed: ["bad", "failed"], cancelled: ["off", "cancelled"], missed: ["off", "missed"],
};
const RUN_BAR_PX = 10, RUN_BARS = 12, RUN_BARS_PX = 16;
const SAYS = { start: "begins to run", rerun: "begins to run again", cancel: "is cancelled", pause: "is paused", resume: "runs again when it is due" };

/** The durations of a job's last runs, the longest as high as the row allows. */
function durationBars(durations) {
  const most = Math.max(1, ...durations.map(([ms]) => ms));
  const label = durations.length ? `Last ${plural(durations.length, "run")}: ${durations.map(([ms, state]) => `${age(ms)} ${RUN_STATES[state][1]}`).join(", ")}` : "No runs yet";
  return s("svg", { width: RUN_BARS * RUN_BAR_PX, height: RUN_BARS_PX, role: "img", "aria-label": label }, durations.map(([ms, state], at) => {
    const high = Math.max(2, (ms / most) * RUN_BARS_PX);
    return s("rect", { x: (RUN_BARS - durations.length + at) * RUN_BAR_PX, y: RUN_BARS_PX - high, width: RUN_BAR_PX - 2, height: high, fill: state === "failed" ? "var(--fx-bad)" : "var(--fx-line-2)" });
  }));
}

export class Jobs {
  constructor(explorer) {
    this.explorer = explorer;
    this.job = null;
    this.run = null;
    this.busy = new Set();
    this.note = h("span", { class: "cut", role: "status" });
    this.summary = h("span", { class: "read still" });
    this.hold = rowList("Jobs and runs");
    this.side = h("aside", { class: "fx-side w", "aria-label": "Run", hidden: true });
    this.root = h("div", { class: "fx-split v" }, h("div", { class: "fx-left" }, h("div", { class: "status" }, this.summary, h("span", { class: "sp" }), this.note), this.hold), this.side);
    this.root.addEventListener("keydown", (event) => event.key === "Escape" && this.run && this.leave(event));
  }

  get found() {
    return this.explorer.ofLab.jobs;
  }

  /** The present; of a view that is no longer answered, when its answer was given. */
  get nowMs() {
    return this.explorer.isAlone && this.found ? this.found.now_ms : this.explorer.nowMs();
  }

  show() {
    this.explorer.setCode(this.found ? this.found.code : []);
    this.draw();
    this.poll();
  }

  poll() {
    if (!this.explorer.channel.isWaiting("lab jobs")) this.refresh();
    const run = this.detail && this.detail.run;
    if (this.run && (!run || run.id !== this.run || !this.detail.has_ended) && !this.explorer.channel.isWaiting("lab log")) this.askLog();
  }

  refresh() {
    const { explorer } = this, of = this.job;
    explorer.ask("lab jobs", "jobs", { name: of }, (answer) => {
      if (of !== this.job) return undefined;
      if (answer.error) {
        this.error = answer.error;
        return this.draw();
      }
      this.error = null;
      if (answer.of === null) this.job = null;
      explorer.ofLab.jobs = answer;
      if (explorer.page === "jobs" && !this.run && !this.acted) explorer.setCode(answer.code);
      explorer.keep();
      return this.draw();
    });
  }

  // -- what a person does --------------------------------------------------------------------------------------------

  act(op, name) {
    const { explorer } = this, key = `${op} ${name}`;
    this.busy.add(key);
    this.say("");
    this.draw();
    explorer.ask(`lab ${key}`, "jobs", { op, name }, (answer) => {
      this.busy.delete(key);
      if (answer.error) this.say(`${answer.error.class}: ${answer.error.text}`, true);
      else {
        this.say(`${name} ${SAYS[op]}`);
        this.acted = true;
        if (explorer.page === "jobs") explorer.setCode(answer.code);
        if (answer.run) this.openRun(answer.run, true);
      }
      this.refresh();
      if (this.run && !answer.run) this.askLog();
      this.draw();
    });
  }

  say(text, isWrong = false) {
    refill(this.note, text);
    this.note.title = text;
    this.note.classList.toggle("bad", isWrong);
  }

  /** What changes something is there unless the explorer is read-only, or has no kernel. */
  doing(op, name, label, o = {}) {
    if (this.explorer.opening.read_only || this.explorer.isAlone) return null;
    const isBusy = this.busy.has(`${op} ${name}`);
    return button(label, { class: "sm", key: `${op} ${name}`, off: isBusy, ...o, on: (event) => {
      event.stopPropagation();
      this.act(op, name);
    } });
  }

  pickJob(name) {
    this.job = this.job === name ? null : name;
    this.acted = false;
    this.explorer.channel.drop("lab jobs");
    this.refresh();
    this.draw();
  }

  /** Opens a run; the code line stays where something was done to get it. */
  openRun(id, acted = false) {
    this.run = id;
    this.detail = null;
    this.acted = acted;
    this.askLog();
    this.draw();
  }

  leave(event) {
    event.stopPropagation();
    const key = `run ${this.run}`;
    this.run = this.detail = null;
    this.explorer.channel.drop("lab log");
    if (this.found) this.explorer.setCode(this.found.code);
    this.draw();
    [...this.hold.querySelectorAll("tr[data-key]")].find((row) => row.dataset.key === key)?.focus();
  }

  askLog() {
    const { explorer } = this, id = this.run;
    explorer.ask("lab log", "jobs", { op: "log", name: id }, (answer) => {
      if (id !== this.run) return;
      this.detail = answer;
      if (answer.code && explorer.page === "jobs" && !this.acted) explorer.setCode(answer.code);
      this.drawSide();
    });
  }

  // -- what is drawn -------------------------------------------------------------------------------------------------

  draw() {
    const { found } = this;
    if (!found) {
      refill(this.hold, this.error ? this.explorer.errorView(this.error, () => this.refresh()) : h("p", { class: "sm mut pad" }, "Reading the jobs …"));
    } else if (found.unavailable) {
      refill(this.hold, h("div", { class: "empty" }, h("h3", null, "No jobs here"), h("p", null, found.unavailable)));
    } else if (!found.total && !found.runs.length) {
      redraw(this.hold, h("div", { class: "empty" }, h("h3", null, "No notebook is scheduled"), h("p", null, "Enter one in a cell; it shows here at once."), h("pre", null, found.code.join("\n"))));
    } else redraw(this.hold, this.schedule(found), this.runs(found));
    this.drawSummary(found);
    this.drawSide();
  }

  drawSummary(found) {
    if (!found || found.unavailable) return void refill(this.summary);
    if (this.error) return void refill(this.summary, h("span", { class: "bad" }, `${this.error.class}: ${this.error.text}`));
    const waiting = found.jobs.some((job) => !job.paused);
    const copy = button("Copy the command", { class: "sm ghost", icon: "copy", key: "copy scheduler", title: found.command, on: () => this.explorer.copy(found.command) });
    refill(this.summary, found.scheduler ? stateMark("ok", `scheduled by process ${found.scheduler}`) : waiting ? [stateMark("warn", "no scheduler runs: nothing is run when it is due"), copy] : stateMark("off", "no scheduler runs"));
    return undefined;
  }

  schedule(found) {
    const head = h("div", { class: "status" }, h("b", null, "Schedule"), h("span", null, plural(found.total, "job") + (found.total > found.jobs.length ? `, the first ${found.jobs.length} are shown` : "")));
    const columns = [
      ["job", (job) => h("b", null, clipped(job.name)), "fill"], ["cron", (job) => h("span", { class: "mono" }, job.cron)],
      ["in words", (job) => clipped(`${job.words}${job.zone === this.explorer.data.tree?.zone ? "" : ` (${job.zone})`}`, "mut"), "fill words hide-m"], ["next", (job) => this.next(job, found)],
      ["parameters", (job) => clipped(job.parameters, "mono"), "fill hide-n"], ["last 12 runs", (job) => durationBars(job.durations), "hide-n"],
      ["last", (job) => (job.durations.length ? stateMark(...RUN_STATES[job.durations.at(-1)[1]]) : h("span", { class: "mut" }, "–"))],
      ["", (job) => h("span", { class: "fx-acts" }, this.doing("start", job.name, "Run now"), job.paused ? this.doing("resume", job.name, "Resume") : this.doing("pause", job.name, "Pause")), "num"],
    ];
    return [head, found.jobs.length ? this.table("Schedule", columns, found.jobs, (job) => job.name === this.job, (job) => `job ${job.name}`, (job) => this.pickJob(job.name)) : h("p", { class: "sm mut pad" }, "No notebook is scheduled.")];
  }

  next(job, found) {
    if (job.paused) return stateMark("warn", "paused");
    const left = job.next_ms - this.nowMs;
    if (left < 0) return h("span", { class: found.scheduler ? null : "warn" }, found.scheduler ? "now" : "overdue");
    return left < 3_600_000 ? `in ${age(left)}` : dayClock(job.next_ms, this.explorer.zone, this.nowMs);
  }

  runs(found) {
    const { explorer } = this, running = found.runs.filter((run) => run.state === "running").length, failed = found.runs.filter((run) => run.state === "failed").length;
    const which = found.of == null ? "" : ` of ${found.of}`, older = found.older ? `the newest ${number(found.runs.length)}` : plural(found.runs.length, "run");
    const head = h("div", { class: "status fx-next" }, h("b", null, "Runs"), h("span", { class: "cut" }, `${older}${which}; ${running} running, ${failed} failed`), h("span", { class: "sp" }),
      found.of == null ? null : button("Of all jobs", { class: "sm ghost", key: "all jobs", on: () => this.pickJob(found.of) }));
    const columns = [
      ["state", (run) => stateMark(...RUN_STATES[run.state])], ["when", (run) => dayClock(run.started_ms ?? run.due_ms ?? run.ended_ms, explorer.zone, this.nowMs)],
      ["took", (run) => this.took(run), "num"], ["job", (run) => clipped(run.job), "fill"], ["parameters", (run) => clipped(run.parameters, "mono"), "fill hide-n"],
      ["result", (run) => clipped(run.result), "fill wide"],
      ["", (run) => (run.state === "running" || run.state === "queued" ? this.doing("cancel", run.id, "Cancel", { icon: "x" }) : run.state === "missed" ? null : this.doing("rerun", run.id, "Rerun", { icon: "rerun" })), "num"],
    ];
    return [head, found.runs.length ? this.table("Runs", columns, found.runs, (run) => run.id === this.run, (run) => `run ${run.id}`, (run) => this.openRun(run.id)) : h("p", { class: "sm mut pad" }, "No runs yet.")];
  }

  took(run) {
    if (run.started_ms == null) return "–";
    return run.ended_ms == null ? `${age(this.nowMs - run.started_ms)} so far` : age(run.ended_ms - run.started_ms);
  }

  table(caption, columns, rows, isPicked, keyOf, pick) {
    return h("table", { class: "fx-t" }, h("caption", { class: "vh" }, caption),
      h("thead", null, h("tr", null, columns.map(([name, , kind]) => (name ? h("th", { scope: "col", class: kind }, name) : h("th", { scope: "col", class: kind }, h("span", { class: "vh" }, "actions")))))),
      h("tbody", null, rows.map((row) => h("tr", {
        class: `pick${isPicked(row) ? " sel" : ""}`, tabindex: -1, "data-key": keyOf(row), onclick: () => pick(row), onkeydown: (event) => event.key === "Enter" && event.target === event.currentTarget && pick(row),
      }, columns.map(([, cell, kind]) => h("td", { class: kind }, cell(row)))))));
  }

  drawSide() {
    this.side.hidden = !this.run;
    if (!this.run) return void refill(this.side);
    const { detail } = this, close = button("", { class: "sm ghost icon", icon: "x", title: "Close", key: "close run", on: (event) => this.leave(event) });
    const head = h("div", { class: "fx-sh" }, h("h3", { class: "cut" }, `Run ${this.run}`), h("span", { class: "sp" }), close);
    if (!detail) return void redraw(this.side, head, h("p", { class: "sm mut" }, "Reading its log …"));
    if (detail.error) return void redraw(this.side, head, h("p", { class: "bad wrap" }, `${detail.error.class}: ${detail.error.text}`));
    const { run } = detail, log = this.side.querySelector("pre"), atEnd = !log || log.scrollTop + log.clientHeight >= log.scrollHeight - 4, top = log ? log.scrollTop : 0;
    const file = (name, path) => (path ? [[name, h("span", { class: "fx-file" }, h("span", { class: "mono" }, path), button("", { class: "sm ghost icon", icon: "copy", key: `copy ${name}`, title: `Copy the path of the ${name}`, on: () => this.explorer.copy(path) }))]] : []);
    const facts = pairs([
      ["state", stateMark(...RUN_STATES[run.state])], ["job", run.job], ["took", this.took(run)], ...(run.attempt > 1 ? [["attempt", String(run.attempt)]] : []),
      ...(run.parameters ? [["parameters", h("span", { class: "mono" }, run.parameters)]] : []), ...(detail.secrets ? [["secrets", h("span", null, detail.secrets, h("span", { class: "mut" }, ", by name only"))]] : []),
      ...(detail.reason ? [[run.state === "failed" ? "error" : "why", h("span", { class: run.state === "failed" ? "bad" : null }, detail.reason)]] : []), ...detail.summary,
      ...file("notebook", detail.notebook), ...file("output", detail.output), ...file("log", detail.log_file),
    ]);
    const made = h("pre", { class: "fx-log", tabindex: 0, role: "group", "aria-label": "Log of the run", "data-key": "log" }, detail.log || "nothing printed");
    redraw(this.side, head, facts, detail.log_cut ? h("p", { class: "xs mut" }, "The log’s end; its file has all of it.") : null, made);
    made.scrollTop = atEnd ? made.scrollHeight : top;
    return undefined;
  }

  close() {
    this.run = this.job = null;
  }
}

// The actions on a table: begun by a click, each once, and followed to their end.

import { button, refill } from "./dom.js";

const ACTIONS = {
  round: { label: "Tier now", busy: "Tiering…", icon: "tier", body: { op: "start" } },
  compact: { label: "Compact", busy: "Compacting…", icon: null, body: {} },
};

/** Another text for each click: the kernel does nothing twice for one. */
export const clickName = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** What is under way on the present table, and how the last one ended. */
export class Actions {
  constructor(explorer) {
    this.explorer = explorer;
    this.buttons = [];
    this.notes = [];
    this.run = this.last = null;
  }

  /** Another table: what the screens of the last one have is gone. */
  reset() {
    this.buttons = this.buttons.filter((each) => each.stays);
    this.notes = [];
    this.run = this.last = null;
    this.draw();
  }

  /** A button that begins an action, and cannot be pressed while one runs; null where nothing may be changed. */
  button(kind, o = {}) {
    if (this.explorer.isReadOnly) return null;
    const label = document.createElement("span"), element = button(label, { icon: ACTIONS[kind].icon, class: o.class, on: () => this.begin(kind) });
    this.buttons.push({ kind, element, label, stays: o.stays });
    this.draw();
    return element;
  }

  /** A text of a status line: how the last action of this table ended, once one has. */
  note() {
    const element = document.createElement("span");
    element.className = "cut";
    this.notes.push(element);
    this.draw();
    return element;
  }

  canAct() {
    const { explorer } = this, { head } = explorer.data;
    return Boolean(head && head.lake_enabled && !explorer.isReadOnly && !explorer.isAlone && !explorer.away && !explorer.dropped);
  }

  begin(kind) {
    if (this.run || !this.canAct()) return;
    const { explorer } = this, { path } = explorer;
    this.run = { kind, progress: null };
    this.last = null;
    this.changed();
    if (kind === "round") explorer.openTab("tiering");
    explorer.ask("act", kind, { action: clickName(), ...ACTIONS[kind].body }, (answer) => {
      if (answer.error) return this.end(`${answer.error.class}: ${answer.error.text}`, true);
      this.code = answer.code;
      if (explorer.path === path) explorer.setCode(answer.code);
      return this.follow();
    });
  }

  cancel() {
    if (!this.run || this.run.cancelled) return;
    this.run.cancelled = true;
    this.changed();
    this.explorer.ask("cancel", "round", { action: clickName(), op: "cancel" }, () => {});
  }

  /** An answer about the table came: it names an action under way that another view, or a tab that was left, has begun. */
  heard(head) {
    if (head.action && !this.run) {
      this.run = { kind: head.action, progress: null };
      this.follow();
    }
    this.draw();
  }

  follow() {
    this.explorer.ask("follow", "follow", {}, (answer) => {
      if (answer.state === "running") {
        this.run = { kind: answer.action, progress: answer.progress, cancelled: answer.cancelled };
        return this.changed();
      }
      const { failure } = answer;
      if (answer.error || answer.state === "none") {
        this.run = null;  // the next answer about the table says whether it goes on
        return this.changed();
      }
      return this.end(failure ? `${failure.class}: ${failure.text}` : answer.text, Boolean(failure));
    });
  }

  end(text, isBad) {
    this.run = null;
    this.last = { text, isBad };
    this.explorer.say(text);
    this.changed();
    this.explorer.poll();
  }

  changed() {
    this.draw();
    this.explorer.header.draw();
    const screen = this.explorer.screens[this.explorer.tab];
    if (screen) screen.update("action");
  }

  draw() {
    for (const { kind, element, label } of this.buttons) {
      const isRunning = Boolean(this.run && this.run.kind === kind);
      element.disabled = !this.canAct();
      // It keeps the focus: without it, the next key would be the notebook's.
      element.setAttribute("aria-disabled", String(Boolean(this.run)));
      label.textContent = isRunning ? ACTIONS[kind].busy : ACTIONS[kind].label;
      element.setAttribute("aria-busy", String(isRunning));
    }
    for (const element of this.notes) {
      element.classList.toggle("bad", Boolean(this.last && this.last.isBad));
      element.title = this.last ? this.last.text : "";
      refill(element, this.last ? this.last.text : "");
    }
  }
}

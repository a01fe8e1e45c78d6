// The code line: what is shown, as Python.

import { button, h, icon, refill } from "./dom.js";

/** A line with its texts and comments marked. */
function painted(line) {
  return line.split(/("(?:[^"\\]|\\.)*"|#.*$)/).filter(Boolean).map((part) =>
    part[0] === '"' ? h("span", { class: "s" }, part) : part[0] === "#" ? h("span", { class: "c" }, part) : part);
}

export class CodeLine {
  constructor(say) {
    this.lines = [];
    this.isOpen = false;
    this.say = say;
    this.text = h("pre", { tabindex: 0, role: "group", "aria-label": "This view as Python" });
    this.toggle = button("", { class: "sm ghost icon", icon: "up", title: "Show all lines", expanded: "false", on: () => this.turn() });
    this.root = h(
      "div", { class: "fx-code", role: "group", "aria-label": "Copy as code" }, h("span", { class: "mut fx-ci" }, icon("code")), this.text, this.toggle,
      button("Copy as code", { class: "sm ghost", icon: "copy", on: () => this.copy() }),
    );
  }

  show(lines) {
    const next = lines || [];
    if (next.join("\n") === this.lines.join("\n")) return;
    this.lines = next;
    this.draw();
  }

  turn() {
    this.isOpen = !this.isOpen;
    this.root.classList.toggle("open", this.isOpen);
    this.toggle.setAttribute("aria-expanded", String(this.isOpen));
    this.toggle.replaceChildren(icon(this.isOpen ? "down" : "up"));
    this.toggle.setAttribute("aria-label", this.isOpen ? "Show one line" : "Show all lines");
    this.draw();
  }

  draw() {
    const last = this.lines.at(-1) || "";
    refill(this.text, this.isOpen ? this.lines.map((line, at) => [at ? "\n" : "", painted(line)]) : painted(last.trim()));
  }

  async copy() {
    const text = this.lines.join("\n");
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without the permission: what is selected can be copied by hand.
      this.isOpen || this.turn();
      getSelection().selectAllChildren(this.text);
      return this.say("The lines are selected: copy them with the keyboard");
    }
    return this.say(`Copied ${this.lines.length} ${this.lines.length === 1 ? "line" : "lines"} of Python`);
  }
}

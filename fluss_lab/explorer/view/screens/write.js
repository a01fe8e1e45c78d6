// The screen Write: one record typed into a form, checked beside the row that there is, and written.

import { button, h, keepFocus, refill, segmented, shownValue } from "../parts/dom.js";
import { clickName } from "../parts/actions.js";
import { number, plural } from "../parts/figures.js";

const MODES = { append: "Append row", upsert: "Upsert row", delete: "Delete row" };

/** What an object of an answer has for a column: one may be called as what every object inherits. */
const ofColumn = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);

export class Write {
  constructor(explorer) {
    this.explorer = explorer;
    this.mode = explorer.data.head && explorer.data.head.kind === "pk" ? "upsert" : "append";
    this.isPartial = false;
    this.values = new Map();
    this.empties = new Set();
    this.chosen = new Set();
    this.touched = new Set();
    this.parts = new Map();
    this.bar = h("div", { class: "bar" });
    this.status = h("div", { class: "status", role: "status" });
    this.hold = h("div", { class: "fx-scroll", tabindex: -1 });
    this.root = h("div", { class: "fx-col" }, this.bar, this.status, this.hold);
  }

  show() {
    this.explorer.setCode(this.code, this);
    if (!this.form) this.askForm();
  }

  update(what) {
    if (what === "schema" && this.form) this.askForm();
    if (what === "head" && this.submit) this.drawSubmit();
    if (what === "head" && !this.form && !this.isRefused && !this.explorer.channel.isWaiting("form") && this.explorer.channel.pauses.isDue("form")) this.askForm();
  }

  askForm() {
    this.explorer.ask("form", "form", {}, (answer) => {
      if (answer.error) {
        this.isRefused = !answer.error.retriable;
        return void keepFocus([this.hold], () => refill(this.hold, this.explorer.errorView(answer.error, () => this.askForm())), () => this.hold.querySelector("button"));
      }
      this.form = answer;
      this.setCode(answer.code);
      this.drawBar();
      keepFocus([this.hold], () => this.drawForm(), () => this.hold.querySelector("input"));
      return this.check();
    });
    if (!this.form) refill(this.hold, h("p", { class: "sm mut pad" }, this.explorer.isAlone ? "Nothing can be written in a saved view: run the cell to write." : this.explorer.waitingText()));
  }

  setCode(code) {
    if (!code || !code.length) return;
    this.code = code;
    this.explorer.setCode(code, this);
  }

  // -- what may be written -------------------------------------------------------------------------------------------

  refusal() {
    return this.form.refused[this.isPartial && this.mode === "upsert" ? "columns" : this.mode];
  }

  drawBar() {
    const isKeyed = this.form.refused.append === undefined, change = (made) => {
      made();
      this.checked = null;
      this.explorer.channel.drop("check");
      this.tried = false;
      this.drawBar();
      this.drawForm();
      this.check();
    };
    const modes = isKeyed ? segmented("Kind of write", [["upsert", "Upsert"], ["delete", "Delete"]], this.mode, (mode) => change(() => (this.mode = mode))) : h("b", { class: "sm" }, "Append one record");
    const which = this.mode === "upsert" ? segmented("Columns", [["all", "All columns"], ["some", "Chosen columns"]], this.isPartial ? "some" : "all", (value) => change(() => (this.isPartial = value === "some"))) : null;
    this.submit = button(MODES[this.mode], { class: "pri", on: () => this.write(), key: "submit" });
    this.fill = button("Fill from row", { on: () => this.fillIn(), key: "fill" });
    const hint = this.mode === "delete" ? "The row of this key goes." : this.isPartial ? "The columns that are not chosen keep their values." : "An empty field is null.";
    const hadFocus = this.bar.contains(document.activeElement) ? document.activeElement.dataset.value : null;
    refill(this.bar, modes, which, h("span", { class: "mut sm cut hide-n" }, hint, this.form.hidden ? ` ${plural(this.form.hidden, "column")} hidden.` : ""), h("span", { class: "sp" }), this.mode === "upsert" ? this.fill : null, this.submit);
    if (hadFocus) this.bar.querySelector(`[data-value="${hadFocus}"]`)?.focus();
    this.drawSubmit();
  }

  drawSubmit() {
    const { explorer } = this, why = this.refusal(), isAway = Boolean(explorer.isAlone || explorer.away || explorer.dropped);
    this.submit.disabled = Boolean(why || isAway);
    this.submit.setAttribute("aria-disabled", String(Boolean(this.isWriting)));
    this.fill.disabled = Boolean(this.isWriting || isAway || !this.checked || !this.checked.now);
    const wrong = this.shownErrors().size;
    if (this.isWriting) return void refill(this.status, h("span", null, "Waiting for the server to acknowledge …"));
    if (why) return void refill(this.status, h("span", { class: "bad cut", role: "alert", title: why }, why));
    if (this.failure) return void refill(this.status, h("span", { class: "bad cut", role: "alert", title: this.failure }, this.failure));
    if (wrong) return void refill(this.status, h("span", { class: "bad" }, wrong === 1 ? "1 field does not fit" : `${wrong} fields do not fit`));
    return void refill(this.status, h("span", { class: "cut" }, this.done || this.rowText()));
  }

  rowText() {
    const { checked } = this;
    if (!checked || this.mode === "append") return "";
    if (checked.now) return this.mode === "delete" ? "There is a row of this key." : "The row exists: it is replaced.";
    return Object.keys(checked.errors).some((name) => this.isKey(name)) ? "" : this.mode === "delete" ? "There is no row of this key." : "There is no row of this key yet: it is a new one.";
  }

  isKey(name) {
    return this.form.fields.some((field) => field.name === name && field.is_key);
  }

  // -- the form ------------------------------------------------------------------------------------------------------

  drawForm() {
    const fields = this.form.fields.filter((field) => this.mode !== "delete" || field.is_key), { activeElement } = document;
    const [typed] = [...this.parts].find(([, { input }]) => input === activeElement) || [];
    this.parts.clear();
    refill(this.hold, h("form", { class: "form", onsubmit: (event) => event.preventDefault() }, fields.map((field, at) => this.row(field, at))));
    const part = this.parts.get(typed);
    if (part) part.input.focus();
    if (part && activeElement.setSelectionRange) part.input.setSelectionRange(activeElement.selectionStart, activeElement.selectionEnd);
    this.drawNotes();
  }

  row(field, at) {
    const { name } = field, id = `fx-${this.explorer.id}-field-${at}`;
    const typed = (event) => {
      this.values.set(name, event.target.value);
      this.failure = this.done = null;
      this.choose(name, true);
      this.drawEmpty(name);
    };
    const left = () => {
      this.touched.add(name);
      this.check();
    };
    const input = h("input", { class: `inp ${field.kind === "number" ? "num" : ""}`, id, type: "text", value: this.values.get(name) ?? "", placeholder: "null", spellcheck: "false", autocomplete: "off", "data-field": name, "aria-describedby": `${id}-n`, oninput: typed, onchange: left });
    const empty = field.has_empty ? h("button", { type: "button", class: "btn sm ghost", onclick: () => {
      if (!this.empties.delete(name)) this.empties.add(name);
      this.touched.add(name);
      this.choose(name, true);
      this.drawEmpty(name);
      this.check();
    } }) : null;
    const box = this.mode === "upsert" && this.isPartial && !field.is_key ? h("input", { type: "checkbox", "aria-label": `Write ${name}`, onchange: (event) => {
      this.choose(name, event.target.checked);
      this.check();
    } }) : null;
    if (box) box.checked = this.chosen.has(name);
    const note = h("span", { id: `${id}-n`, class: "mut fx-note" });
    this.parts.set(name, { field, input, empty, box, note });
    this.drawEmpty(name);
    return [h("div", { class: "fx-label" }, box, h("label", { for: id, title: field.comment }, h("span", null, name, field.needs ? h("b", null, " *") : null), h("span", { class: "xs mut" }, field.type))), h("div", { class: "fx-in" }, input, empty), note];
  }

  choose(name, isChosen) {
    if (isChosen) this.chosen.add(name);
    else this.chosen.delete(name);
    const part = this.parts.get(name);
    if (part && part.box) part.box.checked = isChosen;
  }

  /** What an empty field of a text stands for. */
  drawEmpty(name) {
    const { input, empty } = this.parts.get(name), isEmpty = this.empties.has(name);
    input.placeholder = isEmpty ? "empty" : "null";
    if (!empty) return;
    empty.hidden = input.value !== "";
    empty.textContent = isEmpty ? "make it null" : "make it empty";
  }

  text(name) {
    const text = this.values.get(name) ?? "";
    return text === "" && !this.empties.has(name) ? null : text;
  }

  body(isCheck) {
    const names = [...this.parts.keys()], columns = this.mode === "upsert" && this.isPartial ? names.filter((name) => this.chosen.has(name) || this.isKey(name)) : null;
    const values = Object.fromEntries((columns || names).map((name) => [name, this.text(name)]).filter(([, text]) => text !== null));
    return { action: clickName(), mode: this.mode, values, columns, check: isCheck };
  }

  // -- checked and written -------------------------------------------------------------------------------------------

  check() {
    if (this.refusal() || this.explorer.isAlone) return this.drawSubmit();
    return this.explorer.ask("check", "write", this.body(true), (answer) => {
      if (answer.error) {
        this.failure = `${answer.error.class}: ${answer.error.text}`;
        return this.drawSubmit();
      }
      this.checked = answer;
      this.setCode(answer.code);
      this.drawNotes();
      return this.drawSubmit();
    });
  }

  write() {
    if (this.isWriting || this.refusal()) return;
    this.isWriting = true;
    this.failure = this.done = null;
    this.explorer.channel.drop("check");
    this.drawSubmit();
    const { explorer } = this;
    explorer.ask("write", "write", this.body(false), (answer) => {
      this.isWriting = false;
      if (answer.error) {
        this.failure = `${answer.error.class}: ${answer.error.text}`;
        explorer.say(this.failure);
      } else if (answer.written) {
        this.done = this.doneText(answer);
        this.tried = false;
        explorer.say(this.done);
        explorer.poll();
        this.check();
      } else {
        this.tried = true;
        this.checked = answer;
        this.drawNotes();
        const first = [...this.parts.values()].find(({ field }) => ofColumn(answer.errors, field.name));
        if (first) first.input.focus();
      }
      this.setCode(answer.code);
      this.drawSubmit();
    });
  }

  doneText({ offsets, ms }) {
    const changed = offsets.filter(([, , base, end]) => base !== end);
    const place = changed.map(([partition, bucket, base, end]) => `${partition == null ? "" : `${partition} / `}bucket ${bucket}, ${BigInt(end) - BigInt(base) === 1n ? `offset ${number(base)}` : `offsets ${number(base)} to ${number(String(BigInt(end) - 1n))}`}`);
    return `Acknowledged in ${ms} ms: ${place.join("; ") || "nothing changed"}`;
  }

  fillIn() {
    const { now, long } = this.checked;
    for (const [name, { input }] of this.parts) {
      const text = ofColumn(now, name);
      if (long.includes(name) || text === undefined) continue;
      this.values.set(name, text ?? "");
      if (text === "") this.empties.add(name);
      else this.empties.delete(name);
      input.value = text ?? "";
      this.drawEmpty(name);
    }
    this.failure = this.done = null;
    this.check();
  }

  shownErrors() {
    const errors = this.checked ? this.checked.errors : {};
    return new Map(Object.entries(errors).filter(([name]) => this.parts.has(name) && (this.tried || this.touched.has(name))));
  }

  drawNotes() {
    const errors = this.shownErrors();
    for (const [name, { field, input, note }] of this.parts) {
      const error = errors.get(name);
      input.classList.toggle("err", Boolean(error));
      input.setAttribute("aria-invalid", String(Boolean(error)));
      note.className = error ? "bad fx-note" : "mut fx-note";
      refill(note, error || this.beside(field));
    }
  }

  /** What stands beside a field: what the row of the key has now. */
  beside(field) {
    const { checked } = this, { name } = field;
    if (field.is_key) return checked && checked.now ? "key; the row exists" : field.needs || "";
    if (!checked || !checked.now || this.mode !== "upsert") return field.needs ? `must have a value: ${field.needs}` : "";
    const was = ofColumn(checked.now, name), old = h("span", null, shownValue(was)), isLong = checked.long.includes(name);
    if (this.isPartial && !this.chosen.has(name)) return ["stays ", old];
    if (checked.same.includes(name)) return "as it is now";
    return [h("span", { class: "old" }, shownValue(was)), " ", h("mark", null, shownValue(this.text(name))), isLong ? " too long to be filled in: choose columns to keep it" : ""];
  }

  close() {}
}

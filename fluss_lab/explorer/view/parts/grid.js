// The grid of rows: drawn only where it can be seen, however many rows there are.

import { h, skeleton } from "./dom.js";

export const ROW_PX = 24;
/** Elements are limited to some 16 million px; above so many rows the scroll position stands for a row number. */
const ROWS_REAL_MAX = 600000;
/** Rows drawn above and below those that can be seen. */
const BESIDE_ROWS = 4;
/** Places of rows are counted from every so many: no number of pixels becomes too large. */
const BASE_ROWS = 10000;

/**
 * `o`: id, label, gutterWidth, gutterHead(), gutter(i), head(column), cell(i, column) (undefined: not there yet), version(i) (another one when a cell is), open(i),
 * seen(first, last, missing), close().
 */
export class Grid {
  constructor(o) {
    this.o = o;
    this.columns = [];
    this.count = 0;
    this.row = 0;
    this.column = 0;
    this.chosen = -1;
    this.position = 0;
    this.drawn = new Map();
    this.layer = h("div", { class: "fx-gl", role: "presentation" });
    this.body = h("div", { class: "fx-gb", role: "presentation" }, this.layer);
    this.head = h("div", { class: "fx-gh", role: "row", "aria-rowindex": 1 });
    this.root = h("div", { class: "fx-grid", role: "grid", tabindex: 0, "aria-label": o.label }, this.head, this.body);
    this.root.addEventListener("scroll", () => this.scrolled());
    this.root.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.root.addEventListener("keydown", (event) => this.key(event));
    for (const event of ["focus", "blur"]) this.root.addEventListener(event, () => this.mark());
    this.resizing = new ResizeObserver(() => this.resized());
    this.resizing.observe(this.root);
  }

  /** The room for rows has changed, or may have. */
  resized() {
    this.sizes = null;
    this.later();
  }

  /** Shows where the keyboard is. Nothing is drawn anew: a click that begins now must end on the same element. */
  mark() {
    const cell = this.body.querySelector(`[id="${this.o.id}-cell"]`), hasFocus = document.activeElement === this.root;
    if (cell) cell.classList.toggle("cur", hasFocus);
    if (cell && hasFocus) this.root.setAttribute("aria-activedescendant", cell.id);
    // What is scrolled away is not there.
    else this.root.removeAttribute("aria-activedescendant");
  }

  /** Shows other columns: `{name, width, isNumber}`. */
  setColumns(columns) {
    this.columns = columns;
    this.version = (this.version || 0) + 1;
    let x = this.o.gutterWidth;
    this.lefts = columns.map((column) => {
      const left = x;
      x += column.width;
      return left;
    });
    this.width = x;
    this.column = Math.min(this.column, Math.max(0, columns.length - 1));
    this.root.setAttribute("aria-colcount", columns.length + 1);
    this.later();
  }

  /** Says how many rows there are; the place stays. */
  setCount(count) {
    if (count === this.count) return;
    this.count = count;
    this.root.setAttribute("aria-rowcount", count + 1);
    this.sizes = null;
    this.body.style.height = `${Math.max(1, Math.min(count, ROWS_REAL_MAX) * ROW_PX)}px`;
    this.row = Math.min(this.row, Math.max(0, count - 1));
    if (this.isMapped) this.moveTo(this.position);
    this.later();
  }

  get isMapped() {
    return this.count > ROWS_REAL_MAX;
  }

  /** What only changes with the window, the columns and the number of rows: to ask for it makes the browser lay out all. */
  get size() {
    const { root, head } = this;
    if (!this.sizes || !this.sizes.width) this.sizes = { room: Math.max(ROW_PX, root.clientHeight - head.offsetHeight), width: root.clientWidth, most: root.scrollHeight - root.clientHeight };
    return this.sizes;
  }

  get roomPx() {
    return this.size.room;
  }

  get lastPosition() {
    return Math.max(0, this.count - this.roomPx / ROW_PX);
  }

  scrolled() {
    if (!this.isMapped) this.position = this.root.scrollTop / ROW_PX;
    else if (Math.abs(this.root.scrollTop - this.placed) > 1) {
      const { most } = this.size;
      this.position = most > 0 ? (this.root.scrollTop / most) * this.lastPosition : 0;
    }
    this.later();
  }

  wheel(event) {
    if (!this.isMapped || !event.deltaY || event.ctrlKey) return;
    event.preventDefault();
    this.moveTo(this.position + event.deltaY / ROW_PX);
  }

  moveTo(position) {
    this.position = Math.max(0, Math.min(this.lastPosition, position));
    if (this.isMapped) {
      const { most } = this.size;
      this.placed = Math.round(this.lastPosition ? (this.position / this.lastPosition) * most : 0);
      this.root.scrollTop = this.placed;
    } else this.root.scrollTop = this.position * ROW_PX;
    this.later();
  }

  reveal(row) {
    const room = Math.floor(this.roomPx / ROW_PX);
    if (row < this.position) this.moveTo(row);
    else if (row >= this.position + room) this.moveTo(row - room + 1);
    else this.later();
  }

  choose(row) {
    this.chosen = row;
    this.later();
  }

  later() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  /** The columns that can be seen, and some beside them. */
  span(margin = 200) {
    const left = this.root.scrollLeft, from = left - margin, to = left + this.size.width + margin;
    let first = 0;
    while (first < this.columns.length - 1 && this.lefts[first + 1] < from) first++;
    let last = first;
    while (last < this.columns.length && this.lefts[last] < to) last++;
    return [first, last];
  }

  draw() {
    if (!this.columns.length || !this.root.isConnected) return;
    const [from, to] = this.span(), columns = this.columns.slice(from, to), { o } = this;
    if (this.drawnWidth !== this.width) {
      this.drawnWidth = this.width;
      this.head.style.width = this.body.style.width = `${this.width}px`;
      this.sizes = null;
    }
    const key = [from, to, this.version, o.headVersion()].join(" ");
    if (key !== this.headKey) {
      this.headKey = key;
      this.head.replaceChildren(
        h("div", { class: "g", role: "columnheader", style: { width: `${o.gutterWidth}px` } }, o.gutterHead()),
        ...columns.map((column, k) =>
          h("div", { role: "columnheader", "aria-colindex": from + k + 2, style: { left: `${this.lefts[from + k]}px`, width: `${column.width}px` } }, o.head(column))),
      );
    }
    const first = Math.max(0, Math.floor(this.position) - BESIDE_ROWS);
    const last = Math.min(this.count, Math.ceil(this.position + this.roomPx / ROW_PX) + BESIDE_ROWS);
    const missing = this.drawRows(first, last, from, columns);
    this.mark();
    const seenLast = Math.min(this.count, Math.floor(this.position + this.roomPx / ROW_PX));
    o.seen(Math.floor(this.position), seenLast, missing);
  }

  /** Draws these rows, those anew that were not there or have changed; returns the first that is not known yet, or -1. */
  drawRows(first, last, from, columns) {
    const base = Math.floor(first / BASE_ROWS) * BASE_ROWS;
    this.layer.style.top = `${this.isMapped ? 0 : base * ROW_PX}px`;
    this.layer.style.transform = this.isMapped ? `translateY(${this.root.scrollTop - (this.position - base) * ROW_PX}px)` : "";
    const drawn = new Map();
    let missing = -1;
    for (let i = first; i < last; i++) {
      const key = `${base} ${this.version} ${from} ${columns.length} ${this.o.version(i)} ${i === this.chosen} ${i === this.row ? this.column : -1}`;
      const known = this.drawn.get(i);
      drawn.set(i, known && known.key === key ? known : { key, ...this.rowOf(i, base, from, columns) });
      if (drawn.get(i).isMissing && missing < 0) missing = i;
    }
    for (const [i, { element }] of this.drawn) if (!drawn.has(i) || drawn.get(i).element !== element) element.remove();
    this.drawn = drawn;
    let next = this.layer.firstChild;
    for (const { element } of drawn.values()) {
      if (element === next) next = next.nextSibling;
      else this.layer.insertBefore(element, next);
    }
    return missing;
  }

  /** A row's element, and whether something of it is not known yet. */
  rowOf(i, base, from, columns) {
    const { o } = this, gutter = o.gutter(i);
    let isMissing = gutter === undefined;
    const cells = columns.map((column, k) => {
      const value = gutter === undefined ? undefined : o.cell(i, column);
      if (value === undefined) isMissing = true;
      const isHere = i === this.row && from + k === this.column;
      const text = typeof value === "string" && value.length * 6 > column.width ? value : null;
      return h(
        "div",
        {
          role: "gridcell", id: isHere ? `${o.id}-cell` : null, "aria-colindex": from + k + 2, title: text,
          class: column.isNumber ? "num" : "", style: { left: `${this.lefts[from + k]}px`, width: `${column.width}px` }, "data-column": from + k,
        },
        value === undefined ? skeleton(`${30 + ((i * 7 + k * 13) % 40)}%`) : value,
      );
    });
    const element = h(
      "div",
      { class: `fx-gr${i === this.chosen ? " sel" : ""}`, role: "row", "aria-rowindex": i + 2, "aria-selected": i === this.chosen ? "true" : null, style: { top: `${(i - base) * ROW_PX}px`, width: `${this.width}px` }, onclick: (event) => this.clicked(event, i) },
      h("div", { class: "g", role: "rowheader", style: { width: `${o.gutterWidth}px` } }, gutter === undefined ? skeleton("48px") : gutter),
      cells,
    );
    return { element, isMissing };
  }

  clicked(event, row) {
    const cell = event.target.closest("[data-column]");
    if (cell) this.column = Number(cell.dataset.column);
    this.row = row;
    this.o.open(row);
  }

  key(event) {
    if (event.target !== this.root || !this.count || event.altKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.roomPx / ROW_PX) - 1), last = this.columns.length - 1;
    const step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], PageDown: [page, 0], PageUp: [-page, 0] }[event.key];
    if (event.key === "Home") [this.row, this.column] = [event.ctrlKey ? 0 : this.row, 0];
    else if (event.key === "End") [this.row, this.column] = [event.ctrlKey ? this.count - 1 : this.row, last];
    else if (event.key === "Enter") this.o.open(this.row);
    else if (event.key === "Escape") this.o.close();
    else if (step) {
      this.row = Math.max(0, Math.min(this.count - 1, this.row + step[0]));
      this.column = Math.max(0, Math.min(last, this.column + step[1]));
    } else return;
    event.preventDefault();
    event.stopPropagation();
    this.reveal(this.row);
    const left = this.lefts[this.column], width = this.columns[this.column].width, seen = this.root;
    if (left - this.o.gutterWidth < seen.scrollLeft) seen.scrollLeft = left - this.o.gutterWidth;
    if (left + width > seen.scrollLeft + seen.clientWidth) seen.scrollLeft = left + width - seen.clientWidth;
  }

  close() {
    this.resizing.disconnect();
    cancelAnimationFrame(this.frame);
  }
}

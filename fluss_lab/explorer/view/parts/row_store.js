// The rows of one grid that the browser has: pages of 200, the forty last used, each with the columns that were seen.

import { sizeBytes } from "./figures.js";

export const PAGE_ROWS = 200;
const PAGES_MAX = 40;

/** The first rows of an answer `page`, as many as are no more than so many bytes of JSON. */
export function firstRows(answer, bytesMax) {
  for (let rows = answer.rows.length; ; rows = Math.floor(rows / 2)) {
    const cut = answer.cut.filter(([row]) => row < rows);
    const first = { ...answer, rows: answer.rows.slice(0, rows), cells: answer.cells.slice(0, rows), source: answer.source.slice(0, rows), cut };
    if (!rows || sizeBytes(JSON.stringify(first)) <= bytesMax) return first;
  }
}

export class RowStore {
  constructor() {
    this.pages = new Map();
    this.taken = 0;
  }

  page(number) {
    const page = this.pages.get(number);
    if (page) {
      this.pages.delete(number);
      this.pages.set(number, page);
    }
    return page;
  }

  /** Takes an answer `page` in; columns of a page that is there are added to it, unless it has fewer rows. */
  take(answer) {
    const number = Math.floor(answer.from / PAGE_ROWS), known = this.page(number);
    const page = known && known.rows.length === answer.rows.length ? known : { rows: answer.rows, source: answer.source, columns: new Map(), cut: new Set() };
    page.version = ++this.taken;
    answer.columns.forEach((name, at) => page.columns.set(name, answer.cells.map((cells) => cells[at])));
    for (const [row, at] of answer.cut) page.cut.add(`${row} ${answer.columns[at]}`);
    this.pages.set(number, page);
    while (this.pages.size > PAGES_MAX) this.pages.delete(this.pages.keys().next().value);
  }

  /** A row: partition, bucket, offset, time, and whether it came from the lake; undefined when it is not here. */
  row(i) {
    const page = this.pages.get(Math.floor(i / PAGE_ROWS)), at = i % PAGE_ROWS;
    if (!page || at >= page.rows.length) return undefined;
    const [partition, bucket, offset, time] = page.rows[at];
    return { partition, bucket, offset, time, source: page.source[at] === "L" ? "lake" : "log" };
  }

  /** A cell's text, null, or undefined when it is not here. */
  text(i, name) {
    const page = this.pages.get(Math.floor(i / PAGE_ROWS)), column = page && page.columns.get(name);
    return column ? column[i % PAGE_ROWS] : undefined;
  }

  isCut(i, name) {
    const page = this.pages.get(Math.floor(i / PAGE_ROWS));
    return Boolean(page && page.cut.has(`${i % PAGE_ROWS} ${name}`));
  }

  /** What changes with what is known of a row; 0 when it is not here. */
  version(i) {
    const page = this.pages.get(Math.floor(i / PAGE_ROWS));
    return page ? page.version : 0;
  }

  /** The columns of these that a page does not have, of a grid of so many rows; all when rows of it are not here. */
  missing(number, names, count) {
    const page = this.page(number), rows = Math.min(PAGE_ROWS, count - number * PAGE_ROWS);
    return page && page.rows.length >= rows ? names.filter((name) => !page.columns.has(name)) : names;
  }
}

// The tree: a lab's databases and tables, with the rows and one mark of each.

import { button, clipped, dot, field, h, icon, redraw, refill } from "./dom.js";
import { compact, number, plural } from "./figures.js";

export const STATES = { ok: ["ok", "within freshness"], warn: ["warn", "behind"], bad: ["bad", "failed"], off: ["off", "not in the lake"] };
/** What is of the lab, and of no table. */
export const PAGE_TITLES = { jobs: "Jobs", health: "Health" };

export class Tree {
  constructor(explorer) {
    this.explorer = explorer;
    this.words = "";
    this.lab = h("b", { class: "cut" }, "lab");
    this.servers = h("span", { class: "xs mut cut" });
    this.mark = h("span", { class: "fx-mark" });
    this.search = field({ placeholder: "Find a table", label: "Find a table", class: "sm wide", key: "search", oninput: (event) => {
      this.words = event.target.value;
      this.draw();
    } });
    this.list = h("div", { class: "fx-tl" });
    this.foot = h("div", { class: "fx-tf" });
    this.root = h("nav", { class: "fx-tree", "aria-label": "Tables" },
      h("div", { class: "fx-th" }, this.lab, this.servers, h("span", { class: "sp" }), this.mark), h("div", { class: "fx-ts" }, this.search), this.list, this.foot);
    this.list.addEventListener("keydown", (event) => this.key(event));
  }

  draw() {
    const { tree } = this.explorer.data, { away, isAlone, path, page } = this.explorer;
    this.drawFoot(tree);
    const shown = JSON.stringify([tree && [tree.lab, tree.zone, tree.servers, tree.databases], this.words, away ? 1 : 0, isAlone, path, page]);
    if (shown === this.shown) return;
    this.shown = shown;
    refill(this.lab, tree ? tree.lab : "lab");
    refill(this.servers, tree ? tree.servers.text : "");
    this.lab.title = tree ? `${tree.lab}, times in ${tree.zone}` : "";
    refill(this.mark, isAlone ? dot("off", "no kernel") : away ? dot("bad", "server does not answer") : tree ? dot(tree.servers.ok ? "ok" : "warn", tree.servers.ok ? "servers answer" : "a server is away") : dot("off", "not asked yet"));
    const focused = this.list.contains(document.activeElement) ? document.activeElement.dataset.path : null, where = this.list.scrollTop;
    refill(this.list, tree ? this.content(tree) : null);
    this.list.scrollTop = where;
    if (focused) (this.buttons().find((each) => each.dataset.path === focused) || this.search).focus();
  }

  content(tree) {
    const words = this.words.toLowerCase();
    const databases = tree.databases.map(({ name, tables }) => ({ name, tables: tables.filter((table) => table.path.toLowerCase().includes(words)) })).filter(({ tables }) => tables.length);
    if (!tree.databases.some(({ tables }) => tables.length)) return h("p", { class: "sm mut pad" }, "No tables yet.");
    if (!databases.length) return h("p", { class: "sm mut pad" }, `No table’s path contains “${this.words}”.`);
    const paths = databases.flatMap(({ tables }) => tables.map((table) => table.path)), stop = paths.includes(this.explorer.path) ? this.explorer.path : paths[0];
    return h("div", { role: "tree", "aria-label": "Databases and tables" }, databases.map(({ name, tables }) => h(
      "div", { role: "treeitem", "aria-expanded": "true", "aria-level": 1, "aria-selected": "false", "aria-label": `database ${name}` },
      h("div", { class: "fx-n db" }, icon("db"), clipped(name), h("span", { class: "r" }, number(tables.length))),
      h("div", { role: "group" }, tables.map((table) => this.leaf(table, stop))),
    )));
  }

  leaf(table, stop) {
    const { path, page } = this.explorer, isShown = table.path === path && !page;
    return h(
      "button",
      { type: "button", class: "fx-n", role: "treeitem", "aria-level": 2, "aria-selected": String(isShown), tabindex: table.path === stop ? 0 : -1, "data-path": table.path, onclick: () => this.explorer.open(table.path) },
      icon(table.kind || "log"), clipped(table.path.slice(table.path.indexOf(".") + 1)), h("span", { class: "r" }, table.rows == null ? "" : compact(table.rows)),
      table.state ? dot(...STATES[table.state]) : dot("off", "not asked yet"),
    );
  }

  /** What is of the lab: its jobs, its health. Counts are those that are known; of the doctor's findings the title says when. */
  drawFoot(tree) {
    const { page } = this.explorer, { jobs, findings } = tree || {};
    const wrong = findings && (findings.problems ? ["bad", plural(findings.problems, "problem")] : findings.warnings ? ["warn", plural(findings.warnings, "warning")] : ["ok", "fine"]);
    const leaves = [
      ["jobs", jobs ? (jobs.jobs ? `${number(jobs.jobs - jobs.paused)} scheduled` : "none") : "", jobs && jobs.paused ? `${number(jobs.paused)} paused` : null, null],
      ["health", wrong ? wrong[1] : "", findings ? `Looked at ${this.explorer.when(findings.at_ms)}` : "The doctor has not looked yet", wrong && wrong[0]],
    ];
    const shown = JSON.stringify([leaves, page]);
    if (shown === this.footShown) return;
    this.footShown = shown;
    redraw(this.foot, leaves.map(([key, text, title, mark]) => h(
      "button", { type: "button", class: "fx-n", "aria-current": page === key ? "page" : null, title, "data-key": key, onclick: () => this.explorer.openPage(key) },
      icon(key), PAGE_TITLES[key], h("span", { class: "r" }, text), mark ? dot(mark, "") : null,
    )));
  }

  buttons() {
    return [...this.list.querySelectorAll("button")];
  }

  key(event) {
    const all = this.buttons(), at = all.indexOf(event.target);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    event.stopPropagation();
    all[Math.max(0, Math.min(all.length - 1, to))].focus();
  }
}

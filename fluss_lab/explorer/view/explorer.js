// The explorer: what is shown of which table, asked for again as long as it is seen.

import { Actions } from "./parts/actions.js";
import { Buckets } from "./screens/buckets.js";
import { Changelog } from "./screens/changelog.js";
import { Channel } from "./channel.js";
import { CodeLine } from "./parts/code_line.js";
import { Data } from "./screens/data.js";
import { Diff } from "./screens/diff.js";
import { button, h, icon, refill, stateMark } from "./parts/dom.js";
import { sizeBytes } from "./parts/figures.js";
import { Header } from "./parts/header.js";
import { Lake } from "./screens/lake.js";
import { Health } from "./screens/health.js";
import { Jobs } from "./screens/jobs.js";
import { moment } from "./parts/moments.js";
import { Overview } from "./screens/overview.js";
import { pauseMs } from "./parts/pauses.js";
import { Tiering } from "./screens/tiering.js";
import { PAGE_TITLES, Tree } from "./parts/tree.js";
import { Write } from "./screens/write.js";
import { Zone } from "./parts/zone.js";

/** A table's screens, in the order of their tabs. */
const TABS = [
  ["overview", "Overview"],
  ["data", "Data"],
  ["changelog", "Changelog"],
  ["buckets", "Buckets"],
  ["lake", "Lake"],
  ["tiering", "Tiering"],
  ["diff", "Diff"],
  ["write", "Write"],
];
const SCREENS = {
  overview: Overview,
  data: Data,
  changelog: Changelog,
  buckets: Buckets,
  lake: Lake,
  tiering: Tiering,
  diff: Diff,
  write: Write,
};
/** Whether the server is there these say alone: others may fail for reasons of the lake's, or be answered without the server. */
const OF_THE_SERVER = new Set(["tree", "head"]);
/** The screens of the lab, below the tree. */
const PAGES = { jobs: Jobs, health: Health };
/** What is asked of the lab, not of the table that is shown. */
const OF_LAB = new Set(["tree", "jobs", "health"]);
/** The doctor and the disk are looked at when the explorer has been open for so long, then so often; on their screen more often. */
const FIRST_LOOK_MS = 4000, LOOK_MS = 300000;
/** What writes: not shown where nothing can be changed. */
const WRITING_TABS = ["write"];
const SEEN_MS = 2000, BACKGROUND_MS = 15000, UNSEEN_MS = 60000;
/** Without an answer for so long the view says what it waits for. */
const SILENT_MS = 4000;
const SAVE_MS = 1500;
/** Bytes. */
const SAVED_MAX = 256000;

/** Errors with a title of their own, and what to do. */
const WRONG = {
  OffsetOutOfRangeError: ["That moment is no longer available", "ask for a later moment, or raise table.datalake.changelog-retention for the future."],
  LakeSnapshotNotFoundError: ["That moment is no longer available", "choose another snapshot."],
};

let explorers = 0;

export class Explorer {
  constructor(model, host) {
    this.model = model;
    this.id = ++explorers;
    this.data = {};
    this.kept = {};
    this.screens = {};
    this.pages = {};
    this.ofLab = {};
    this.page = null;
    this.nextLook = Date.now() + FIRST_LOOK_MS;
    this.path = null;
    this.tab = "overview";
    this.away = null;
    this.dropped = null;
    this.zone = new Zone([[0, 0]]);
    this.lastSeen = Date.now();
    this.isReadOnly = Boolean(JSON.parse(model.get("saved") || "{}").read_only);
    this.tabs = TABS.filter(([key]) => !this.isReadOnly || !WRITING_TABS.includes(key));
    this.channel = new Channel(model);
    this.actions = new Actions(this);
    this.live = h("div", { class: "vh", "aria-live": "polite" });
    this.tree = new Tree(this);
    this.code = new CodeLine((text) => this.say(text));
    this.menu = button("", { class: "icon ghost fx-menu", icon: "menu", title: "Tables", expanded: "false", on: () => this.drawer(!this.isOpen) });
    this.header = new Header(this, this.tabs, this.menu);
    this.banner = h("div", { role: "status" });
    this.body = h("div", { class: "fx-body", id: `fx-${this.id}-panel`, role: "tabpanel", tabindex: -1 });
    this.app = h("div", { class: "fx-app" }, this.tree.root, h("div", { class: "fx-scrim", onclick: () => this.drawer(false) }),
      h("main", { class: "fx-main" }, this.banner, this.header.root, this.body, this.code.root));
    this.root = h("div", { class: "fx", "data-lm-suppress-shortcuts": "true" }, this.app, this.live);
    this.root.addEventListener("keydown", (event) => this.key(event));
    host.append(this.root);
    this.restore();
    this.watch();
  }

  // -- what is seen, and when it is asked for again ------------------------------------------------------------------

  watch() {
    this.watching = new IntersectionObserver(([entry]) => {
      this.isSeen = entry.isIntersecting;
      if (this.isSeen) this.lastSeen = Date.now();
    });
    this.watching.observe(this.root);
    this.timer = setInterval(() => this.tick(), 250);
    this.poll();
  }

  tick() {
    const now = Date.now();
    if (this.isSeen) this.lastSeen = now;
    this.drawBanner();
    this.channel.askAgain();
    if (now - this.lastSeen > UNSEEN_MS || this.channel.hasEnded || this.channel.isWaiting("tree")) return;
    if (this.away ? now >= this.away.next : now - (this.polled || 0) >= (document.hidden ? BACKGROUND_MS : SEEN_MS)) this.poll();
  }

  poll() {
    this.polled = Date.now();
    this.ask("tree", "tree", {}, (answer) => this.tookTree(answer));
    if (this.page) this.pages[this.page].poll();
    else if (this.path && !this.dropped) this.askHead();
    if (this.data.tree && this.page !== "health" && Date.now() >= this.nextLook) this.askHealth(LOOK_MS / 1000);
  }

  /** Asks how the lab is; what is costly of it only when it is older than that. */
  askHealth(ageS) {
    this.askedHealth = Date.now();
    this.nextLook = this.askedHealth + LOOK_MS;
    this.ask("lab health", "health", { age_s: ageS }, (answer) => {
      if (!answer.error) this.ofLab.health = answer;
      if (!this.pages.health) return;
      this.pages.health.error = answer.error;
      if (this.page === "health") this.pages.health.draw();
      this.keep();
    });
  }

  /** Asks of the present table, or of the lab; the table's id goes along: another one of its path is not shown in its place. */
  ask(slot, kind, body, then) {
    const about = OF_LAB.has(kind) ? {} : { table: this.path, table_id: (this.data.head && this.data.head.table_id) || null };
    this.channel.ask(slot, kind, { ...about, ...body }, (answer) => {
      this.back(kind, answer.error);
      then(answer);
    });
  }

  /** An answer came: a kernel is there, and the server is, unless it says that it is not. */
  back(kind, error) {
    if (OF_LAB.has(kind) && kind !== "tree") return;
    if (this.isStatic) {
      const { page } = this;
      this.isStatic = false;
      this.open(this.path, true);
      if (page) this.openPage(page);
    }
    if (!OF_THE_SERVER.has(kind)) return;
    if (error && (error.retriable || kind === "tree")) {
      const attempt = (this.away ? this.away.attempt : 0) + (this.away && Date.now() < this.away.next ? 0 : 1);
      const next = Date.now() + pauseMs(attempt);
      if (!this.away || Date.now() >= this.away.next) this.away = { attempt, next, title: error.retriable ? "The server does not answer." : error.text };
    } else if (!error && this.away) {
      this.away = null;
      this.channel.pauses.endAll();
      this.say("The server answers again");
    }
  }

  tookTree(answer) {
    if (answer.error) return this.tree.draw();
    this.data.tree = answer;
    this.zone = new Zone(answer.offsets);
    const paths = answer.databases.flatMap(({ tables }) => tables.map((table) => table.path));
    if (!this.path && !this.page && paths.length) this.open(paths[0]);
    if (!this.path && !this.page) this.drawEmptyLab(answer);
    this.keep();
    return this.tree.draw();
  }

  askHead() {
    this.ask("head", "head", {}, (answer) => {
      if (answer.error) return this.lostHead(answer.error);
      const before = this.data.head;
      this.data.head = answer;
      this.headAt = answer.now_ms;
      this.clockSkew = answer.now_ms - Date.now();
      const { schema, schemaError } = this.data, { pauses } = this.channel;
      if (!before || before.modified_ms !== answer.modified_ms || before.schema_id !== answer.schema_id || ((!schema || schemaError) && !this.channel.isWaiting("schema") && pauses.isDue("schema"))) this.askSchema();
      if (!before || ["rows", "lake_rows", "log_records", "buckets"].some((name) => before[name] !== answer[name])) this.data.hasMoved = true;
      if ((this.data.hasMoved || !this.data.buckets) && pauses.isDue("buckets")) this.askBuckets();
      this.actions.heard(answer);
      this.header.draw();
      if (this.page) return this.keep();
      if (!before) this.showTab();
      else this.screens[this.tab] && this.screens[this.tab].update("head");
      return this.keep();
    });
  }

  lostHead(error) {
    if (error.class === "TableNotFoundError") {
      this.dropped = { at: Date.now() + (this.clockSkew || 0) };
      this.header.draw();
      return this.page ? null : this.drawDropped();
    }
    this.header.draw();
    if (!this.data.head && !error.retriable && !this.page) refill(this.body, this.errorView(error, () => this.poll()));
    return null;
  }

  askSchema() {
    this.ask("schema", "schema", {}, (answer) => {
      const { error } = answer, before = this.data.schemaError;
      this.data.schemaError = error;
      if (!error) this.data.schema = answer;
      // An error that comes again every two seconds is drawn once.
      else if (before && before.text === error.text) return;
      for (const screen of Object.values(this.screens)) screen.update("schema");
    });
  }

  /** What is wrong in place of columns that could not be read. */
  schemaErrorView() {
    return this.errorView(this.data.schemaError, () => this.askSchema(), "The columns cannot be read");
  }

  askBuckets() {
    if (this.channel.isWaiting("buckets")) return;
    this.data.hasMoved = false;
    this.ask("buckets", "buckets", {}, (answer) => {
      if (answer.error) return void (this.data.hasMoved = true);
      this.data.buckets = answer;
      this.header.draw();
      if (this.screens[this.tab]) this.screens[this.tab].update("buckets");
      return this.keep();
    });
  }

  /** Whether no kernel knows of this view: what is shown stays as it was. */
  get isAlone() {
    return this.isStatic || this.channel.hasEnded;
  }

  nowMs() {
    return Date.now() + (this.clockSkew || 0);
  }

  /** A time in the lab's zone, with its date unless that is today's. */
  when(ms, exact = false) {
    return moment(ms, this.zone, this.nowMs(), exact);
  }

  // -- where one is --------------------------------------------------------------------------------------------------

  open(path, again = false) {
    this.drawer(false);
    const wasPage = this.page;
    this.page = null;
    if (path === this.path && !this.dropped && !again) return wasPage ? this.leavePage() : undefined;
    for (const screen of Object.values(this.screens)) screen.close();
    this.channel.dropTable();
    this.channel.pauses.endAll();
    this.screens = {};
    this.data = { tree: this.data.tree };
    this.kept = {};
    this.path = path;
    this.dropped = null;
    this.actions.reset();
    this.header.reset();
    this.header.draw();
    this.tree.draw();
    this.setCode([]);
    if (this.isAlone && !again) return this.openSaved(path);
    this.drawWaiting();
    if (path) this.askHead();
    return undefined;
  }

  /** Opens a table without a kernel to ask: the saved one as it was saved, of others it says that nothing is. */
  openSaved(path) {
    const { table, kept } = JSON.parse(this.model.get("saved") || "{}");
    if (table === path && kept && kept.head) this.restoreTable(kept);
    else this.drawWaiting();
  }

  /** Opens a screen of the lab; the table that was shown keeps its place. */
  openPage(page) {
    this.drawer(false);
    this.page = page;
    const screen = (this.pages[page] ??= new PAGES[page](this));
    this.header.draw();
    this.tree.draw();
    this.body.setAttribute("role", "region");
    this.body.removeAttribute("aria-labelledby");
    this.body.setAttribute("aria-label", PAGE_TITLES[page]);
    this.put(screen);
    screen.show();
    this.keep();
  }

  /** Back to the table. */
  leavePage() {
    this.header.draw();
    this.tree.draw();
    if (this.dropped) return this.drawDropped();
    this.askHead();
    this.keep();
    return this.data.head ? this.showTab() : this.drawWaiting();
  }

  openTab(tab) {
    if (this.tab === tab && !this.page) return;
    this.tab = tab;
    this.page = null;
    this.tree.draw();
    this.header.draw();
    this.showTab();
    this.keep();
  }

  showTab() {
    if (!this.data.head || this.dropped || this.page) return;
    this.body.setAttribute("role", "tabpanel");
    this.body.removeAttribute("aria-label");
    const screen = (this.screens[this.tab] ??= new SCREENS[this.tab](this));
    this.body.setAttribute("aria-labelledby", `fx-${this.id}-tab-${this.tab}`);
    this.put(screen);
    screen.show();
  }

  /** Shows a screen in place of another; the focus in that one goes to the tab of this one. */
  put({ root }) {
    const hadFocus = this.body.contains(document.activeElement);
    if (this.body.firstChild === root) return;
    this.body.replaceChildren(root);
    if (!hadFocus) return;
    if (this.page) this.body.focus();
    else this.header.focusTab();
  }

  /** Opens the changelog of a bucket at an offset. */
  openChanges(partition, bucket, offset) {
    this.openTab("changelog");
    this.screens.changelog.openAt(partition, bucket, offset);
  }

  /** Opens the rows of a lake snapshot. */
  openSnapshot(id) {
    this.openTab("data");
    this.screens.data.openSnapshot(id);
  }

  /** Opens the difference between a moment and now. */
  openDiff(before) {
    this.openTab("diff");
    this.screens.diff.openAt(before);
  }

  /** Opens the changelog, and follows what comes. */
  openTail() {
    this.openTab("changelog");
    this.channel.drop("changes");
    const { changelog } = this.screens;
    if (!changelog.tail) changelog.follow("start");
  }

  hasTab(key) {
    return this.tabs.some(([each]) => each === key);
  }

  /** Shows Python lines; those of a screen that is not shown now it shows itself, once it is. */
  setCode(lines, screen = null) {
    if (!screen || screen === (this.page ? this.pages[this.page] : this.screens[this.tab])) this.code.show(lines);
  }

  drawer(open) {
    if (open === Boolean(this.isOpen)) return;
    this.isOpen = open;
    this.app.classList.toggle("open", open);
    this.menu.setAttribute("aria-expanded", String(open));
    if (open) this.tree.search.focus();
    else if (this.tree.root.contains(document.activeElement)) this.menu.focus();
  }

  key(event) {
    const isTyping = /INPUT|TEXTAREA|SELECT/.test(event.target.tagName);
    const tab = event.altKey && /^Digit[1-8]$/.test(event.code) ? this.tabs[Number(event.code.slice(5)) - 1] : null;
    if (event.key === "/" && !isTyping) (this.root.querySelector('[data-key="where"]') || this.tree.search).focus();
    else if (tab && this.path && !this.dropped) {
      this.openTab(tab[0]);
      this.header.focusTab();
    } else if (event.key === "Escape" && this.isOpen) this.drawer(false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  copy(text) {
    // Pages from other machines without TLS have no clipboard.
    const copied = navigator.clipboard ? navigator.clipboard.writeText(text) : Promise.reject(new Error("none"));
    copied.then(() => this.say("Copied"), () => this.say("The browser does not allow copying"));
  }

  say(text) {
    this.live.textContent = "";
    setTimeout(() => (this.live.textContent = text), 30);
  }

  // -- when there is nothing to show, or something is wrong ----------------------------------------------------------

  waitingText() {
    return this.path ? `Reading ${this.path} …` : "Reading the lab …";
  }

  /** What is shown of a table until its head is there; without a kernel that never comes. */
  drawWaiting() {
    refill(this.body, this.isAlone
      ? h("div", { class: "empty" }, h("h3", null, "Not in the saved view"), h("p", null, `Run the cell to read ${this.path}.`))
      : h("p", { class: "sm mut pad" }, this.waitingText()));
  }

  drawEmptyLab(tree) {
    this.header.draw();
    this.setCode(tree.code);
    const text = tree.code.join("\n");
    if (this.body.firstChild && this.body.firstChild.dataset.text === text) return;
    refill(this.body, h("div", { class: "empty", "data-text": text }, h("h3", null, "This lab has no tables"),
      h("p", null, "Make one in a cell; it shows here at once, without running this cell again."), h("pre", null, text)));
  }

  drawDropped() {
    const database = this.path.slice(0, this.path.indexOf("."));
    const others = this.data.tree ? this.data.tree.databases.flatMap(({ tables }) => tables.map((table) => table.path)).filter((path) => path !== this.path) : [];
    const next = others.find((path) => path.startsWith(`${database}.`)) || others[0];
    this.say(`${this.path} was dropped`);
    this.setCode([`lab.tables("${database}")`]);
    refill(this.body, h("div", { class: "empty", role: "alert" }, h("h3", null, `${this.path} was dropped at ${this.when(this.dropped.at)}`),
      h("p", null, "What was shown is no longer there to read. A table of the same path made later is another one; it will not be shown in this place by itself."),
      next ? button(`Show ${next}`, { class: "pri", on: () => this.open(next) }) : null));
  }

  /** What is wrong instead of what was asked for; with a title of the caller's, for what is not the server's, it can always be asked for again; `goTo` shows another moment. */
  errorView(error, again, general = null, goTo = null) {
    const text = `${error.class}: ${error.text}`, [title, todo] = WRONG[error.class] || [this.away && error.retriable ? "The server does not answer" : general || (error.retriable ? "No answer at present" : "That cannot be read")];
    return h("div", { class: "empty", role: "alert" }, h("h3", { class: "bad fx-wrong" }, icon("warn"), title),
      h("p", null, h("b", null, error.class), `: ${error.text}`), todo ? h("p", null, `What to do: ${todo}`) : null,
      h("div", { class: "fx-row" }, goTo && error.earliest ? button("Go to the earliest moment", { class: "pri", key: "earliest", on: () => goTo(error.earliest) }) : null, error.retriable || general ? button("Try again", { class: "pri", key: "retry", on: again }) : null, button("Copy the error", { icon: "copy", on: () => this.copy(text) })));
  }

  drawBanner() {
    const silent = this.channel.silentMs("tree") > SILENT_MS;
    if (silent && !this.channel.heard && this.kept.head) this.isStatic = true;
    const left = this.away ? Math.max(0, Math.ceil((this.away.next - Date.now()) / 1000)) : 0;
    const at = this.headAt ? this.when(this.headAt) : null;
    const state = this.isStatic ? "static" : this.channel.hasEnded ? "ended" : this.away ? `away ${left} ${this.away.attempt}` : silent ? "silent" : "";
    if (state === this.bannerState) return;
    this.bannerState = state;
    const hadFocus = this.banner.contains(document.activeElement);
    this.banner.className = state ? "banner" : "";
    this.header.draw();
    this.tree.draw();
    if (this.isStatic) refill(this.banner, icon("clock"), h("b", null, `Saved view of ${at}.`), h("span", { class: "mut" }, "No kernel is attached: the first 200 rows and all facts are here, nothing can be read or written."));
    else if (this.channel.hasEnded) refill(this.banner, icon("warn"), h("b", null, "The kernel has ended or was restarted."), h("span", { class: "mut" }, `Run the cell again.${at ? ` What you see is from ${at}.` : ""}`));
    else if (this.away) refill(this.banner, stateMark("run", ""), h("b", { class: "cut" }, this.away.title), h("span", { class: "mut" }, `${at ? `What you see is from ${at}. ` : ""}Trying again in ${left} s, attempt ${this.away.attempt}; your place is kept.`), h("span", { class: "sp" }), button("Try now", { class: "sm", key: "try", on: () => this.poll() }));
    else if (silent && this.opening.host === "command") refill(this.banner, stateMark("run", ""), h("b", null, "The command does not answer."), h("span", { class: "mut" }, "Trying again. If it has ended, start fluss-lab explore again, and open its new link."));
    else if (silent) refill(this.banner, stateMark("run", ""), h("b", null, "The kernel does not answer."), h("span", { class: "mut" }, "A cell keeps the kernel busy, or says more than the notebook's server lets through; or the kernel has ended: run the cell again then."));
    else refill(this.banner);
    if (hadFocus) (this.banner.querySelector("button") || this.tree.search).focus();
  }

  // -- the saved view ------------------------------------------------------------------------------------------------

  /** Keeps what is shown in the notebook, for when it is opened without a kernel. Nothing is sent to the kernel. */
  keep(name, answer) {
    if (name === "page" && answer.from !== 0) return;
    if (name) this.kept[name] = answer;
    if (this.isAlone || this.saving) return;
    this.saving = setTimeout(() => {
      this.saving = 0;
      const { tree, head, schema, buckets } = this.data;
      // Another table, which nobody reads any more, would take the place of what was seen.
      if (this.isAlone && this.path && !head) return;
      this.kept = { ...this.kept, tree, head, schema, buckets };
      const view = { ...this.opening, table: this.path, tab: this.tab, page: this.page, kept: this.kept };
      // Of the lab's screens the one that is shown.
      if (this.page) view.kept = { ...view.kept, ofLab: { [this.page]: this.ofLab[this.page] } };
      let text = JSON.stringify(view);
      for (const left of ["page", "buckets", "schema", "ofLab"]) {
        if (sizeBytes(text) <= SAVED_MAX) break;
        view.kept = { ...view.kept, [left]: undefined };
        text = JSON.stringify(view);
      }
      this.model.set("saved", text);
    }, SAVE_MS);
  }

  restore() {
    const saved = JSON.parse(this.model.get("saved") || "{}");
    this.opening = { read_only: saved.read_only, host: saved.host };
    this.tab = this.hasTab(saved.tab) ? saved.tab : "overview";
    this.path = saved.table || null;
    this.header.draw();
    const { kept } = saved;
    if (kept && kept.ofLab) this.ofLab = kept.ofLab;
    if (kept && kept.head) this.restoreTable(kept);
    else this.drawWaiting();
    if (Object.hasOwn(PAGES, saved.page)) this.openPage(saved.page);
  }

  /** Shows a table as it was saved. */
  restoreTable(kept) {
    this.kept = kept;
    if (kept.tree && kept.tree.offsets) this.zone = new Zone(kept.tree.offsets);
    this.data = { tree: kept.tree, head: kept.head, schema: kept.schema, buckets: kept.buckets };
    this.headAt = kept.head.now_ms;
    this.isStatic = true;
    this.tree.draw();
    this.header.draw();
    this.showTab();
    if (!kept.page) return;
    this.screens.data ??= new Data(this);
    this.screens.data.restore(kept.page);
  }

  close() {
    clearInterval(this.timer);
    clearTimeout(this.saving);
    this.watching.disconnect();
    for (const screen of [...Object.values(this.screens), ...Object.values(this.pages)]) screen.close();
    this.channel.close();
    this.root.remove();
  }
}

// The screen Health: servers, the room that the lab takes, and what the doctor finds. Of the lab, of no table.

import { button, clipped, h, redraw, refill, stateMark } from "../parts/dom.js";
import { bytes, dayClock, number, plural } from "../parts/figures.js";

const SEVERITIES = { problem: ["bad", "problem"], warning: ["warn", "warning"], note: ["off", "note"], ok: ["ok", "fine"] };
const SERVER_STATES = { running: ["ok", "answers"], starting: ["run", "starting"] };
/** What is costly is looked at again after so long while it is seen. */
const LOOK_S = 60;
/** A look that takes longer was lost on its way. */
const SLOW_MS = 60000;

const fillOf = (store) => (store.startsWith("lake") ? "var(--fx-lake-fill)" : /log$|snapshots$/.test(store) ? "var(--fx-log-fill)" : "var(--fx-ink-2)");

export class Health {
  constructor(explorer) {
    this.explorer = explorer;
    this.hold = h("div", { class: "fx-scroll", tabindex: 0, role: "region", "aria-label": "Servers, disk, doctor" });
    this.root = h("div", { class: "fx-col" }, this.hold);
  }

  get found() {
    return this.explorer.ofLab.health;
  }

  show() {
    this.draw();
    this.poll();
  }

  poll() {
    const { explorer } = this, isLooking = this.found && this.found.looking.length && Date.now() - explorer.askedHealth < SLOW_MS;
    if (!explorer.channel.isWaiting("lab health") && !isLooking) explorer.askHealth(LOOK_S);
  }

  draw() {
    const { found, error } = this;
    if (this.explorer.page === "health") this.explorer.setCode(found ? found.code : []);
    if (!found) return void refill(this.hold, error ? this.explorer.errorView(error, () => this.poll()) : h("p", { class: "sm mut pad" }, "Asking the servers …"));
    redraw(this.hold, this.servers(found.servers), this.disk(found), this.doctor(found));
    return undefined;
  }

  wrong(error) {
    return h("p", { class: "sm pad" }, h("b", { class: "bad" }, error.class), `: ${error.text}`);
  }

  servers(servers) {
    const { explorer } = this;
    if (servers.error) return [h("div", { class: "status" }, h("b", null, "Servers")), this.wrong(servers.error)];
    const facts = `epoch ${number(servers.epoch)}, since ${dayClock(servers.started_ms, explorer.zone, explorer.nowMs())}, ${number(servers.attached)} attached${servers.ephemeral ? ", ends with the last of them" : ""}`;
    const columns = [
      ["server", (row) => row.name], ["state", (row) => stateMark(...(SERVER_STATES[row.state] || ["bad", row.state]))], ["address", (row) => (row.address ? clipped(row.address, "mono") : "–")],
      ["process", (row) => (row.process ? String(row.process) : "–"), "num hide-n"], ["memory", (row) => (row.inside ? h("span", { class: "mut" }, "in the coordinator’s") : row.bytes == null ? "–" : bytes(row.bytes)), "num"],
      ["restarts", (row) => (row.restarts == null ? "–" : row.restarts ? h("b", null, number(row.restarts)) : "0"), "num"], ["why it ended last", (row) => (row.why ? clipped(row.why) : h("span", { class: "mut" }, "–")), "fill wide hide-n"],
    ];
    return [
      h("div", { class: "status" }, h("b", null, "Servers"), h("span", { class: "cut" }, facts), h("span", { class: "sp" }), servers.memory_error ? h("span", { class: "cut", title: servers.memory_error }, "memory: not known here") : null),
      this.table("Servers", columns, servers.rows),
      servers.total > servers.rows.length ? h("p", { class: "xs mut pad" }, `${number(servers.total - servers.rows.length)} more servers are not shown.`) : null,
    ];
  }

  disk({ disk, looking }) {
    const { explorer } = this, head = (...facts) => h("div", { class: "status fx-next" }, h("b", null, "Disk"), ...facts);
    if (!disk) return head(looking.includes("disk") ? "looking at every file …" : "");
    if (disk.error) return [head(), this.wrong(disk.error)];
    const known = disk.rows.reduce((sum, row) => sum + Number(row[2] || 0), 0), least = disk.rows.every((row) => row[4]) ? "" : "at least ";
    const columns = [
      ["what", ([store, server]) => (server == null || store !== "log" ? store : `log of tablet ${server}`)], ["bytes", (row) => (row[2] == null ? h("span", { class: "mut" }, "elsewhere") : `${row[4] ? "" : "≥ "}${bytes(Number(row[2]))}`), "num"],
      ["share", ([store, , size]) => h("span", { class: "prog fx-share", role: "img", "aria-label": `${known ? Math.round((Number(size || 0) / known) * 100) : 0} %` }, h("i", { style: { width: `${known ? (Number(size || 0) / known) * 100 : 0}%`, background: fillOf(store) } }))],
      ["files", (row) => number(row[3]), "num"], ["place", (row) => clipped(row[5], "mut mono"), "fill wide hide-n"],
    ];
    return [
      head(h("span", { class: "cut" }, `${least}${bytes(known)}; ${bytes(Number(disk.free))} free of ${bytes(Number(disk.total))}, at ${explorer.when(disk.at_ms)}`)),
      this.table("Disk", columns, disk.rows, "d"),
    ];
  }

  doctor({ doctor, looking }) {
    const { explorer } = this, again = button("Look again", { class: "sm ghost", icon: "rerun", key: "look again", off: looking.length > 0 || explorer.isAlone, on: () => explorer.askHealth(0) });
    const head = (...facts) => h("div", { class: "status fx-next" }, h("b", null, "Doctor"), ...facts, h("span", { class: "sp" }), again);
    if (!doctor) return head(looking.includes("doctor") ? "looking at machine, folder, servers, buckets and tiering …" : "");
    if (doctor.error) return [head(), this.wrong(doctor.error)];
    const bad = doctor.rows.filter((row) => row.severity === "problem" || row.severity === "warning").length;
    const columns = [
      ["check", (row) => stateMark(SEVERITIES[row.severity][0], h("span", null, row.check, h("span", { class: "vh" }, `: ${SEVERITIES[row.severity][1]}`)))], ["found", (row) => row.found, "wrap fx-found"],
      ["what to do", (row) => (row.command ? h("span", { class: "fx-file" }, h("span", { class: "mono" }, row.command), button("", { class: "sm ghost icon", icon: "copy", key: `copy ${row.command}`, title: "Copy the command", on: () => explorer.copy(row.command) })) : null), "wrap"],
    ];
    return [
      head(h("span", { class: "cut" }, `${number(doctor.total - bad)} of ${plural(doctor.total, "check")} need nothing, looked at ${explorer.when(doctor.at_ms)}`)),
      this.table("Doctor", columns, doctor.rows),
    ];
  }

  table(caption, columns, rows, kind = "") {
    return h("table", { class: `fx-t ${kind}` }, h("caption", { class: "vh" }, caption), h("thead", null, h("tr", null, columns.map(([name, , cell]) => h("th", { scope: "col", class: cell }, name)))),
      h("tbody", null, rows.map((row) => h("tr", null, columns.map(([, cell, cellKind]) => h("td", { class: cellKind }, cell(row)))))));
  }

  close() {
    this.error = null;
  }
}

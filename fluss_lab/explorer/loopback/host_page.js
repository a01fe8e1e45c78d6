// The explorer's view in a page of its own: what a notebook's front end is to it otherwise, over one socket to the command.

import view from "./view.js";

const RETRY_MS = [500, 1000, 2000, 4000, 8000];

/** What a view asks for of a widget's model: `get`, `set`, `save_changes`, `on`, `off`, `send`. */
class Model {
  constructor(saved) {
    this.values = { saved };
    this.listeners = new Set();
    this.socket = null;
  }

  get(name) {
    return this.values[name];
  }

  set(name, value) {
    this.values[name] = value;
  }

  save_changes() {}

  on(name, listen) {
    if (name === "msg:custom") this.listeners.add(listen);
  }

  off(name, listen) {
    this.listeners.delete(listen);
  }

  send(content) {
    if (this.socket && this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(content));
  }

  take(message) {
    for (const listen of [...this.listeners]) listen(message);
  }
}

const el = document.getElementById("explorer");
const place = location.pathname.slice(0, location.pathname.lastIndexOf("/") + 1);
let model = null, dispose = null, attempt = 0;

function say(text) {
  const line = document.createElement("p");
  line.textContent = text;
  el.replaceChildren(line);
}

/** Draws the view anew; of a socket that was lost, where it was. */
function begin(socket, opening) {
  attempt = 0;
  if (dispose) dispose();
  el.replaceChildren();
  model = new Model(model ? model.get("saved") : opening);
  model.socket = socket;
  dispose = view.render({ model, el });
}

function connect() {
  const socket = new WebSocket(`ws://${location.host}${place}channel`);
  let isFirst = true;
  socket.onmessage = (event) => {
    if (isFirst) begin(socket, event.data);
    else model.take(JSON.parse(event.data));
    isFirst = false;
  };
  socket.onclose = (event) => {
    if (event.code === 4003) return say(event.reason);
    if (!model && attempt === RETRY_MS.length) return say("The command does not answer. Start `fluss-lab explore` again, and open its new link.");
    setTimeout(connect, RETRY_MS[Math.min(attempt++, RETRY_MS.length - 1)]);
    return undefined;
  };
}

connect();

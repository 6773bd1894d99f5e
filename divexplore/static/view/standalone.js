// A page without a kernel: the part of a widget's model that the view uses, over a plain object.

class StandaloneModel {
  constructor(state) {
    this.state = state;
    this.listeners = {};
  }

  get(name) {
    return this.state[name];
  }

  set(name, value) {
    if (this.state[name] === value) return;
    this.state[name] = value;
    for (const listener of [...(this.listeners[`change:${name}`] ?? [])]) listener();
  }

  on(name, listener) {
    (this.listeners[name] ??= new Set()).add(listener);
  }

  off(name, listener) {
    this.listeners[name]?.delete(listener);
  }

  save_changes() {}

  send() {}
}

const textOf = (name) => document.getElementById(`divexplore-${name}`).textContent;
const bytesOf = (name) => Uint8Array.from(atob(textOf(name)), (c) => c.charCodeAt(0));
const unpacked = (bytes) => new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));

const url = URL.createObjectURL(new Blob([JSON.parse(textOf("module"))], { type: "text/javascript" }));
const [{ default: widget }, meta, data] = await Promise.all([
  import(url),
  unpacked(bytesOf("meta")).json(),
  unpacked(bytesOf("data")).arrayBuffer(),
]);
URL.revokeObjectURL(url);
const selected = Number(document.documentElement.dataset.selected ?? meta.selected);
const model = new StandaloneModel({ meta, data: new DataView(data), vega: bytesOf("vega"), selected, live: false });
const place = document.getElementById("divexplore-view");
widget.render({ model, el: place, signal: new AbortController().signal });
document.getElementById("divexplore-static").remove();
document.documentElement.dataset.ready = "true";

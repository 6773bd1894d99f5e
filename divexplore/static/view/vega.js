// The chart runtime: fetched once a page, shared by all views on it.

import { ask } from "./host.js";

const ERRORS = 1; // of Vega's log levels: an empty chart would warn of an infinite extent
const OWN_TRY = 10_000; // ms
const PATIENT = 3_600_000; // ms; a kernel that runs a long cell answers after it
const SHARED = Symbol.for("divexplore.vega");

/**
 * vegaEmbed, from the exported page's own copy or from Python.
 * @returns {Promise<Function>}
 */
export function vegaEmbed(model) {
  const page = /** @type {any} */ (globalThis[SHARED] ??= { loaded: null, loading: null });
  const own = async () => (page.loaded ??= await load(model));
  page.loading ??= own().catch((error) => {
    page.loading = null; // the next view may have a living kernel
    throw error;
  });
  // The view that asked first may belong to a kernel that is gone or busy: after a while each asks its own.
  const later = new Promise((done) => setTimeout(done, OWN_TRY)).then(own);
  return Promise.race([page.loading, later]);
}

async function load(model) {
  const own = model.get("vega");
  const packed = own?.byteLength ? own : await fromPython(model);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const source = await new Response(stream).text();
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  try {
    return (await import(url)).default;
  } finally {
    URL.revokeObjectURL(url);
  }
}

async function fromPython(model) {
  if (!model.get("live")) throw new Error("this page was saved without charts");
  return (await ask(model, "vega", {}, PATIENT)).buffers[0];
}

/** Embed a specification, until the view is gone, with its first rows by data source; fills follow the page's text colour, which only SVG can. */
export async function chart(embed, place, { spec, rows, width, signal }) {
  const options = { actions: false, renderer: "svg", tooltip: false, defaultStyle: false, logLevel: ERRORS };
  const { view, finalize } = await embed(place, { ...spec, datasets: rows, width: width ?? spec.width }, options);
  // One picture with one name: the marks inside it are thousands, and the table beside it says the same in words.
  const svg = place.querySelector("svg");
  for (const name of ["role", "aria-roledescription", "aria-label"]) svg?.removeAttribute(name);
  svg?.setAttribute("aria-hidden", "true");
  if (signal.aborted) finalize();
  else signal.addEventListener("abort", finalize);
  return view;
}

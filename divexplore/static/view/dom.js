// Elements from plain descriptions. Text goes in as text, never as markup.

/**
 * @param {string} tag `div`, or `span.dx-class.other`
 * @param {object} [properties] `text`, `on` (events, with the view's signal), attributes; null and false are left out
 * @param {...(Node|string|null)} children
 */
export function element(tag, properties = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const made = document.createElement(name);
  if (classes.length) made.className = classes.join(" ");
  const { text, on, signal, ...attributes } = properties;
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  for (const [event, listener] of Object.entries(on ?? {})) made.addEventListener(event, listener, { signal });
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** What must be on every element that takes the focus: else the notebook takes its keys (`x` cuts the cell). */
export const OWN_KEYS = { "data-lm-suppress-shortcuts": "true" };

export function button(label, properties, ...children) {
  return element("button.dx-button", { type: "button", ...OWN_KEYS, ...properties }, label, ...children);
}

/** A small picture in the colour of the text around it. */
export function icon(path) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const shape = document.createElementNS("http://www.w3.org/2000/svg", "path");
  made.setAttribute("viewBox", "0 0 16 16");
  made.setAttribute("class", "dx-icon");
  made.setAttribute("aria-hidden", "true");
  shape.setAttribute("d", path);
  made.append(shape);
  return made;
}

/** A token in its own direction, blanks visible. */
export function token(text, extra = "") {
  return element(`span.dx-token${extra}`, { text, dir: "auto" });
}

/** A table cell that holds a number, aligned by its end. */
export function numberCell(text, properties = {}) {
  return element("td.dx-number", { text, ...properties });
}

/** A sheet that hides a widget's saved page for as long as the sheet is in the document; null without a key. */
export function hideSaved(key) {
  if (!key) return null;
  const page = `.dx-saved[data-for="${key}"]`;
  const place = `.jp-OutputArea-child:has(> .jp-OutputArea-output > ${page})`; // JupyterLab's padding around it
  return element("style", { text: `${page} { display: none } ${place} { display: none }` });
}

let made = 0;

/** An id that no other view on the page has. */
export function freshId(word) {
  made += 1;
  return `dx-${word}-${made}-${Math.floor(performance.now())}`;
}

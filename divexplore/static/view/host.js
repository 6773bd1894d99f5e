// The outside: requests to Python, the clipboard, downloads.

const PATIENCE = 60_000; // ms

/**
 * Ask Python, by a message with an id; the answer carries the same id.
 * @returns {Promise<{content: object, buffers: DataView[]}>}
 */
export function ask(model, what, details = {}, patience = PATIENCE) {
  const id = `${what}-${Date.now()}-${Math.random().toString(36).slice(2)}`;
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => finish(() => reject(new Error(`no answer from the kernel to “${what}”`))), patience);
    const listen = (content, buffers) => {
      if (content?.answer !== id) return;
      finish(() => (content.error ? reject(new Error(content.error)) : resolve({ content, buffers: buffers ?? [] })));
    };
    const finish = (act) => {
      clearTimeout(timer);
      model.off("msg:custom", listen);
      act();
    };
    model.on("msg:custom", listen);
    model.send({ ask: what, id, ...details });
  });
}

/** Put text on the clipboard; false where the page may not. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text); // a page served over plain HTTP has no clipboard of its own
  }
}

function copyBySelection(text) {
  const area = document.createElement("textarea");
  const before = document.activeElement;
  area.value = text;
  area.style.cssText = "position:fixed;opacity:0";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  before?.focus?.();
  return done;
}

/** Offer bytes as a download. */
export function download(name, parts, type) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

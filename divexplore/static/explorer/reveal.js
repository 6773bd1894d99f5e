// When a run ends and the person is still at the panel: scroll, once, so that verdict and split are on the screen.

const ROOM = 400; // px below the panel that verdict and streams take

/** Wait for the result to grow below the panel, then bring the panel to the top where the room would not do. */
export function revealBelow(panel, signal) {
  if (!panel.contains(document.activeElement) || roomBelow(panel) >= ROOM) return;
  const box = panel.closest(".dx-explorer");
  if (!box) return;
  const observer = new ResizeObserver(() => {
    if (box.clientHeight - panel.clientHeight < ROOM / 2) return; // not there yet
    observer.disconnect();
    panel.scrollIntoView({ block: "start" });
  });
  observer.observe(box);
  signal?.addEventListener("abort", () => observer.disconnect());
}

function roomBelow(panel) {
  return window.innerHeight - panel.getBoundingClientRect().bottom;
}

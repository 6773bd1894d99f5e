// When a run ends and the person is still at the panel: scroll, as little as it takes, until the split is on the screen.

/** Wait for the view's streams to be there, below the panel, and bring them in sight. The focus stays where it is. */
export function revealBelow(panel, signal) {
  const box = panel.closest(".dx-explorer");
  if (!box || !panel.contains(document.activeElement)) return;
  const observer = new ResizeObserver(() => {
    const streams = box.querySelector(".dx-view .dx-streams");
    if (!streams?.clientHeight) return; // not there yet
    observer.disconnect();
    streams.scrollIntoView({ block: "nearest" });
  });
  observer.observe(box); // called once at once, and at each change of the size
  signal?.addEventListener("abort", () => observer.disconnect());
}

// When a run ends and the person is still at the controls: scroll, as little as it takes, until what is new is on the screen.

/** Wait for the view's streams, or another part of it, to be there, and bring it in sight. The focus stays where it is. */
export function revealBelow(panel, signal, part = ".dx-view .dx-streams") {
  const box = panel.closest(".dx-explorer");
  if (!box || !panel.contains(document.activeElement)) return;
  const observer = new ResizeObserver(() => {
    const found = box.querySelector(part);
    if (!found?.clientHeight) return; // not there yet
    observer.disconnect();
    found.scrollIntoView({ block: "nearest" });
  });
  observer.observe(box); // called once at once, and at each change of the size
  signal?.addEventListener("abort", () => observer.disconnect());
}

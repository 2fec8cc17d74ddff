// The lanes: zoom together, and a kernel of ours opens when it is clicked.

function startTimeline() {
  const range = byId("timeline-zoom");
  if (!range) return;
  range.addEventListener("input", () => {
    for (const lane of document.querySelectorAll(".lane"))
      lane.style.width = `${100 * 2 ** Number(range.value)}%`;
  });
  for (const lane of document.querySelectorAll(".lane")) {
    lane.addEventListener("click", (event) => {
      const bar = event.target.closest("[data-kernel]");
      if (bar) showKernelNamed(bar.dataset.kernel);
    });
  }
}

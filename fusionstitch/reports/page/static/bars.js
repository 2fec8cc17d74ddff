// Where the time goes: two charts of which one is shown, and their columns.

function startBars() {
  for (const table of document.querySelectorAll("table.chart")) sortable(table);
  const list = document.querySelector(".switch");
  if (!list) return;
  tabs(list, (tab) => {
    for (const id of ["by-kernel", "by-component"])
      byId(id).hidden = id !== tab.getAttribute("aria-controls");
  });
}

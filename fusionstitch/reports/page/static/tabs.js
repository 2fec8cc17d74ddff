// Tabs with the keyboard, the theme, and the address: #kernels/name opens a kernel.

/** Makes tabs of the buttons in `list`; `show` is told which one is chosen. */
function tabs(list, show) {
  const all = [...list.querySelectorAll('[role="tab"]')];
  const choose = (tab, focus) => {
    for (const other of all) {
      other.setAttribute("aria-selected", String(other === tab));
      other.tabIndex = other === tab ? 0 : -1;
    }
    if (focus) tab.focus();
    show(tab);
  };
  list.addEventListener("click", (event) => {
    const tab = event.target.closest('[role="tab"]');
    if (tab) choose(tab, false);
  });
  list.addEventListener("keydown", (event) => {
    const at = all.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    choose(all[(to + all.length) % all.length], true);
  });
  return choose;
}

const opened = new Map(); // what a part of the page does when it is first shown
const shown = new Map(); // and each time

/** Shows a part of the page by its id. */
let showPart = () => {};

function startTabs() {
  const list = document.querySelector("header [role=tablist]");
  const choose = tabs(list, (tab) => {
    const id = tab.getAttribute("aria-controls");
    for (const panel of document.querySelectorAll("main > section")) {
      panel.hidden = panel.id !== id;
      panel.tabIndex = panel.id === id ? 0 : -1;
    }
    if (location.hash.slice(1).split("/")[0] !== id) history.replaceState(null, "", `#${id}`);
    const first = opened.get(id);
    opened.delete(id);
    if (first) first();
    if (shown.has(id)) shown.get(id)();
  });
  showPart = (id) => choose(byId(`tab-${id}`), false);
}

/** Follows the address: a part, and what of it. That is a kernel by its name, or in a graph by its
 *  number an op, or the unit that an op is in. */
function followAddress() {
  const [part, what, kind, op] = decodeURIComponent(location.hash.slice(1)).split("/");
  if (!part || !byId(`tab-${part}`)) return;
  showPart(part);
  if (part === "kernels" && what) showKernelNamed(what);
  if (part === "graph" && op) showInGraph(Number(what), kind, Number(op));
}

const THEMES = ["system", "light", "dark"];
const themeListeners = [];

function startTheme() {
  const button = byId("theme");
  const keep = (theme) => {
    try {
      localStorage.setItem("fusionstitch-theme", theme);
    } catch {
      /* files may have no store */
    }
  };
  const kept = () => {
    try {
      return localStorage.getItem("fusionstitch-theme");
    } catch {
      return null;
    }
  };
  const use = (theme) => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    for (const listener of themeListeners) listener();
  };
  let theme = THEMES.includes(kept()) ? kept() : "system";
  use(theme);
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    keep(theme);
    use(theme);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const listener of themeListeners) listener();
  });
}

// Before anything is drawn, restores the theme chosen on the last visit, where the browser stores such things.

let theme = null;
try {
  theme = localStorage.getItem("traceview-theme");
} catch {
  // A page opened from a file or an archive may have no storage.
}
if (theme === "dark" || theme === "light") {
  document.documentElement.dataset.theme = theme;
}

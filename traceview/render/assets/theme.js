"use strict";
// Before anything is drawn: the theme that was chosen here the last time, where the browser keeps such things.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("traceview-theme");
  } catch {
    // A page opened from a file or an archive may have no storage.
  }
  if (theme === "dark" || theme === "light") {
    document.documentElement.dataset.theme = theme;
  }
})();

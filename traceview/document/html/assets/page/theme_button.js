// The button that switches between light and dark. Gives offerTheme(button).
// The timeline hears of a switch by the event "traceview:theme"; theme/main.js restores the choice on the next visit.

function offerTheme(button) {
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const label = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Show in light colours" : "Show in dark colours");
  };
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    root.dataset.theme = theme;
    try {
      localStorage.setItem("traceview-theme", theme);
    } catch {
      // Without storage the choice holds until the page is closed.
    }
    label();
    document.dispatchEvent(new CustomEvent("traceview:theme", { detail: { theme } }));
  });
  prefersDark.addEventListener("change", label);
  label();
  button.hidden = false;
}

"use strict";
// What the page does beyond being read: the theme, copying, sorting, filtering, and leading to the timeline.
(() => {
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");

  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches;
  }

  function offerTheme(button) {
    const tell = () => {
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", isDark() ? "Show in light colours" : "Show in dark colours");
    };
    button.addEventListener("click", () => {
      const theme = isDark() ? "light" : "dark";
      root.dataset.theme = theme;
      try {
        localStorage.setItem("traceview-theme", theme);
      } catch {
        // Not remembered then.
      }
      tell();
      document.dispatchEvent(new CustomEvent("traceview:theme", { detail: { theme } }));
    });
    prefersDark.addEventListener("change", tell);
    tell();
    button.hidden = false;
  }

  async function copied(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false; // No permission, or a page that is not served: the text can still be selected.
    }
  }

  function select(element) {
    const range = document.createRange();
    range.selectNodeContents(element);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  }

  function offerCopy(button) {
    const source = document.getElementById(button.dataset.copy);
    const label = button.textContent;
    button.addEventListener("click", async () => {
      const isCopied = await copied(source.textContent);
      if (!isCopied) {
        select(source);
      }
      button.textContent = isCopied ? "Copied" : "Selected";
      setTimeout(() => {
        button.textContent = label;
      }, 2000);
    });
    button.hidden = false;
  }

  // Numbers carry their value; a row without one goes to the end, in either direction.
  function sortKey(row, place) {
    const cell = row.cells[place];
    const value = cell.dataset.value;
    if (value !== undefined) {
      return Number(value);
    }
    const text = cell.textContent.trim();
    return text === "" || text === "–" ? null : text;
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") {
      return a - b;
    }
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }

  function sortBy(table, place, isDescending) {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, key: sortKey(row, place) }));
    rows.sort((a, b) => {
      if (a.key === null || b.key === null) {
        return (a.key === null) - (b.key === null);
      }
      return isDescending ? compare(b.key, a.key) : compare(a.key, b.key);
    });
    body.append(...rows.map(({ row }) => row));
  }

  function offerSort(table) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, place) => {
      const isBar = table.querySelector(`tbody tr > :nth-child(${place + 1}) > .bar`) !== null;
      if (heading.tagName !== "TH" || isBar || table.tBodies[0].rows.length < 2) {
        return;
      }
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const before = heading.getAttribute("aria-sort");
        // The largest number is what one looks for first, the first name likewise.
        const isDescending = before ? before === "ascending" : heading.classList.contains("number");
        headings.forEach((one) => one.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
        sortBy(table, place, isDescending);
      });
    });
  }

  function offerFilter(filter) {
    const input = filter.querySelector("input");
    const output = filter.querySelector("output");
    const rows = [...filter.parentElement.querySelector("tbody").rows];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      rows.forEach((row, place) => {
        row.hidden = !words.every((word) => texts[place].includes(word));
        count += row.hidden ? 0 : 1;
      });
      output.textContent = `${count} of ${rows.length} rows`;
    });
    filter.hidden = false;
  }

  // A link to a row that a filter hides shows it again.
  function reveal() {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target) {
      return;
    }
    const input = target.closest(".table-box")?.querySelector(".filter input");
    if (target.hidden && input) {
      input.value = "";
      input.dispatchEvent(new Event("input"));
    }
    for (let box = target.closest("details"); box; box = box.parentElement.closest("details")) {
      box.open = true;
    }
    target.scrollIntoView();
  }

  function showOnTimeline(event) {
    const link = event.target.closest("a.show");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) {
      return;
    }
    event.preventDefault();
    const { device, start, end } = link.dataset;
    const detail = { device, start_ps: Number(start), end_ps: Number(end) };
    document.dispatchEvent(new CustomEvent("traceview:show", { detail }));
  }

  // The section that is being read is marked in the table of contents.
  function followReading() {
    const links = new Map(
      [...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]),
    );
    const sections = [...links.keys()].map((id) => document.getElementById(id));
    let marked = null;
    const mark = () => {
      const line = innerHeight / 4;
      const atEnd = innerHeight + scrollY >= root.scrollHeight - 2;
      const begun = sections.filter((one) => one && one.getBoundingClientRect().top <= line);
      const current = (atEnd ? sections.at(-1) : begun.at(-1)) ?? sections[0];
      const link = links.get(current.id);
      if (link !== marked) {
        marked?.removeAttribute("aria-current");
        link.setAttribute("aria-current", "true");
        marked = link;
      }
    };
    addEventListener("scroll", mark, { passive: true });
    addEventListener("resize", mark);
    mark();
  }

  offerTheme(document.getElementById("theme"));
  document.querySelectorAll("[data-copy]").forEach(offerCopy);
  document.querySelectorAll("table").forEach(offerSort);
  document.querySelectorAll(".filter").forEach(offerFilter);
  document.addEventListener("click", showOnTimeline);
  addEventListener("hashchange", reveal);
  followReading();
})();

// Where links lead: to an element that may be hidden, to a place on the timeline, and to the section being read.
// Gives reveal(), showOnTimeline(event) and followReading().

// The element that the address names.
function reveal() {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (!target) {
    return;
  }
  clearFilter(target);
  for (let box = target.closest("details"); box; box = box.parentElement.closest("details")) {
    box.open = true;
  }
  target.scrollIntoView();
}

// The timeline hears of a click by the event "traceview:show".
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

// Marks the section being read in the table of contents.
function followReading() {
  const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
  const sections = [...links.keys()].map((id) => document.getElementById(id));
  let marked = null;
  const mark = () => {
    const line = innerHeight / 4;
    const isAtEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
    const begun = sections.filter((section) => section && section.getBoundingClientRect().top <= line);
    const current = (isAtEnd ? sections.at(-1) : begun.at(-1)) ?? sections[0];
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

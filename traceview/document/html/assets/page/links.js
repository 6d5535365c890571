// Where links lead: to an element that may be hidden, or to a place on the timeline.
// Gives upgradeShowLinks() and acceptLinks().

const PLACE = "#at="; // #at=device,start,end,other devices: numbers alone, so that an address holds no recorded name.

// Without scripts these links lead to the figure; with scripts each has an address of its own.
function upgradeShowLinks() {
  document.querySelectorAll("a.show").forEach((link) => link.setAttribute("href", `${PLACE}${link.dataset.at}`));
}

// Shows what the address names: a place on the timeline, which hears of it by "traceview:show", or an element.
function reveal() {
  if (location.hash.startsWith(PLACE)) {
    const [device, startPs, endPs, ...others] = location.hash.slice(PLACE.length).split(",").map(Number);
    const detail = { device, start_ps: startPs, end_ps: endPs, others };
    document.dispatchEvent(new CustomEvent("traceview:show", { detail }));
    return;
  }
  document.dispatchEvent(new CustomEvent("traceview:forget"));
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (!target) {
    return;
  }
  clearFilter(target);
  if (target.tagName === "DETAILS") {
    target.open = true;
  }
  for (let box = target.closest("details"); box; box = box.parentElement.closest("details")) {
    box.open = true;
  }
  target.scrollIntoView();
}

// A link that leads where the page is already shows its place again. Escape on the timeline, "traceview:leave", goes
// back to where the link was.
function acceptLinks() {
  let cameByLink = false;
  document.addEventListener("click", (event) => {
    const address = event.target.closest("a")?.getAttribute("href") ?? "";
    cameByLink ||= address.startsWith(PLACE);
    if (address.length > 1 && address === location.hash) {
      reveal();
    }
  });
  document.addEventListener("traceview:leave", () => {
    if (cameByLink && location.hash.startsWith(PLACE)) {
      cameByLink = false;
      history.back();
    }
  });
  addEventListener("hashchange", reveal);
  addEventListener("load", reveal);
}

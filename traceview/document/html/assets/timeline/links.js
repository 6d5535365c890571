// Between the timeline and the rest of the page: a slice leads to its gap, a finding to its place on the timeline.
// Gives followGap(gap) and acceptPlaces(timeline, figure).

const TOP_BAR = 70; // Pixels of the page's header, and some air.

function followGap(gap) {
  location.hash = `#gap-${gap.number}`;
}

// A "traceview:show" event names devices by their numbers, and picoseconds on the clock of the first one's host.
function acceptPlaces(timeline, figure) {
  document.addEventListener("traceview:show", ({ detail }) => {
    const device = timeline.devices[detail.device];
    if (!device || !(detail.end_ps >= detail.start_ps)) {
      return;
    }
    const startPs = device.offset + detail.start_ps;
    const endPs = device.offset + detail.end_ps;
    const others = detail.others.map((place) => timeline.devices[place]).filter(Boolean);
    timeline.showPlace({ device, startPs, endPs }, others);
    const { y } = timeline.rows.find((row) => row.device === device);
    const top = (element) => element.getBoundingClientRect().top + scrollY;
    const isNearTheTop = y < innerHeight / 2;
    scrollTo({ top: isNearTheTop ? top(figure) - TOP_BAR : top(timeline.canvas) + y - 2 * TOP_BAR });
    timeline.canvas.focus({ preventScroll: true });
  });
  document.addEventListener("traceview:forget", timeline.forgetPlace);
}

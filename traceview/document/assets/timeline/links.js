// Between the timeline and the rest of the page: a slice leads to its gap, a finding to its place on the timeline.
// Gives followGap(gap) and acceptPlaces(timeline, figure).

const TOP_BAR = 70; // Pixels of the page's header, and some air.

function followGap(gap) {
  location.hash = `#gap-${gap.number}`;
}

// A "traceview:show" event names a device by its key, and picoseconds on the clock of the device's host.
function acceptPlaces(timeline, figure) {
  document.addEventListener("traceview:show", ({ detail }) => {
    const device = timeline.devices.find(({ key }) => key === detail.device);
    if (!device) {
      return;
    }
    const startPs = device.offset + detail.start_ps;
    const endPs = device.offset + detail.end_ps;
    timeline.showPlace({ device, startPs, endPs });
    const { y } = timeline.rows.find((row) => row.device === device);
    const top = (element) => element.getBoundingClientRect().top + scrollY;
    const isNearTheTop = y < innerHeight / 2;
    scrollTo({ top: isNearTheTop ? top(figure) - TOP_BAR : top(timeline.canvas) + y - 2 * TOP_BAR });
    timeline.canvas.focus({ preventScroll: true });
  });
}

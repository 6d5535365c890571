// Which part of the window is shown, and the scale from picoseconds to pixels.
// Gives createViewport(canvas, spanPs, onChange); the wheel zooms it, and the pointers that hold the canvas move it.

const SHORTEST_VIEW_PS = 1e6; // Over the whole width, when zoomed in as far as possible.
const CLICK_PIXELS = 3; // A pointer that moves farther than that does not click.

function createViewport(canvas, spanPs, onChange) {
  let plotWidth = 50;
  let fromPs = 0;
  let lengthPs = spanPs;

  const x = (ps) => GUTTER + ((ps - fromPs) / lengthPs) * plotWidth;
  const timeAt = (left) => fromPs + ((left - GUTTER) / plotWidth) * lengthPs;
  const possible = (ps) => Math.min(Math.max(ps, SHORTEST_VIEW_PS), spanPs);

  // As long as is possible, and moved into the window.
  function show(startPs, wantedPs) {
    lengthPs = possible(wantedPs);
    fromPs = Math.min(Math.max(startPs, 0), spanPs - lengthPs);
    onChange();
  }

  // A moment stays where it is.
  function zoomAround(ps, factor) {
    const nextPs = possible(lengthPs / factor);
    show(ps - ((ps - fromPs) * nextPs) / lengthPs, nextPs);
  }

  acceptWheel(canvas, ({ offsetX }, factor) => zoomAround(timeAt(offsetX), factor));
  acceptHolding(canvas, timeAt, (held) => {
    // Each moment that is held stays below its pointer.
    const [first, last] = [held[0], held.at(-1)];
    const isPinch = Math.abs(last.left - first.left) >= 1 && (last.ps - first.ps) * (last.left - first.left) > 0;
    const nextPs = possible(isPinch ? ((last.ps - first.ps) * plotWidth) / (last.left - first.left) : lengthPs);
    show(first.ps - ((first.left - GUTTER) / plotWidth) * nextPs, nextPs);
  });

  return {
    left: GUTTER,
    get right() {
      return GUTTER + plotWidth;
    },
    get plotWidth() {
      return plotWidth;
    },
    x,
    timeAt,
    // The first and the last picosecond shown.
    range: () => [fromPs, fromPs + lengthPs],
    // Left and right edge of a slice, at least two pixels apart and never left of the lanes.
    edges({ startPs, endPs }) {
      const left = Math.max(x(startPs), GUTTER);
      return [left, Math.min(Math.max(x(endPs), left + 2), GUTTER + plotWidth)];
    },

    fit(width) {
      plotWidth = Math.max(width - GUTTER - RIGHT_MARGIN, 50);
    },
    zoomBy: (factor) => zoomAround(fromPs + lengthPs / 2, factor),
    // By a fifth of the width, to the left (-1) or to the right (1).
    pan: (direction) => show(fromPs + (direction * lengthPs) / 5, lengthPs),
    showAll: () => show(0, spanPs),
    keepInView({ startPs, endPs }) {
      if (endPs < fromPs || startPs > fromPs + lengthPs) {
        show((startPs + endPs - lengthPs) / 2, lengthPs);
      }
    },
    // In the middle, with a quarter of its length on either side.
    zoomTo({ startPs, endPs }) {
      const aroundPs = Math.max((endPs - startPs) * 1.5, SHORTEST_VIEW_PS * 2);
      show((startPs + endPs - aroundPs) / 2, aroundPs);
    },
  };
}

// The wheel scrolls the page unless it is meant for the timeline.
function acceptWheel(canvas, zoom) {
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) {
        return;
      }
      event.preventDefault();
      const lines = [0.002, 0.05, 1][event.deltaMode]; // Of a pixel, a line, a page.
      zoom(event, 2 ** (-event.deltaY * lines * (event.ctrlKey ? 10 : 1)));
    },
    { passive: false },
  );
}

// Gives `move` the moments that pointers hold, a mouse or fingers, and where these are now.
function acceptHolding(canvas, timeAt, move) {
  const held = new Map();
  let hasMoved = false;

  function release({ pointerId }) {
    held.delete(pointerId);
    for (const pointer of held.values()) {
      pointer.ps = timeAt(pointer.left);
    }
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button || event.ctrlKey || held.size > 1) {
      return;
    }
    canvas.setPointerCapture(event.pointerId);
    hasMoved &&= held.size > 0;
    held.set(event.pointerId, { ps: timeAt(event.offsetX), left: event.offsetX, startLeft: event.offsetX });
  });
  canvas.addEventListener("pointermove", (event) => {
    const pointer = held.get(event.pointerId);
    if (pointer) {
      pointer.left = event.offsetX;
      hasMoved ||= Math.abs(pointer.left - pointer.startLeft) > CLICK_PIXELS;
      move([...held.values()]);
    }
  });
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("click", (event) => {
    if (hasMoved) {
      event.stopImmediatePropagation();
    }
    hasMoved = false;
  });
}

// Which part of the window is shown: zoom, pan, and the scale from picoseconds to pixels.
// Gives createViewport(canvas, spanPs, onChange), the only user of d3.zoom.

const SHORTEST_VIEW_PS = 1e6; // Over the whole width, when zoomed in as far as possible.

function createViewport(canvas, spanPs, onChange) {
  const mostZoom = Math.max(1, spanPs / SHORTEST_VIEW_PS);
  const target = d3.select(canvas);
  let plotWidth = 0;
  let whole = d3.scaleLinear(); // Of the whole window.
  let scale = d3.scaleLinear(); // Of what is shown.

  const zoom = d3
    .zoom()
    .scaleExtent([1, mostZoom])
    .filter((event) => {
      // The wheel scrolls the page unless it is meant for the timeline.
      if (event.type === "wheel") {
        return event.ctrlKey || event.metaKey || document.activeElement === canvas;
      }
      return !event.button && !event.ctrlKey;
    })
    .on("zoom", ({ transform }) => {
      scale = transform.rescaleX(whole);
      onChange();
    });
  target.call(zoom).on("dblclick.zoom", null);

  return {
    left: GUTTER,
    get right() {
      return GUTTER + plotWidth;
    },
    get plotWidth() {
      return plotWidth;
    },
    x: (ps) => scale(ps),
    timeAt: (x) => scale.invert(x),
    // The first and the last picosecond shown.
    range: () => scale.domain(),
    // Left and right edge of a slice, at least two pixels apart and never left of the lanes.
    edges({ startPs, endPs }) {
      const left = Math.max(scale(startPs), GUTTER);
      return [left, Math.min(Math.max(scale(endPs), left + 2), GUTTER + plotWidth)];
    },

    fit(width, height) {
      plotWidth = Math.max(width - GUTTER - RIGHT_MARGIN, 50);
      whole = d3.scaleLinear([0, spanPs], [GUTTER, GUTTER + plotWidth]);
      const extent = [
        [GUTTER, 0],
        [GUTTER + plotWidth, height],
      ];
      zoom.extent(extent).translateExtent(extent);
      scale = d3.zoomTransform(canvas).rescaleX(whole);
    },
    zoomBy: (factor) => zoom.scaleBy(target, factor),
    // By a fifth of the width, to the left (-1) or to the right (1).
    pan: (direction) => zoom.translateBy(target, (-direction * plotWidth) / 5 / d3.zoomTransform(canvas).k, 0),
    showAll: () => zoom.transform(target, d3.zoomIdentity),
    keepInView({ startPs, endPs }) {
      const [fromPs, toPs] = scale.domain();
      if (endPs < fromPs || startPs > toPs) {
        zoom.translateTo(target, whole((startPs + endPs) / 2), 0);
      }
    },
    // In the middle, with a quarter of its length on either side.
    zoomTo({ startPs, endPs }) {
      const lengthPs = Math.max((endPs - startPs) * 1.5, SHORTEST_VIEW_PS * 2);
      const factor = Math.min(Math.max(spanPs / lengthPs, 1), mostZoom);
      const middle = whole((startPs + endPs) / 2);
      const transform = d3.zoomIdentity.translate(GUTTER + plotWidth / 2 - factor * middle, 0).scale(factor);
      zoom.transform(target, zoom.constrain()(transform, zoom.extent()(), zoom.translateExtent()));
    },
  };
}

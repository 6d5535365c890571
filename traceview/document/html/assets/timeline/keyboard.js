// The keys on the canvas; the hint above the canvas lists them. Gives acceptKeys(timeline).

function acceptKeys(timeline) {
  timeline.canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const act = actionOf(timeline, event);
    if (act) {
      event.preventDefault();
      act();
    }
  });
}

// What a key does now; null where it is left to the browser.
function actionOf(timeline, { key, shiftKey }) {
  const { viewport, rows, selected } = timeline;
  const row = selected && rows[selected.row];
  switch (key) {
    case "ArrowLeft":
      return () => (shiftKey ? viewport.pan(-1) : selectSlice(timeline, -1));
    case "ArrowRight":
      return () => (shiftKey ? viewport.pan(1) : selectSlice(timeline, 1));
    case "ArrowUp":
      return () => selectRow(timeline, -1);
    case "ArrowDown":
      return () => selectRow(timeline, 1);
    case "+":
    case "=":
      return () => viewport.zoomBy(2);
    case "-":
      return () => viewport.zoomBy(0.5);
    case "Home":
      return viewport.showAll;
    case "Escape":
      return () => {
        if (selected) {
          timeline.deselect();
        } else {
          timeline.forgetPlace();
          document.dispatchEvent(new CustomEvent("traceview:leave"));
        }
      };
    case "Enter": {
      const slice = row?.lane?.slices[selected.index];
      const gap = slice && gapOf(row.device, row.lane, slice);
      if (gap) {
        return () => followGap(gap);
      }
      return row?.device && row.device.lanes.length > 1 ? () => timeline.toggle(row.device) : null;
    }
    default:
      return null;
  }
}

// The slice before (-1) or after (1) the selected one in its lane; without one, the first in view.
function selectSlice(timeline, direction) {
  const { rows, selected, select } = timeline;
  const lane = selected && rows[selected.row]?.lane;
  if (!lane) {
    selectRow(timeline, direction);
  } else if (lane.slices[selected.index + direction]) {
    select(selected.row, selected.index + direction);
  }
}

// The next row up (-1) or down (1) that can be selected, at the first slice in view.
function selectRow({ viewport, rows, selected, select }, direction) {
  let place = selected ? selected.row + direction : direction > 0 ? 0 : rows.length - 1;
  while (rows[place] && rows[place].kind !== "lane" && !rows[place].canOpen) {
    place += direction;
  }
  if (rows[place]) {
    const slices = rows[place].lane?.slices;
    select(place, slices ? Math.min(firstEndingAfter(slices, viewport.range()[0]), slices.length - 1) : -1);
  }
}

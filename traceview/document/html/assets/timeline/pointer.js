// The pointer on the canvas: tooltips, opening of devices, and clicks on gaps. Gives acceptPointer(timeline).

function acceptPointer(timeline) {
  const { canvas, tooltip } = timeline;
  canvas.addEventListener("pointermove", (event) => {
    const { row, lane, slice, left, top } = hit(timeline, event);
    canvas.classList.toggle("tv-points", isToggle(timeline, row, left) || Boolean(slice && gapOf(row.device, lane, slice)));
    if (slice && !event.buttons) {
      tooltip.show(row, lane, slice, left, top);
    } else if (!timeline.selected) {
      tooltip.setHidden(true);
    }
  });
  canvas.addEventListener("pointerleave", () => tooltip.setHidden(true));
  canvas.addEventListener("blur", timeline.deselect);
  canvas.addEventListener("click", (event) => {
    canvas.focus({ preventScroll: true });
    const { row, lane, slice, left } = hit(timeline, event);
    const gap = slice && gapOf(row.device, lane, slice);
    if (isToggle(timeline, row, left)) {
      timeline.toggle(row.device);
    } else if (gap) {
      followGap(gap);
    }
  });
}

// Whether a click there opens or folds a device: on its label, or anywhere on a folded device.
function isToggle({ viewport }, row, left) {
  return Boolean(row?.canOpen && (left < viewport.left || row.kind === "folded"));
}

// What is under the pointer: the row, and the lane and slice where there is a slice, two pixels aside if need be.
function hit({ rows, viewport }, event) {
  const { offsetX: left, offsetY: top } = event;
  const row = rowAt(rows, top);
  for (const lane of row && left >= viewport.left ? lanesAt(row, top) : []) {
    const ps = viewport.timeAt(left);
    const slice = sliceAt(lane, ps, ps) ?? sliceAt(lane, viewport.timeAt(left - 2), viewport.timeAt(left + 2));
    if (slice) {
      return { row, lane, slice, left, top };
    }
  }
  return { row, lane: null, slice: null, left, top };
}

// Of a folded device those that are drawn at this height.
function lanesAt(row, top) {
  if (row.kind !== "folded") {
    return row.lane ? [row.lane] : [];
  }
  const { lanes } = row.device;
  const isLow = top > row.y + row.height * FOLDED_ACTIVITY_SHARE;
  return lanes.filter((lane) => (lane.kind === "idle") === isLow || lanes.length === 1);
}

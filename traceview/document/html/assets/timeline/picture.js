// The whole picture: axis, rows with their labels, and the frames around what is selected and what a link leads to.
// Gives drawPicture(pen, axis, scene); a scene is { rows, width, height, place, selected }.

function drawPicture(pen, axis, { rows, width, height, place, selected }) {
  pen.context.clearRect(0, 0, width, height);
  drawAxis(pen, axis, height);
  for (const row of rows) {
    drawRow(pen, row);
  }
  if (place) {
    drawPlace(pen, rows, place);
  }
  if (selected) {
    drawSelected(pen, rows[selected.row], selected.index);
  }
}

function drawAxis({ context, viewport, colours }, axis, height) {
  const [fromPs, toPs] = viewport.range();
  const [unit, factor] = TIME_UNITS.findLast(([, ps]) => (toPs - fromPs) / 4 >= ps) ?? TIME_UNITS[0];
  const scale = d3.scaleLinear([fromPs / factor, toPs / factor], [viewport.left, viewport.right]);
  const tickCount = Math.max(2, Math.min(10, Math.floor(viewport.plotWidth / 95)));
  axis.selectChildren().remove();
  axis.append("g").attr("transform", "translate(0,21)").call(d3.axisTop(scale).ticks(tickCount).tickSizeOuter(0));
  axis.append("text").attr("x", 12).attr("y", 13).text(unit);
  context.strokeStyle = colours.line;
  context.globalAlpha = 0.6;
  context.beginPath();
  for (const tick of scale.ticks(tickCount)) {
    const x = Math.round(scale(tick)) + 0.5;
    context.moveTo(x, 0);
    context.lineTo(x, height);
  }
  context.stroke();
  context.globalAlpha = 1;
}

function drawRow(pen, row) {
  const { context, viewport, colours } = pen;
  drawLabel(pen, row);
  if (row.kind === "head" || row.kind === "host") {
    return;
  }
  context.fillStyle = colours.row;
  context.fillRect(viewport.left, row.y, viewport.plotWidth, row.height);
  context.save();
  context.beginPath();
  context.rect(viewport.left, row.y, viewport.plotWidth, row.height);
  context.clip();
  if (row.kind === "lane") {
    drawLane(pen, row.lane, row.y, row.height);
  } else {
    drawFolded(pen, row);
  }
  context.restore();
}

function drawLabel({ context, viewport, colours }, row) {
  const isHeading = row.kind !== "lane";
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.font = `${isHeading ? "600 12px" : "11px"} system-ui, sans-serif`;
  context.fillStyle = isHeading ? colours.ink : colours.soft;
  const triangle = row.canOpen ? (row.kind === "head" ? "▾ " : "▸ ") : "";
  const left = isHeading ? 2 : 16;
  const text = shortened(context, triangle + row.label, viewport.left - left - 6);
  context.fillText(text, left, row.y + row.height / 2 + 1);
}

// What the device did above, its idle time below.
function drawFolded(pen, row) {
  const { lanes } = row.device;
  const upper = lanes.length > 1 ? Math.round(row.height * FOLDED_ACTIVITY_SHARE) : 0;
  for (const lane of [...lanes].reverse()) {
    const isIdle = lane.kind === "idle";
    drawLane(pen, lane, isIdle ? row.y + upper : row.y, isIdle ? row.height - upper : upper);
  }
}

function drawPlace({ context, viewport, colours }, rows, place) {
  const deviceRows = rows.filter((row) => row.device === place.device);
  const [left, right] = viewport.edges(place);
  if (!deviceRows.length || right < viewport.left || left > viewport.right) {
    return;
  }
  const top = deviceRows[0].y;
  const bottom = deviceRows.at(-1).y + deviceRows.at(-1).height;
  context.strokeStyle = colours.mark;
  context.lineWidth = 2;
  context.strokeRect(left - 1, top - 1, right - left + 2, bottom - top + 2);
  context.lineWidth = 1;
}

// Around a slice, or around the label of a row without lanes.
function drawSelected({ context, viewport, colours }, row, index) {
  const slice = row.lane?.slices[index];
  const [left, right] = slice ? viewport.edges(slice) : [0.5, viewport.left - 2];
  context.strokeStyle = colours.ink;
  context.lineWidth = 2;
  context.strokeRect(left, row.y, Math.max(right - left, 1), row.height);
  context.lineWidth = 1;
}

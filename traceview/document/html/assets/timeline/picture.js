// The whole picture: axis, rows with their labels, and the frames around what is selected and what a link leads to.
// Gives drawPicture(pen, axis, scene); a scene is { rows, width, height, place, selected }.

function drawPicture(pen, axis, { rows, width, height, place, selected }) {
  pen.context.clearRect(0, 0, width, height);
  drawAxis(pen, axis, width, height);
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

function drawAxis({ context, viewport, colours }, axis, width, height) {
  const [fromPs, toPs] = viewport.range();
  const [unit, factor] = TIME_UNITS.findLast(([, ps]) => (toPs - fromPs) / 4 >= ps) ?? TIME_UNITS[0];
  const ticks = ticksIn(fromPs / factor, toPs / factor, Math.max(2, Math.min(10, viewport.plotWidth / 95)));
  const labels = [{ text: unit, left: 12 }, ...ticks.map(({ value, text }) => ({ text, left: viewport.x(value * factor) }))];
  axis.replaceChildren(
    ...labels.map(({ text, left }) => {
      const label = document.createElement("span");
      label.textContent = text;
      label.style.left = `${(100 * left) / width}%`; // Of whatever width paper has.
      return label;
    }),
  );
  context.strokeStyle = colours.line;
  context.globalAlpha = 0.6;
  context.beginPath();
  for (const { value } of ticks) {
    const x = Math.round(viewport.x(value * factor)) + 0.5;
    context.moveTo(x, 0);
    context.lineTo(x, height);
  }
  context.stroke();
  context.globalAlpha = 1;
}

// Round values in a range, `most` of them at the most, with their texts.
function ticksIn(from, to, most) {
  const least = (to - from) / most;
  const power = Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].find((factor) => factor * 10 ** power >= least) * 10 ** power;
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  const first = Math.ceil(from / step);
  return Array.from({ length: Math.floor(to / step) - first + 1 }, (_, place) => {
    const value = (first + place) * step;
    const format = { minimumFractionDigits: digits, maximumFractionDigits: digits };
    return { value, text: value.toLocaleString("en", format) };
  });
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

// The slices of a lane on the canvas. Gives drawLane(pen, lane, y, height) and shortened(context, text, room).
// A pen is { context, viewport, colours }.

const LETTER_FROM = 13; // Pixels of a slice from which it has a letter,
const NAME_FROM = 48; // a name,
const STACKED_FROM = 4; // and every class in it, not only the longest.
const LOWEST = 0.5; // Pixels of a cell that is hardly filled.
const SLICE_FONT = "10px system-ui, sans-serif";

// Slices that share a pixel are one cell. Its colour is the class that fills most of it, its height how much is filled.
function drawLane(pen, lane, y, height) {
  const [fromPs, toPs] = pen.viewport.range();
  const pixelsPerPs = pen.viewport.plotWidth / (toPs - fromPs);
  const { slices } = lane;
  let cell = null;
  for (let i = firstEndingAfter(slices, fromPs); i < slices.length && slices[i].startPs < toPs; i += 1) {
    const slice = slices[i];
    if (cell && (slice.endPs - cell.startPs) * pixelsPerPs <= 1) {
      cell.endPs = slice.endPs;
      cell.parts = cell.parts.concat(slice.parts);
      cell.slice = null;
      continue;
    }
    if (cell) {
      drawCell(pen, lane, cell, y, height);
    }
    cell = { startPs: slice.startPs, endPs: slice.endPs, parts: slice.parts, slice };
  }
  if (cell) {
    drawCell(pen, lane, cell, y, height);
  }
}

function drawCell(pen, lane, cell, y, height) {
  const { context, viewport, colours } = pen;
  const start = viewport.x(cell.startPs);
  const left = Math.max(start, viewport.left - 2);
  const right = Math.min(Math.max(viewport.x(cell.endPs), start + 0.75), viewport.right + 2);
  const width = right - left;
  const sums = new Map();
  for (const [class_, ps] of cell.parts) {
    sums.set(class_, (sums.get(class_) ?? 0) + ps);
  }
  const parts = [...sums].sort(([, a], [, b]) => b - a);
  const filledShare = Math.min(1, totalPs(parts) / (cell.endPs - cell.startPs));
  const filled = Math.max(height * filledShare, LOWEST);
  const drawn = width < STACKED_FROM ? parts.slice(0, 1) : parts;
  const drawnPs = totalPs(drawn);
  const space = lane.kind === "steps" && width > 3 ? 0.5 : 0;
  let top = y + height - filled;
  for (const [class_, ps] of drawn) {
    const partHeight = (filled * ps) / drawnPs;
    const [style, letter, words, isHatched] = lane.looks[class_];
    context.fillStyle = colours[style];
    context.fillRect(left + space, top, width - 2 * space, partHeight);
    if (isHatched) {
      context.fillStyle = colours.hatch;
      context.fillRect(left + space, top, width - 2 * space, partHeight);
    }
    if (partHeight >= 9 && width >= LETTER_FROM) {
      const room = width - (lane.kind === "steps" ? 2 : 8);
      const text = cellText(context, lane, cell.slice, letter, words, room);
      context.textAlign = "center";
      context.fillStyle = colours["slice-ink"];
      context.fillText(text, (left + right) / 2, top + partHeight / 2 + 1);
    }
    top += partHeight;
  }
}

function totalPs(parts) {
  return parts.reduce((sum, [, ps]) => sum + ps, 0);
}

// A name may lose its middle; words that do not fit become their letter.
function cellText(context, lane, slice, letter, words, room) {
  context.font = SLICE_FONT;
  let text = letter;
  if (lane.kind === "steps") {
    text = slice && slice.name >= 0 ? String(slice.name) : "";
  } else if (room >= NAME_FROM) {
    const whole = letter ? `${letter} ${words}` : words;
    text = eventText(lane, slice) || (context.measureText(whole).width <= room ? whole : letter);
  }
  return text && shortened(context, text, Math.max(room, letter ? 8 : 0));
}

function eventText(lane, slice) {
  if (!slice || isStateLane(lane)) {
    return "";
  }
  return slice.count > 1 ? `${slice.count.toLocaleString("en")} events` : sliceName(lane, slice);
}

// Text without as much of its middle as it takes to fit, in the font of the context; "" where nothing fits.
function shortened(context, text, room) {
  const width = context.measureText(text).width;
  if (width <= room) {
    return text;
  }
  for (let most = Math.floor((text.length * room) / width); most > 1; most -= 1) {
    const head = Math.ceil(most / 2);
    const cut = `${text.slice(0, head)}…${text.slice(text.length - (most - head))}`;
    if (context.measureText(cut).width <= room) {
      return cut;
    }
  }
  return "";
}

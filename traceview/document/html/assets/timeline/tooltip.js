// What is said about a slice, and the box that says it.
// Gives sliceTitle and sliceLines, which only make text, and createTooltip(figure, canvas).

const MERGED_NOUNS = { idle: "gaps", steps: "steps", thread: "changes" };

function sliceTitle(lane, slice) {
  const name = sliceName(lane, slice);
  if (name && lane.kind === "idle") {
    return `until ${name}`;
  }
  return name && slice.count > 1 && !isStateLane(lane) ? `${name} and others` : name;
}

function sliceLines({ host, device }, lane, slice) {
  const laneName = lane.kind === "steps" ? "steps" : `thread ${lane.thread}`;
  const step = stepName(host, lane, slice);
  const lines = [`${device ? `${device.name}, ${lane.kind}` : laneName}${step && `, ${step}`}`];
  lines.push(`from ${timeText(slice.startPs - lane.offset)}, ${timeText(slice.endPs - slice.startPs)} long`);
  lines.push(partsText(lane, slice));
  if (slice.count > 1) {
    const noun = MERGED_NOUNS[lane.kind] ?? "events";
    const reason = lane.resolution ? `; shorter than ${lane.resolution} they are merged` : "";
    lines.push(`stands for ${slice.count.toLocaleString("en")} ${noun}${reason}`);
  }
  const gap = gapOf(device, lane, slice);
  if (gap?.python) {
    lines.push(`Python: ${gap.python}`);
  }
  if (gap) {
    lines.push(`gap ${gap.number}: Enter or a click leads to it`);
  }
  return lines;
}

function partsText(lane, slice) {
  const parts = [...slice.parts].sort(([, a], [, b]) => b - a);
  const words = ([class_]) => lane.looks[class_][2];
  if (parts.length === 1 && parts[0][1] === slice.endPs - slice.startPs) {
    return words(parts[0]);
  }
  return parts.map((part) => `${words(part)} ${timeText(part[1])}`).join(", ");
}

function createTooltip(figure, canvas) {
  const element = document.createElement("div");
  element.className = "tv-tip";
  element.hidden = true;
  element.setAttribute("role", "status");

  function line(tag, text) {
    const child = document.createElement(tag);
    child.textContent = text;
    return child;
  }

  return {
    element,
    // Beside a point of the canvas, on the side that has room.
    show(row, lane, slice, left, top) {
      const title = sliceTitle(lane, slice);
      const lines = sliceLines(row, lane, slice).map((text) => line("div", text));
      element.replaceChildren(...(title ? [line("b", title)] : []), ...lines);
      element.hidden = false;
      const isBeyond = left + 14 + element.offsetWidth > figure.clientWidth;
      element.style.left = `${Math.max(0, isBeyond ? left - 14 - element.offsetWidth : left + 14)}px`;
      element.style.top = `${canvas.offsetTop + top + 14}px`;
    },
    setHidden(isHidden) {
      element.hidden = isHidden;
    },
  };
}

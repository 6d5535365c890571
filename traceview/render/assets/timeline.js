"use strict";
// The timeline of the page, made live: a canvas with lanes, drawn from the columns in #timeline-data.
(() => {
  const figure = document.getElementById("timeline");
  const source = document.getElementById("timeline-data");
  if (!figure || !source || !window.d3) {
    return;
  }
  const data = JSON.parse(source.textContent);

  const GUTTER = 150;
  const RIGHT = 12;
  const HEIGHTS = { steps: 18, thread: 13, compute: 18, communication: 12, copies: 12, idle: 18 };
  const FOLDED = 16;
  const HEAD = 18;
  const SPACE = 3;
  const MOST_OPEN = 8; // With more devices each starts as one row.
  const SHORTEST_VIEW = 1e6; // Picoseconds over the whole width when zoomed in as far as it goes.
  const LETTER_FROM = 13;
  const NAME_FROM = 48;
  const STACKED_FROM = 4;
  const HATCHED = ["idle-unattributed", "idle-unused", "idle-latency", "step-excluded"];
  const UNITS = [["ps", 1], ["ns", 1e3], ["µs", 1e6], ["ms", 1e9], ["s", 1e12]];

  function time(ps) {
    if (ps === 0) {
      return "0";
    }
    const at = UNITS.findIndex(([, factor], i) => Math.abs(ps) < factor * 999.95 || i === UNITS.length - 1);
    const [unit, factor] = UNITS[at];
    const value = ps / factor;
    const digits = at === 0 ? 0 : Math.abs(value) < 9.995 ? 2 : 1;
    return `${value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
  }

  // Columns, as the report's schema describes them, to slices on the clock of all hosts.
  function decoded(lane, offset) {
    const isCause = lane.kind === "idle" || lane.kind === "thread";
    const looks = lane.classes.map((key) => (isCause ? data.causes : data.activities)[key]);
    const slices = [];
    let end = offset;
    lane.before_ps.forEach((before, i) => {
      const start = end + before;
      end = start + lane.length_ps[i];
      slices.push({ start, end, count: 1, parts: [[lane.class[i], lane.length_ps[i]]], name: lane.name[i] });
    });
    let place = 0;
    lane.merged.forEach((step, i) => {
      place += step;
      slices[place].count = lane.merged_count[i];
      slices[place].parts[0][1] -= lane.merged_hole_ps[i];
    });
    place = 0;
    lane.other_slice.forEach((step, i) => {
      place += step;
      slices[place].parts[0][1] -= lane.other_ps[i];
      slices[place].parts.push([lane.other_class[i], lane.other_ps[i]]);
    });
    return { ...lane, offset, looks, slices };
  }

  const hosts = data.hosts.map((host) => ({ ...host, lanes: host.lanes.map((lane) => decoded(lane, host.offset)) }));
  const devices = data.devices.map((device, index) => {
    const { offset } = hosts[device.host];
    const lanes = device.lanes.map((lane) => decoded(lane, offset));
    const gaps = data.gaps
      .filter(([owner]) => owner === index)
      .map(([, start, end, number]) => ({ start: start + offset, end: end + offset, number }));
    const isOpen = data.devices.length <= MOST_OPEN && lanes.length > 1;
    return { ...device, offset, lanes, gaps, isOpen, isListed: !data.folded.includes(index) };
  });

  // The first slice that ends after a moment.
  const firstAfter = (slices, moment) => d3.bisector((one) => one.end).right(slices, moment);

  function sliceAt(lane, from, to) {
    const { slices } = lane;
    const at = firstAfter(slices, from);
    return at < slices.length && slices[at].start <= to ? slices[at] : null;
  }

  const nameOf = (lane, slice) => {
    if (lane.kind === "steps") {
      return slice.name < 0 ? "step" : `step ${slice.name}`;
    }
    return slice.name < 0 ? "" : data.names[slice.name];
  };

  function gapAt(row, slice) {
    const gaps = row.device && row.lane.kind === "idle" ? row.device.gaps : [];
    return gaps.find((gap) => slice.start < gap.end && slice.end > gap.start) ?? null;
  }

  // What is drawn where: rows from top to bottom, made again when a device is opened.
  // Of very many devices those that stand out have one, until all are asked for.
  let rows = [];
  let listsAll = data.folded.length === 0;
  let height = 0;

  function layOut() {
    rows = [];
    let y = 2;
    const add = (row) => {
      rows.push({ ...row, y });
      y += row.height + SPACE;
    };
    hosts.forEach((host, index) => {
      const mine = devices.filter((one) => one.host === index && (listsAll || one.isListed));
      if (!listsAll && !mine.length) {
        return;
      }
      if (hosts.length > 1) {
        y += 6;
        add({ kind: "host", height: HEAD, label: host.name });
      }
      for (const lane of host.lanes) {
        const label = lane.kind === "steps" ? "steps" : lane.thread;
        add({ kind: "lane", height: HEIGHTS[lane.kind], label, lane, host });
      }
      y += 4;
      for (const device of mine) {
        const canOpen = device.lanes.length > 1;
        const isOpen = canOpen && device.isOpen;
        y += isOpen ? 5 : 0;
        add({ kind: isOpen ? "head" : "folded", height: isOpen ? HEAD - 4 : FOLDED, label: device.name, device, canOpen });
        for (const lane of isOpen ? device.lanes : []) {
          add({ kind: "lane", height: HEIGHTS[lane.kind], label: lane.kind, lane, device });
        }
      }
    });
    height = y + 4;
    const count = listsAll ? devices.length : devices.filter((one) => one.isListed).length;
    listed.textContent = `${count} of ${devices.length} devices${listsAll ? "" : ": those that stand out, and one like the others"}`;
  }

  // The parts of the figure

  const tools = document.createElement("div");
  tools.className = "tv-tools";
  const view = document.createElement("output");
  const listed = document.createElement("span");
  const axis = d3.create("svg").attr("class", "tv-axis").attr("aria-hidden", "true");
  const canvas = document.createElement("canvas");
  canvas.className = "tv-canvas";
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", "Timeline of the window");
  canvas.setAttribute("aria-describedby", "tv-hint");
  const tip = document.createElement("div");
  tip.className = "tv-tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  const context = canvas.getContext("2d");

  let width = 0;
  let colours = {};
  let base = d3.scaleLinear();
  let x = d3.scaleLinear();
  let selected = null; // { row, index }
  let shown = null; // { device, start, end }: what a link led to
  let pending = 0;

  const end = Math.max(data.span, 1);
  const zoom = d3
    .zoom()
    .scaleExtent([1, Math.max(1, end / SHORTEST_VIEW)])
    .filter((event) => {
      // A wheel turns the page unless it is meant for the timeline.
      if (event.type === "wheel") {
        return event.ctrlKey || event.metaKey || document.activeElement === canvas;
      }
      return !event.button && !event.ctrlKey;
    })
    .on("zoom", ({ transform }) => {
      x = transform.rescaleX(base);
      tip.hidden = selected === null;
      redraw();
    });
  const target = d3.select(canvas);

  const plot = () => Math.max(width - GUTTER - RIGHT, 50);

  function resize() {
    width = Math.max(figure.clientWidth, 240);
    layOut();
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    base = d3.scaleLinear([0, end], [GUTTER, GUTTER + plot()]);
    const extent = [
      [GUTTER, 0],
      [GUTTER + plot(), height],
    ];
    zoom.extent(extent).translateExtent(extent);
    x = d3.zoomTransform(canvas).rescaleX(base);
    axis.attr("width", width).attr("height", 22);
    redraw();
  }

  function readColours() {
    const style = getComputedStyle(figure);
    const styles = [...Object.values(data.activities), ...Object.values(data.causes)].map(([one]) => one);
    const read = (name) => style.getPropertyValue(`--tv-${name}`).trim();
    colours = Object.fromEntries([...styles, "ink", "soft", "ground", "row", "line", "mark"].map((one) => [one, read(one)]));
    colours.hatch = hatch(colours.ground);
    redraw();
  }

  function hatch(colour) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.strokeStyle = colour;
    pen.globalAlpha = 0.75;
    pen.beginPath();
    for (const shift of [-6, 0, 6]) {
      pen.moveTo(shift - 1, 7);
      pen.lineTo(shift + 7, -1);
    }
    pen.stroke();
    return context.createPattern(tile, "repeat");
  }

  // Ink that can be read on a colour.
  function inkOn(colour) {
    const { r, g, b } = d3.rgb(colour);
    return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#10151c" : "#ffffff";
  }

  function redraw() {
    if (!pending) {
      pending = requestAnimationFrame(() => {
        pending = 0;
        draw();
      });
    }
  }

  function draw() {
    context.clearRect(0, 0, width, height);
    drawAxis();
    for (const row of rows) {
      drawRow(row);
    }
    drawShown();
    drawSelected();
    const [from, to] = x.domain();
    view.textContent = `${time(Math.max(from, 0))} – ${time(to)}, ${time(to - from)} wide`;
  }

  function drawAxis() {
    const [from, to] = x.domain();
    const [unit, factor] = UNITS.findLast(([, one]) => (to - from) / 4 >= one) ?? UNITS[0];
    const scale = d3.scaleLinear([from / factor, to / factor], x.range());
    const most = Math.max(2, Math.min(10, Math.floor(plot() / 95)));
    axis.selectChildren().remove();
    axis.append("g").attr("transform", "translate(0,21)").call(d3.axisTop(scale).ticks(most).tickSizeOuter(0));
    axis.append("text").attr("x", 12).attr("y", 13).text(unit);
    context.strokeStyle = colours.line;
    context.globalAlpha = 0.6;
    context.beginPath();
    for (const tick of scale.ticks(most)) {
      const at = Math.round(scale(tick)) + 0.5;
      context.moveTo(at, 0);
      context.lineTo(at, height);
    }
    context.stroke();
    context.globalAlpha = 1;
  }

  function drawRow(row) {
    const isHead = row.kind !== "lane";
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.font = `${isHead ? "600 12px" : "11px"} system-ui, sans-serif`;
    context.fillStyle = isHead ? colours.ink : colours.soft;
    const mark = row.canOpen ? (row.kind === "head" ? "▾ " : "▸ ") : "";
    const left = isHead ? 2 : 16;
    context.fillText(fitting(mark + row.label, GUTTER - left - 6), left, row.y + row.height / 2 + 1);
    if (row.kind === "head" || row.kind === "host") {
      return;
    }
    context.fillStyle = colours.row;
    context.fillRect(GUTTER, row.y, plot(), row.height);
    context.save();
    context.beginPath();
    context.rect(GUTTER, row.y, plot(), row.height);
    context.clip();
    if (row.kind === "lane") {
      drawLane(row.lane, row.y, row.height);
    } else {
      const upper = row.device.lanes.length > 1 ? Math.round(row.height * 0.6) : 0;
      for (const lane of [...row.device.lanes].reverse()) {
        const isIdle = lane.kind === "idle";
        drawLane(lane, isIdle ? row.y + upper : row.y, isIdle ? row.height - upper : upper);
      }
    }
    context.restore();
  }

  function fitting(text, room) {
    if (context.measureText(text).width <= room) {
      return text;
    }
    let most = Math.floor((text.length * room) / context.measureText(text).width);
    while (most > 1) {
      const head = Math.ceil(most / 2);
      const cut = `${text.slice(0, head)}…${text.slice(text.length - (most - head))}`;
      if (context.measureText(cut).width <= room) {
        return cut;
      }
      most -= 1;
    }
    return "";
  }

  // Slices that share a pixel are one cell: its colour says what most of it is, how strong how much is covered.
  function drawLane(lane, y, rowHeight) {
    const [from, to] = x.domain();
    const scale = plot() / (to - from);
    let cell = null;
    for (let i = firstAfter(lane.slices, from); i < lane.slices.length && lane.slices[i].start < to; i += 1) {
      const slice = lane.slices[i];
      if (cell && (slice.end - cell.start) * scale <= 1) {
        cell.end = slice.end;
        cell.parts = cell.parts.concat(slice.parts);
        cell.slice = null;
        continue;
      }
      drawCell(lane, cell, y, rowHeight);
      cell = { start: slice.start, end: slice.end, parts: slice.parts, slice };
    }
    drawCell(lane, cell, y, rowHeight);
  }

  function drawCell(lane, cell, y, rowHeight) {
    if (!cell) {
      return;
    }
    const left = Math.max(x(cell.start), GUTTER - 2);
    const right = Math.min(Math.max(x(cell.end), x(cell.start) + 0.75), GUTTER + plot() + 2);
    const sums = d3.rollup(cell.parts, (parts) => d3.sum(parts, ([, ps]) => ps), ([one]) => one);
    let parts = d3.sort(sums, ([, ps]) => -ps);
    const covered = d3.sum(parts, ([, ps]) => ps);
    if (right - left < STACKED_FROM) {
      parts = parts.slice(0, 1);
    }
    const whole = d3.sum(parts, ([, ps]) => ps);
    const share = covered / (cell.end - cell.start);
    const gap = lane.kind === "steps" && right - left > 3 ? 0.5 : 0;
    let top = y;
    for (const [class_, ps] of parts) {
      const part = (rowHeight * ps) / whole;
      const [style, letter, words] = lane.looks[class_];
      context.globalAlpha = share >= 2 / 3 ? 1 : share >= 1 / 3 ? 0.7 : 0.4;
      context.fillStyle = colours[style];
      context.fillRect(left + gap, top, right - left - 2 * gap, part);
      context.globalAlpha = 1;
      if (HATCHED.includes(style)) {
        context.fillStyle = colours.hatch;
        context.fillRect(left + gap, top, right - left - 2 * gap, part);
      }
      if (part >= 9 && right - left >= LETTER_FROM) {
        const ink = share >= 2 / 3 ? inkOn(colours[style]) : colours.ink;
        drawText(lane, cell.slice, letter, words, left, right, top + part / 2 + 1, ink);
      }
      top += part;
    }
  }

  function drawText(lane, slice, letter, words, left, right, middle, ink) {
    const room = right - left - (lane.kind === "steps" ? 2 : 8);
    context.font = "10px system-ui, sans-serif";
    let text = letter;
    if (lane.kind === "steps") {
      text = slice && slice.name >= 0 ? String(slice.name) : "";
    } else if (room >= NAME_FROM) {
      const isNamed = slice && lane.kind !== "idle" && lane.kind !== "thread";
      const many = isNamed && slice.count > 1 ? `${slice.count.toLocaleString("en")} events` : "";
      const name = many || (isNamed ? nameOf(lane, slice) : "");
      const told = letter ? `${letter} ${words}` : words;
      // A name may lose its middle; words that do not fit are one letter.
      text = name || (context.measureText(told).width <= room ? told : letter);
    }
    text = text && fitting(text, Math.max(room, letter ? 8 : 0));
    if (text) {
      context.textAlign = "center";
      context.fillStyle = ink;
      context.fillText(text, (left + right) / 2, middle);
    }
  }

  function drawShown() {
    const own = shown ? rows.filter((row) => row.device === shown.device) : [];
    if (!own.length) {
      return;
    }
    const left = Math.max(x(shown.start), GUTTER);
    const right = Math.min(Math.max(x(shown.end), left + 2), GUTTER + plot());
    const bottom = own.at(-1).y + own.at(-1).height;
    if (right < GUTTER || left > GUTTER + plot()) {
      return;
    }
    context.strokeStyle = colours.mark;
    context.lineWidth = 2;
    context.strokeRect(left - 1, own[0].y - 1, right - left + 2, bottom - own[0].y + 2);
    context.lineWidth = 1;
  }

  function drawSelected() {
    const row = selected && rows[selected.row];
    if (!row) {
      return;
    }
    context.strokeStyle = colours.ink;
    const slice = row.lane?.slices[selected.index];
    const left = slice ? Math.max(x(slice.start), GUTTER) : 0.5;
    const right = slice ? Math.min(Math.max(x(slice.end), left + 2), GUTTER + plot()) : GUTTER - 2;
    context.lineWidth = 2;
    context.strokeRect(left, row.y, Math.max(right - left, 1), row.height);
    context.lineWidth = 1;
  }

  // What a slice tells

  function stepAt(row, slice) {
    const host = row.host ?? hosts[row.device.host];
    const steps = host.lanes.find((lane) => lane.kind === "steps");
    const found = steps && steps !== row.lane && sliceAt(steps, slice.start, slice.start);
    return found && found.count === 1 ? nameOf(steps, found) : "";
  }

  function lines(row, slice) {
    const { lane } = row;
    const where = row.device ? `${row.device.name}, ${lane.kind}` : lane.kind === "steps" ? "steps" : `thread ${lane.thread}`;
    const step = stepAt(row, slice);
    const told = [`${where}${step && `, ${step}`}`];
    told.push(`from ${time(slice.start - lane.offset)}, ${time(slice.end - slice.start)} long`);
    const parts = d3.sort(slice.parts, ([, ps]) => -ps).map(([one, ps]) => [lane.looks[one][2], ps]);
    const covered = d3.sum(parts, ([, ps]) => ps);
    const isPlain = parts.length === 1 && covered === slice.end - slice.start;
    told.push(parts.map(([words, ps]) => (isPlain ? words : `${words} ${time(ps)}`)).join(", "));
    if (slice.count > 1) {
      const noun = { idle: "gaps", steps: "steps", thread: "changes" }[lane.kind] ?? "events";
      const why = lane.resolution ? `; shorter than ${lane.resolution} they are merged` : "";
      told.push(`stands for ${slice.count.toLocaleString("en")} ${noun}${why}`);
    }
    const gap = gapAt(row, slice);
    if (gap) {
      told.push(`gap ${gap.number}: Enter or a click leads to it`);
    }
    return told;
  }

  function tell(row, slice, left, top) {
    const name = nameOf(row.lane, slice);
    const title = document.createElement("b");
    const isNamed = name && slice.count > 1 && row.lane.kind !== "idle" && row.lane.kind !== "thread";
    title.textContent = name && row.lane.kind === "idle" ? `until ${name}` : isNamed ? `${name} and others` : name;
    const rest = lines(row, slice).map((line) => {
      const one = document.createElement("div");
      one.textContent = line;
      return one;
    });
    tip.replaceChildren(...(name ? [title] : []), ...rest);
    tip.hidden = false;
    const beyond = left + 14 + tip.offsetWidth > figure.clientWidth;
    tip.style.left = `${Math.max(0, beyond ? left - 14 - tip.offsetWidth : left + 14)}px`;
    tip.style.top = `${canvas.offsetTop + top + 14}px`;
  }

  function rowAt(y) {
    return rows.find((row) => y >= row.y - 1 && y <= row.y + row.height + 1) ?? null;
  }

  // A folded device tells what lies under the pointer: idle time below, else what it did.
  function hit(event) {
    const [left, top] = d3.pointer(event, canvas);
    const row = rowAt(top);
    if (!row || left < GUTTER) {
      return { row, slice: null, left, top };
    }
    const from = x.invert(left - 2);
    const to = x.invert(left + 2);
    let lanes = row.lane ? [row.lane] : [];
    if (row.kind === "folded") {
      const isLow = top > row.y + row.height * 0.6;
      lanes = row.device.lanes.filter((lane) => (lane.kind === "idle") === isLow || row.device.lanes.length === 1);
    }
    for (const lane of lanes) {
      const exact = sliceAt(lane, x.invert(left), x.invert(left)) ?? sliceAt(lane, from, to);
      if (exact) {
        return { row: { ...row, lane }, slice: exact, left, top };
      }
    }
    return { row, slice: null, left, top };
  }

  function toggle(device) {
    device.isOpen = !device.isOpen;
    selected = null;
    tip.hidden = true;
    resize();
  }

  function goTo(gap) {
    location.hash = `#gap-${gap.number}`;
  }

  function keepInView(slice) {
    const [from, to] = x.domain();
    if (slice.end < from || slice.start > to) {
      zoom.translateTo(target, base((slice.start + slice.end) / 2), 0);
    }
  }

  function select(row, index) {
    selected = { row, index };
    const slice = rows[row].lane?.slices[index];
    if (slice) {
      keepInView(slice);
      tell(rows[row], slice, Math.max(x(slice.start), GUTTER), rows[row].y + rows[row].height);
    } else {
      tip.hidden = true;
    }
    redraw();
  }

  function moveRow(by) {
    const canHold = (row) => row.kind === "lane" || row.canOpen;
    let at = selected ? selected.row + by : by > 0 ? 0 : rows.length - 1;
    while (rows[at] && !canHold(rows[at])) {
      at += by;
    }
    if (rows[at]) {
      const { lane } = rows[at];
      const first = lane ? Math.min(firstAfter(lane.slices, x.domain()[0]), lane.slices.length - 1) : -1;
      select(at, first);
    }
  }

  function onKey(event) {
    const row = selected && rows[selected.row];
    const slice = row?.lane?.slices[selected.index];
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const acts = {
      ArrowLeft: () => zoom.translateBy(target, plot() / 5 / d3.zoomTransform(canvas).k, 0),
      ArrowRight: () => zoom.translateBy(target, -plot() / 5 / d3.zoomTransform(canvas).k, 0),
      ArrowUp: () => moveRow(-1),
      ArrowDown: () => moveRow(1),
      "+": () => zoom.scaleBy(target, 2),
      "=": () => zoom.scaleBy(target, 2),
      "-": () => zoom.scaleBy(target, 0.5),
      Home: () => zoom.transform(target, d3.zoomIdentity),
      Escape: () => {
        selected = null;
        shown = null;
        tip.hidden = true;
        redraw();
      },
    };
    let act = acts[event.key];
    if (event.key === "Tab" && row?.lane) {
      const next = selected.index + (event.shiftKey ? -1 : 1);
      act = row.lane.slices[next] && (() => select(selected.row, next));
    } else if (event.key === "Enter" && row) {
      const gap = slice && gapAt(row, slice);
      act = gap ? () => goTo(gap) : row.device && row.device.lanes.length > 1 && (() => toggle(row.device));
    }
    if (act) {
      event.preventDefault();
      act();
    }
  }

  function show({ detail }) {
    const device = devices.find((one) => one.key === detail.device);
    if (!device) {
      return;
    }
    device.isOpen = true;
    device.isListed = true;
    const start = device.offset + detail.start_ps;
    const stop = device.offset + detail.end_ps;
    shown = { device, start, end: stop };
    selected = null;
    tip.hidden = true;
    resize();
    const length = Math.max((stop - start) * 1.5, SHORTEST_VIEW * 2);
    const scale = Math.min(Math.max(end / length, 1), Math.max(1, end / SHORTEST_VIEW));
    const middle = base((start + stop) / 2);
    const transform = d3.zoomIdentity.translate(GUTTER + plot() / 2 - scale * middle, 0).scale(scale);
    zoom.transform(target, zoom.constrain()(transform, zoom.extent()(), zoom.translateExtent()));
    const first = rows.find((row) => row.device === device);
    const top = canvas.getBoundingClientRect().top + scrollY;
    const isNear = first.y < innerHeight / 2;
    scrollTo({ top: isNear ? figure.getBoundingClientRect().top + scrollY - 70 : top + first.y - 140 });
    canvas.focus({ preventScroll: true });
  }

  function addButton(text, meaning, act) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    if (meaning) {
      button.title = meaning;
      button.setAttribute("aria-label", meaning);
    }
    button.addEventListener("click", act);
    tools.append(button);
  }

  addButton("+", "Zoom in", () => zoom.scaleBy(target, 2));
  addButton("−", "Zoom out", () => zoom.scaleBy(target, 0.5));
  addButton("Reset", "Show the whole window", () => zoom.transform(target, d3.zoomIdentity));
  if (data.folded.length) {
    const all = `All ${devices.length} devices`;
    addButton(all, "", ({ target: button }) => {
      listsAll = !listsAll;
      button.textContent = listsAll ? "Those that stand out" : all;
      selected = null;
      resize();
    });
    tools.append(listed);
  }
  if (devices.length > 1) {
    addButton("Open all", "Open or fold all devices", ({ target: button }) => {
      const willOpen = !devices.every((device) => device.isOpen || device.lanes.length < 2);
      devices.forEach((device) => {
        device.isOpen = willOpen;
      });
      button.textContent = willOpen ? "Fold all" : "Open all";
      selected = null;
      resize();
    });
    tools.lastChild.textContent = devices.some((device) => device.isOpen) ? "Fold all" : "Open all";
  }
  tools.append(view);

  target.call(zoom).on("dblclick.zoom", null);
  canvas.addEventListener("pointermove", (event) => {
    const { row, slice, left, top } = hit(event);
    const isLink = (slice && gapAt(row, slice)) || (row?.canOpen && (left < GUTTER || row.kind === "folded"));
    canvas.classList.toggle("tv-points", Boolean(isLink));
    if (slice && !event.buttons) {
      tell(row, slice, left, top);
    } else if (!selected) {
      tip.hidden = true;
    }
  });
  canvas.addEventListener("pointerleave", () => {
    tip.hidden = true;
  });
  canvas.addEventListener("blur", () => {
    selected = null;
    tip.hidden = true;
    redraw();
  });
  canvas.addEventListener("click", (event) => {
    canvas.focus({ preventScroll: true });
    const { row, slice, left } = hit(event);
    const gap = slice && gapAt(row, slice);
    if (row?.canOpen && (left < GUTTER || row.kind === "folded")) {
      toggle(row.device);
    } else if (gap) {
      goTo(gap);
    }
  });
  canvas.addEventListener("keydown", onKey);
  document.addEventListener("traceview:show", show);
  document.addEventListener("traceview:theme", readColours);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readColours);

  figure.append(tools, axis.node(), canvas, tip);
  figure.classList.add("tv-live");
  document.getElementById("tv-hint").hidden = false;
  new ResizeObserver(() => {
    if (figure.clientWidth !== width) {
      resize();
    }
  }).observe(figure);
  readColours();
  resize();
  // The first picture waits for no frame: what photographs a page as soon as it is loaded has it too.
  draw();
})();

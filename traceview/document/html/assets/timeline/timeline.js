// The state of the timeline: which devices are open and listed, what is selected, what a link leads to.
// Gives createTimeline(figure, data, parts); whoever changes the state does it through the object it returns.
// parts are the elements it fills: { canvas, axis, range, deviceCount }.

function createTimeline(figure, data, { canvas, axis, range, deviceCount }) {
  const context = canvas.getContext("2d");
  const model = decodeModel(data);
  const tooltip = createTooltip(figure, canvas);
  let layout = { rows: [], height: 0 };
  let listsAll = !model.hasUnlisted; // Otherwise only the devices that stand out.
  let selected = null; // { row, index }: places in the rows, and in the slices of that row's lane.
  let place = null; // { device, startPs, endPs }
  let width = 0;
  let colours = {};
  let frame = 0;

  const viewport = createViewport(canvas, model.spanPs, () => {
    tooltip.setHidden(selected === null);
    redraw();
  });

  function draw() {
    drawPicture({ context, viewport, colours }, axis, { ...layout, width, place, selected });
    const [fromPs, toPs] = viewport.range();
    const spanPs = toPs - fromPs;
    const [from, to] = [Math.max(fromPs, 0), toPs].map((ps) => momentText(ps, spanPs));
    range.textContent = `${from} – ${to}, ${timeText(spanPs)} wide`;
  }

  function redraw() {
    if (!frame) {
      frame = requestAnimationFrame(() => {
        frame = 0;
        draw();
      });
    }
  }

  function resize() {
    width = Math.max(figure.clientWidth, 240);
    layout = layOut(model, listsAll);
    deviceCount.textContent = deviceCountText(model.devices, listsAll);
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(layout.height * ratio);
    canvas.style.height = `${layout.height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    viewport.fit(width);
    // No frame is waited for: a screenshot as soon as the page is loaded has the picture, and so has paper.
    draw();
  }

  function deselect() {
    selected = null;
    tooltip.setHidden(true);
    redraw();
  }

  // Before the rows change: what is selected is a place in them.
  function change(act) {
    deselect();
    act();
    resize();
  }

  return {
    canvas,
    hosts: model.hosts,
    devices: model.devices,
    hasUnlisted: model.hasUnlisted,
    tooltip,
    viewport,
    get rows() {
      return layout.rows;
    },
    get selected() {
      return selected;
    },
    draw,
    deselect,
    select(row, index) {
      selected = { row, index };
      const { lane, y, height } = layout.rows[row];
      const slice = lane?.slices[index];
      if (slice) {
        viewport.keepInView(slice);
        tooltip.show(layout.rows[row], lane, slice, viewport.edges(slice)[0], y + height);
      } else {
        tooltip.setHidden(true);
      }
      redraw();
    },
    // A slice wherever it is: its device is opened and listed.
    show({ device, lane, index }) {
      if (device) {
        change(() => {
          device.isOpen = device.lanes.length > 1;
          device.isListed = true;
        });
      }
      const { startPs, endPs } = lane.slices[index];
      const aroundPs = AROUND * (endPs - startPs);
      viewport.zoomTo({ startPs: Math.max(startPs - aroundPs, 0), endPs: endPs + aroundPs });
      const row = layout.rows.findIndex((each) => each.lane === lane);
      if (row >= 0) {
        this.select(row, index);
      }
    },
    toggle(device) {
      change(() => {
        device.isOpen = !device.isOpen;
      });
    },
    setAllOpen(isOpen) {
      change(() => {
        for (const device of model.devices) {
          device.isOpen = isOpen;
        }
      });
    },
    setListsAll(isListed) {
      change(() => {
        listsAll = isListed;
      });
    },
    get place() {
      return place;
    },
    // The devices concerned are open and all others folded.
    showPlace(next, others) {
      change(() => {
        const concerned = new Set([next.device, ...others]);
        for (const device of model.devices) {
          device.isOpen = concerned.has(device);
          device.isListed ||= device.isOpen;
        }
        place = next;
      });
      viewport.zoomTo(place);
    },
    forgetPlace() {
      place = null;
      redraw();
    },
    readColours() {
      colours = readColours(figure, data, context);
      redraw();
    },
    resize,
    // When the page got wider or narrower.
    resizeIfNeeded() {
      if (figure.clientWidth !== width) {
        resize();
      }
    },
  };
}

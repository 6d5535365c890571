// Makes the figure #timeline live, from the columns in #timeline-data, which are JSON, deflated, in base 64. The last
// part; without data, or in a browser that cannot inflate, it does nothing: the strips below stay.

const figure = document.getElementById("timeline");
const source = document.getElementById("timeline-data");
if (figure && source && window.DecompressionStream) {
  inflated(source.textContent).then((data) => {
    start(figure, data);
    // An address that leads into the timeline was read before there was one.
    dispatchEvent(new HashChangeEvent("hashchange"));
  });
}

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

function start(figure, data) {
  const toolbar = document.createElement("div");
  toolbar.className = "tv-tools";
  const axis = document.createElement("div");
  axis.className = "tv-axis";
  axis.setAttribute("aria-hidden", "true");
  const canvas = createCanvas();
  const texts = { range: document.createElement("output"), deviceCount: document.createElement("span") };
  const timeline = createTimeline(figure, data, { canvas, axis, ...texts });

  fillToolbar(toolbar, timeline, texts);
  acceptPointer(timeline);
  acceptKeys(timeline);
  acceptPlaces(timeline, figure);
  acceptPrinting(timeline);
  document.addEventListener("traceview:theme", timeline.readColours);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", timeline.readColours);

  figure.append(toolbar, axis, canvas, timeline.tooltip.element);
  figure.classList.add("tv-live");
  document.getElementById("tv-hint").hidden = false;
  new ResizeObserver(timeline.resizeIfNeeded).observe(figure);
  timeline.readColours();
  timeline.resize();
}

// Paper is light, whatever the reader chose.
function acceptPrinting({ readColours, draw }) {
  const { dataset } = document.documentElement;
  let theme = null;
  addEventListener("beforeprint", () => {
    theme = dataset.theme ?? "";
    dataset.theme = "light";
    readColours();
    draw();
  });
  addEventListener("afterprint", () => {
    dataset.theme = theme;
    readColours();
  });
}

function createCanvas() {
  const canvas = document.createElement("canvas");
  canvas.className = "tv-canvas";
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", "Timeline of the window");
  canvas.setAttribute("aria-describedby", "tv-hint");
  return canvas;
}

// The colours of the style sheet in the theme of the page, for a canvas, which takes none from CSS.
// Gives readColours(figure, data, context).

function readColours(figure, { activities, states }, context) {
  const sheet = getComputedStyle(figure);
  const styles = [...Object.values(activities), ...Object.values(states)].map(([style]) => style);
  const names = [...styles, "ink", "soft", "ground", "row", "line", "mark", "host", "slice-ink", "hatch"];
  const colours = Object.fromEntries(names.map((name) => [name, sheet.getPropertyValue(`--tv-${name}`).trim()]));
  return { ...colours, hatch: hatch(context, colours.hatch) };
}

function hatch(context, colour) {
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

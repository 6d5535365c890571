// The colours of the style sheet in the theme of the page, for a canvas, which takes none from CSS.
// Gives readColours(figure, data, context) and inkOn(colour).

function readColours(figure, { activities, causes }, context) {
  const sheet = getComputedStyle(figure);
  const styles = [...Object.values(activities), ...Object.values(causes)].map(([style]) => style);
  const names = [...styles, "ink", "soft", "ground", "row", "line", "mark"];
  const colours = Object.fromEntries(names.map((name) => [name, sheet.getPropertyValue(`--tv-${name}`).trim()]));
  return { ...colours, hatch: hatch(context, colours.ground) };
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

// A colour for text that can be read on another colour.
function inkOn(colour) {
  const { r, g, b } = d3.rgb(colour);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#10151c" : "#ffffff";
}

// Times in picoseconds as text. Gives TIME_UNITS, for the ticks of the axis, timeText(ps), and momentText(ps, spanPs).

const TIME_UNITS = [["ps", 1], ["ns", 1e3], ["µs", 1e6], ["ms", 1e9], ["s", 1e12]];

// Three significant digits, as everywhere on the page.
function timeText(ps) {
  return momentText(ps, Infinity);
}

// A moment in a view, with the digits that it takes to tell a hundredth of the view apart.
function momentText(ps, spanPs) {
  if (ps === 0) {
    return "0";
  }
  const last = TIME_UNITS.length - 1;
  const place = TIME_UNITS.findIndex(([, factor], i) => Math.abs(ps) < factor * 999.5 || i === last);
  const [unit, factor] = TIME_UNITS[place];
  const value = Math.abs(ps / factor);
  const significant = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  const needed = Math.ceil(-Math.log10(spanPs / 100 / factor));
  const digits = place === 0 ? 0 : Math.min(Math.max(significant, needed), 9);
  const format = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return `${(ps / factor).toLocaleString("en", format)} ${unit}`;
}

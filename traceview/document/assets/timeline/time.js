// Times in picoseconds as text. Gives TIME_UNITS, for the ticks of the axis, and timeText(ps).

const TIME_UNITS = [["ps", 1], ["ns", 1e3], ["µs", 1e6], ["ms", 1e9], ["s", 1e12]];

function timeText(ps) {
  if (ps === 0) {
    return "0";
  }
  const last = TIME_UNITS.length - 1;
  const place = TIME_UNITS.findIndex(([, factor], i) => Math.abs(ps) < factor * 999.95 || i === last);
  const [unit, factor] = TIME_UNITS[place];
  const value = ps / factor;
  const digits = place === 0 ? 0 : Math.abs(value) < 9.995 ? 2 : 1;
  return `${value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}

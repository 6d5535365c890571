// Tables that can be sorted by a heading and filtered by words. Gives offerSort(table), offerFilter(filter), clearFilter(row).

function offerSort(table) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, place) => {
    if (heading.tagName !== "TH" || table.tBodies[0].rows.length < 2) {
      return;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const before = heading.getAttribute("aria-sort");
      // Readers look for the largest number and for the first name.
      const isDescending = before ? before === "ascending" : heading.classList.contains("number");
      headings.forEach((cell) => cell.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
      sortRows(table.tBodies[0], place, isDescending);
    });
  });
}

function sortRows(body, place, isDescending) {
  const rows = [...body.rows].map((row) => ({ row, key: sortKey(row.cells[place]) }));
  rows.sort((a, b) => {
    if (a.key === null || b.key === null) {
      return (a.key === null) - (b.key === null);
    }
    return isDescending ? compareKeys(b.key, a.key) : compareKeys(a.key, b.key);
  });
  body.append(...rows.map(({ row }) => row));
}

// Cells with a number carry its value; null, for an empty cell, sorts last in either direction.
function sortKey(cell) {
  if (cell.dataset.value !== undefined) {
    return Number(cell.dataset.value);
  }
  const text = cell.textContent.trim();
  return text === "" || text === "–" ? null : text;
}

function compareKeys(a, b) {
  if (typeof a === "number" && typeof b === "number") {
    return a - b;
  }
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

function offerFilter(filter) {
  const input = filter.querySelector("input");
  const output = filter.querySelector("output");
  const rows = [...filter.parentElement.querySelector("tbody").rows];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    rows.forEach((row, place) => {
      row.hidden = !words.every((word) => texts[place].includes(word));
      count += row.hidden ? 0 : 1;
    });
    output.textContent = `${count} of ${rows.length} rows`;
  });
  filter.hidden = false;
}

// Shows a row again that the filter of its table hides.
function clearFilter(row) {
  const input = row.closest(".table-box")?.querySelector(".filter input");
  if (row.hidden && input) {
    input.value = "";
    input.dispatchEvent(new Event("input"));
  }
}

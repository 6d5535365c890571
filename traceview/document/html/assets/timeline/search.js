// Search in the timeline: by name of an op, by state, by number of a step. Gives createSearch(timeline).

const AROUND = 2; // Lengths of a found slice that are shown on either side of it.

function createSearch(timeline) {
  const box = document.createElement("label");
  const input = document.createElement("input");
  const count = document.createElement("span");
  count.setAttribute("role", "status");
  input.type = "search";
  input.placeholder = "op, state or step 12";
  input.title = "Enter shows the next match, Shift and Enter the one before";
  box.append("Search ", input, " ", count);
  let found = [];
  let current = -1;

  input.addEventListener("input", () => {
    found = matches(timeline, input.value.trim().toLowerCase());
    current = -1;
    count.textContent = input.value.trim() ? `${found.length.toLocaleString("en")} found` : "";
  });
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !found.length) {
      return;
    }
    event.preventDefault();
    const step = event.shiftKey ? -1 : 1;
    current = current < 0 && step < 0 ? found.length - 1 : (current + step + found.length) % found.length;
    count.textContent = `${(current + 1).toLocaleString("en")} of ${found.length.toLocaleString("en")}`;
    timeline.show(found[current]);
  });
  return box;
}

// The slices whose text holds the words, in the order of their starts.
function matches({ hosts, devices }, words) {
  if (!words) {
    return [];
  }
  const owners = [...hosts.map((host) => ({ lanes: host.lanes })), ...devices.map((device) => ({ device, lanes: device.lanes }))];
  const found = owners.flatMap(({ device, lanes }) =>
    lanes.flatMap((lane) => {
      const isState = lane.looks.map(([, , look]) => look.toLowerCase().includes(words));
      return lane.slices
        .map((slice, index) => ({ device, lane, index, startPs: slice.startPs, slice }))
        .filter(
          ({ slice }) =>
            sliceName(lane, slice).toLowerCase().includes(words) ||
            (isStateLane(lane) && slice.parts.some(([class_]) => isState[class_])),
        );
    }),
  );
  return found.sort((a, b) => a.startPs - b.startPs);
}

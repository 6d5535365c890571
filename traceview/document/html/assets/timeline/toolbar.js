// The buttons above the timeline. Gives fillToolbar(toolbar, timeline, { range, deviceCount }).

function fillToolbar(toolbar, timeline, { range, deviceCount }) {
  const { devices, viewport } = timeline;

  function addButton(text, meaning, act) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    if (meaning) {
      button.title = meaning;
      button.setAttribute("aria-label", meaning);
    }
    button.addEventListener("click", () => act(button));
    toolbar.append(button);
  }

  addButton("+", "Zoom in", () => viewport.zoomBy(2));
  addButton("−", "Zoom out", () => viewport.zoomBy(0.5));
  addButton("Reset", "Show the whole window", () => viewport.showAll());
  if (timeline.hasUnlisted) {
    const all = `All ${devices.length} devices`;
    let listsAll = false;
    addButton(all, "", (button) => {
      listsAll = !listsAll;
      button.textContent = listsAll ? "Those that stand out" : all;
      timeline.setListsAll(listsAll);
    });
    toolbar.append(deviceCount);
  }
  if (devices.length > 1) {
    const label = (isOpen) => (isOpen ? "Fold all" : "Open all");
    addButton(label(devices.some((device) => device.isOpen)), "Open or fold all devices", (button) => {
      const willOpen = !devices.every((device) => device.isOpen || device.lanes.length < 2);
      button.textContent = label(willOpen);
      timeline.setAllOpen(willOpen);
    });
  }
  toolbar.append(createSearch(timeline), range);
}

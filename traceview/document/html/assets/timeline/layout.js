// Where each row of the timeline is, from top to bottom, in pixels.
// Gives layOut(model, listsAll), which is called again when a device is opened, rowAt, deviceCountText, and the margins.

const GUTTER = 150; // Left of the lanes: their labels.
const RIGHT_MARGIN = 12;
const LANE_HEIGHTS = { steps: 18, thread: 13, compute: 18, communication: 12, copies: 12, idle: 18 };
const FOLDED_HEIGHT = 16;
const HEAD_HEIGHT = 18;
const ROW_SPACE = 3;
const FOLDED_ACTIVITY_SHARE = 0.6; // Of a folded device's row, above its idle time.

// A row is of one kind: "host" (a heading), "head" (of an open device), "folded" (a whole device), or "lane".
function layOut({ hosts, devices }, listsAll) {
  const rows = [];
  let y = 2;
  const add = (row) => {
    rows.push({ ...row, y });
    y += row.height + ROW_SPACE;
  };
  for (const host of hosts) {
    const listed = devices.filter((device) => device.host === host && (listsAll || device.isListed));
    if (!listsAll && !listed.length) {
      continue;
    }
    if (hosts.length > 1) {
      y += 6;
      add({ kind: "host", height: HEAD_HEIGHT, label: host.name, host });
    }
    for (const lane of host.lanes.filter((lane) => lane.kind === "steps")) {
      add({ kind: "lane", height: LANE_HEIGHTS.steps, label: "steps", lane, host });
    }
    y += 4;
    for (const device of listed) {
      const canOpen = device.lanes.length > 1;
      const isOpen = canOpen && device.isOpen;
      y += isOpen ? 5 : 0;
      const height = isOpen ? HEAD_HEIGHT - 4 : FOLDED_HEIGHT;
      add({ kind: isOpen ? "head" : "folded", height, label: device.name, host, device, canOpen });
      for (const lane of isOpen ? device.lanes : []) {
        add({ kind: "lane", height: LANE_HEIGHTS[lane.kind], label: lane.kind, lane, host, device });
      }
    }
    y += 4;
    for (const lane of host.lanes.filter((lane) => lane.kind === "thread")) {
      add({ kind: "lane", height: LANE_HEIGHTS.thread, label: lane.thread, lane, host });
    }
  }
  return { rows, height: y + 4 };
}

function rowAt(rows, y) {
  return rows.find((row) => y >= row.y - 1 && y <= row.y + row.height + 1) ?? null;
}

function deviceCountText(devices, listsAll) {
  const count = listsAll ? devices.length : devices.filter((device) => device.isListed).length;
  return `${count} of ${devices.length} devices${listsAll ? "" : ": those that stand out, and one like the others"}`;
}

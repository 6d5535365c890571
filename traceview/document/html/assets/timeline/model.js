// Hosts, devices, lanes and slices, decoded from the columns in #timeline-data. Draws nothing.
// Gives decodeModel(data), and the questions asked of its lanes: firstEndingAfter, sliceAt, sliceName, gapOf, stepName.

const MOST_OPEN_DEVICES = 8; // With more devices each starts as one row.

// Every time of the model is in picoseconds on the clock that all hosts share.
function decodeModel(data) {
  const hosts = data.hosts.map((host) => ({ ...host, lanes: host.lanes.map((lane) => decodeLane(lane, host.offset, data)) }));
  const devices = data.devices.map((device, index) => {
    const { offset } = hosts[device.host];
    const lanes = device.lanes.map((lane) => decodeLane(lane, offset, data));
    const gaps = data.gaps
      .filter(([owner]) => owner === index)
      .map(([, startPs, endPs, number, python]) => ({ startPs: startPs + offset, endPs: endPs + offset, number, python }));
    const isOpen = data.devices.length <= MOST_OPEN_DEVICES && lanes.length > 1;
    return { ...device, host: hosts[device.host], offset, lanes, gaps, isOpen, isListed: !data.folded.includes(index) };
  });
  return { spanPs: Math.max(data.span, 1), hosts, devices, hasUnlisted: data.folded.length > 0 };
}

// The columns are described by the report's schema. A part of a slice is [class, picoseconds].
function decodeLane(lane, offset, data) {
  const looks = lane.kind === "thread" ? data.thread_states : isStateLane(lane) ? data.states : data.activities;
  const slices = [];
  let endPs = offset;
  lane.before_ps.forEach((before, i) => {
    const startPs = endPs + before;
    endPs = startPs + lane.length_ps[i];
    slices.push({ startPs, endPs, count: 1, parts: [[lane.class[i], lane.length_ps[i]]], name: lane.name[i] });
  });
  let place = 0;
  lane.merged.forEach((step, i) => {
    place += step;
    slices[place].count = lane.merged_count[i];
    slices[place].parts[0][1] -= lane.merged_hole_ps[i];
  });
  place = 0;
  lane.other_slice.forEach((step, i) => {
    place += step;
    slices[place].parts[0][1] -= lane.other_ps[i];
    slices[place].parts.push([lane.other_class[i], lane.other_ps[i]]);
  });
  return { ...lane, offset, looks: lane.classes.map((key) => looks[key]), names: data.names, slices };
}

// Slices of these lanes are of states; of the others they are of events with a name.
function isStateLane(lane) {
  return lane.kind === "idle" || lane.kind === "thread";
}

// The index of the first slice that ends after a time.
function firstEndingAfter(slices, ps) {
  let [low, high] = [0, slices.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    [low, high] = slices[middle].endPs > ps ? [low, middle] : [middle + 1, high];
  }
  return low;
}

function sliceAt(lane, fromPs, toPs) {
  const slice = lane.slices[firstEndingAfter(lane.slices, fromPs)];
  return slice && slice.startPs <= toPs ? slice : null;
}

// Of a step `name` is its number, of everything else a place in the list of names; below zero there is none.
function sliceName(lane, slice) {
  if (lane.kind === "steps") {
    return slice.name < 0 ? "step" : `step ${slice.name}`;
  }
  return slice.name < 0 ? "" : lane.names[slice.name];
}

// The gap of the table of gaps that a slice of a device's idle lane belongs to.
function gapOf(device, lane, slice) {
  const gaps = device && lane.kind === "idle" ? device.gaps : [];
  return gaps.find((gap) => slice.startPs < gap.endPs && slice.endPs > gap.startPs) ?? null;
}

// The step in which a slice of another lane starts, unless several steps are merged there.
function stepName(host, lane, slice) {
  const steps = host.lanes.find((other) => other.kind === "steps");
  const step = steps && steps !== lane && sliceAt(steps, slice.startPs, slice.startPs);
  return step && step.count === 1 ? sliceName(steps, step) : "";
}

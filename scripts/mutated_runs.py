"""Damages runs as no writer would, and follows each one through everything that traceview makes of a run.

    python -W error -m scripts.mutated_runs FIRST_SEED SECONDS [FOLDER]...

tries one seed after another on fixtures, scenarios and the runs in the folders, and prints those that fail.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from scripts.scenarios import SCENARIOS
from scripts.xspace import XSpace
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context
from traceview.base.errors import TraceFormatError, TraceNotFoundError, UsageError
from traceview.document import screen as terminal
from traceview.document.screen import render_screen
from traceview.export import perfetto
from traceview.export.draw import drawn
from traceview.report.build import analyze
from traceview.report.document import document_of, screen_of
from traceview.report.formats import DOCUMENTS, markdown
from traceview.report.model import Report
from traceview.report.redaction import redacted
from traceview.report.saved import load_report, to_json
from traceview.report.tables import TABLE_NAMES, csv_of, table_of
from traceview.trace.model import WINDOW_KINDS, StepRange, WindowKind
from traceview.trace.reading.load import load

FIXTURES: Final = Path(__file__).resolve().parent.parent / "fixtures"
_SUFFIX: Final = ".xplane.pb"
_SIDECAR: Final = ".traceview.json"
_NUMBERS: Final = (
    *(0, 1, -1, 2, 7, 10**15, 10**18, 2**31, 2**32 - 1, 2**53 + 1),
    *(2**40, 2**53, 2**56, 2**57, -(2**57), 2**60, -(2**60), 2**61),
    *(-(2**61), 2**61 + 1, 2**62, 2**63 - 1, -(2**63)),
)
_DOUBLES: Final = (0.0, -0.5, 1e-308, 1e308, float("nan"), float("inf"), float("-inf"), 2.0**62)
_TEXTS: Final = (
    *(b"", b"\xff\xfe", b"a/b:c", b"|`<&\x1b[31m", b"train", b"replica_7/x:MatMul", b"GPU_0_bfc"),
    *(b"ncclAllReduce", b"MemcpyH2D", b"IteratorGetNext", b"99999999999999999999", b"x" * 300),
    *(b"size:99999999999999999999 kind_src:pageable", b"Iterator::Root::Prefetch", b"$a.py:1 f"),
)
_PLANES: Final = (
    *(b"/host:CPU", b"/device:GPU:0", b"/device:GPU:1", b"/device:TPU:0", b"Task Environment"),
    *(b"/device:GPU:99999999999999999999", b"/host:metadata", b"/device:CUSTOM:x"),
)
_LEAVES: Final[tuple[Any, ...]] = (
    *(None, True, "", "x\x00\ud800", [], {}, [[]], {"a": {}}),
    *(*_NUMBERS, 2**64, 10**30, *_DOUBLES),
)


def damage(path: Path, choice: random.Random) -> None:
    """Change a trace file in place, a few fields or bytes of it."""
    data = path.read_bytes()
    if choice.random() < 0.2:
        path.write_bytes(_other_bytes(data, choice))
        return
    space = XSpace()
    space.ParseFromString(data)
    for _ in range(choice.choice((1, 1, 2, 4))):
        if space.planes:
            choice.choice(_CHANGES)(space, choice)
    path.write_bytes(space.SerializeToString())


def _other_bytes(data: bytes, choice: random.Random) -> bytes:
    changed = bytearray(data) or bytearray(1)
    for _ in range(choice.choice((1, 3, 10))):
        at = choice.randrange(len(changed))
        changed[at : at + choice.randrange(3)] = choice.randbytes(choice.randrange(3))
    return bytes(changed[: choice.randrange(len(changed))] if choice.random() < 0.2 else changed)


def _line(space: Any, choice: random.Random) -> Any:
    lines = [line for plane in space.planes for line in plane.lines if line.events]
    return choice.choice(lines) if lines else None


def _times(space: Any, choice: random.Random) -> None:
    line = _line(space, choice)
    for event in _some(line.events if line else (), choice):
        field = choice.choice(("offset_ps", "duration_ps", "duration_ps", "num_occurrences"))
        setattr(event, field, choice.choice(_NUMBERS))


def _stamp(space: Any, choice: random.Random) -> None:
    line = _line(space, choice)
    if line:
        field = choice.choice(("timestamp_ns", "timestamp_ns", "id", "duration_ps"))
        setattr(line, field, choice.choice(_NUMBERS))


def _fewer_events(space: Any, choice: random.Random) -> None:
    line = _line(space, choice)
    if line:
        first = choice.randrange(len(line.events))
        del line.events[first : first + choice.randint(1, len(line.events))]


def _no_steps(space: Any, choice: random.Random) -> None:
    """Without the markers of some steps, or of all."""
    for plane in space.planes:
        ids = {key for key, entry in plane.stat_metadata.items() if entry.name == b"step_num"}
        for line in plane.lines:
            kept = [
                event
                for event in line.events
                if choice.random() < 0.3 or not any(s.metadata_id in ids for s in event.stats)
            ]
            if len(kept) < len(line.events):
                del line.events[:]
                line.events.extend(kept)


def _idle_device(space: Any, choice: random.Random) -> None:
    """A device that does nothing after some moment, or before it."""
    devices = [plane for plane in space.planes if plane.name.startswith(b"/device:")]
    if not devices:
        return
    plane = choice.choice(devices)
    part, is_early = choice.random(), choice.random() < 0.5
    for line in plane.lines:
        cut = int(part * len(line.events))
        del line.events[slice(cut) if is_early else slice(cut, None)]


def _without(space: Any, choice: random.Random) -> None:
    plane = choice.randrange(len(space.planes))
    if choice.random() < 0.5 or not space.planes[plane].lines:
        del space.planes[plane]
    else:
        del space.planes[plane].lines[choice.randrange(len(space.planes[plane].lines))]


def _twice(space: Any, choice: random.Random) -> None:
    plane = choice.choice(space.planes)
    if choice.random() < 0.3 or not plane.lines:
        space.planes.add().CopyFrom(plane)
        space.planes[-1].name = choice.choice((plane.name, *_PLANES))
        return
    line = choice.choice(plane.lines)
    copy = plane.lines.add()
    copy.CopyFrom(line)
    copy.id, copy.name = choice.choice((line.id, *_NUMBERS)), choice.choice((line.name, *_TEXTS))
    copy.timestamp_ns += choice.choice((0, 1, 1000, -1000, 10**6))


def _names(space: Any, choice: random.Random) -> None:
    plane = choice.choice(space.planes)
    kind = choice.randrange(4)
    if kind == 0:
        plane.name = choice.choice(_PLANES)
    elif kind == 1 and plane.lines:
        choice.choice(plane.lines).name = choice.choice(_TEXTS)
    else:
        entries = plane.event_metadata if kind == 2 else plane.stat_metadata
        others = [entry.name for other in space.planes for entry in other.stat_metadata.values()]
        for key in _some(sorted(entries), choice):
            entries[key].name = choice.choice((*_TEXTS, *others))


def _stats(space: Any, choice: random.Random) -> None:
    """Other values of some stats of events, of metadata and of planes."""
    plane = choice.choice(space.planes)
    kind = choice.randrange(3)
    if kind == 0:
        line = _line(space, choice)
        owners = _some(line.events if line else (), choice)
    elif kind == 1:
        owners = _some([plane.event_metadata[key] for key in sorted(plane.event_metadata)], choice)
    else:
        owners = [plane]
    ids = [choice.choice((key, 2**40)) for key in _some(sorted(plane.stat_metadata), choice)]
    for owner in owners:
        for stat in _some(owner.stats, choice) if choice.random() < 0.7 else ():
            _set_value(stat, choice)
        if ids and choice.random() < 0.4:
            _set_value(owner.stats.add(metadata_id=choice.choice(ids)), choice)


def _one_stat(space: Any, choice: random.Random) -> None:
    """One value for all stats of one name in a plane."""
    planes = [plane for plane in space.planes if plane.stat_metadata]
    if not planes:
        return
    plane = choice.choice(planes)
    key = choice.choice(sorted(plane.stat_metadata))
    value = type(plane.stats.add())()
    del plane.stats[-1]
    _set_value(value, choice)
    value.metadata_id = key
    events = (event for line in plane.lines for event in line.events)
    for owner in (plane, *plane.event_metadata.values(), *events):
        for stat in owner.stats:
            if stat.metadata_id == key and choice.random() < 0.8:
                stat.CopyFrom(value)


def _set_value(stat: Any, choice: random.Random) -> None:
    field = choice.choice(("int64_value", "uint64_value", "double_value", "str_value", "ref_value"))
    if field == "double_value":
        stat.double_value = choice.choice(_DOUBLES)
    elif field == "str_value":
        stat.str_value = choice.choice(_TEXTS)
    else:
        number = choice.choice(_NUMBERS)
        setattr(stat, field, number if field == "int64_value" else number % 2**64)


def _some(items: Any, choice: random.Random) -> list[Any]:
    """One of them, several or all."""
    every = list(items)
    if not every:
        return []
    first = choice.randrange(len(every))
    return every[first : first + choice.choice((1, 1, 3, len(every)))]


_CHANGES: Final[tuple[Callable[[Any, random.Random], None], ...]] = (
    *(_times, _times, _stamp, _fewer_events, _no_steps, _idle_device),
    *(_without, _twice, _names, _stats, _stats, _one_stat, _one_stat),
)


def damage_sidecar(path: Path, choice: random.Random) -> None:
    """Change a sidecar in place, some of its values."""
    content = json.loads(path.read_text(encoding="utf-8"))
    for _ in range(choice.choice((1, 2, 5))):
        holder, key = choice.choice(_places(content))
        if choice.random() < 0.15 and isinstance(holder, dict):
            del holder[key]
        else:
            # A copy: the next change may be inside of it.
            holder[key] = deepcopy(choice.choice(_LEAVES))
    text = json.dumps(content)
    if choice.random() < 0.1:
        text = text[: choice.randrange(len(text))]
    path.write_text(text, encoding="utf-8")


def _places(content: Any) -> list[tuple[Any, Any]]:
    keys: Any = range(len(content)) if isinstance(content, list) else ()
    places = [(content, key) for key in (content if isinstance(content, dict) else keys)]
    for holder, key in tuple(places):
        places += _places(holder[key])
    return places or [({"": None}, "")]


def write_damaged(sources: Sequence[Path], folder: Path, choice: random.Random) -> Path:
    """Write a damaged copy of one of the runs, at times as several hosts; returns its log directory."""
    source = choice.choice(sources)
    logdir = folder / "logs"
    shutil.rmtree(logdir, ignore_errors=True)
    run = logdir / "plugins" / "profile" / "run1"
    run.mkdir(parents=True)
    for suffix in (_SUFFIX, _SIDECAR):
        for path in source.rglob(f"*{suffix}"):
            shutil.copy(path, run)
    paths, sidecars = (sorted(run.glob(f"*{suffix}")) for suffix in (_SUFFIX, _SIDECAR))
    if len(paths) == 1 and choice.random() < 0.3:
        shutil.copy(paths[0], run / f"other{_SUFFIX}")
        # The same bytes would be a duplicate.
        damage(run / f"other{_SUFFIX}", choice)
        if choice.random() < 0.5:
            return logdir
    if sidecars and choice.random() < 0.6:
        damage_sidecar(choice.choice(sidecars), choice)
        if choice.random() < 0.6:
            return logdir
    damage(choice.choice(paths), choice)
    return logdir


def follow(logdir: Path, choice: random.Random) -> bool:
    """Make everything of a run; False if it is refused. Anything but a refusal is raised."""
    try:
        trace = load(logdir, salvage=True)
    except (TraceFormatError, TraceNotFoundError):
        return False
    window: WindowKind = choice.choice(("auto", *WINDOW_KINDS))
    numbers = [step.number for host in trace.steps_by_host for step in host.steps]
    first = choice.choice(numbers) if numbers else 0
    steps = StepRange(first, first + choice.choice((1, 3))) if choice.random() < 0.3 else None
    try:
        report = analyze(trace, window=window, steps=steps, lanes=True)
    except (UsageError, TraceFormatError):
        return False
    for shown in (report, redacted(report)) if choice.random() < 0.3 else (report,):
        check_saved(shown, logdir.parent / "report.json")
        show(shown)
    context = Context(trace, select(trace, window, steps))
    assert b"".join(perfetto.written(drawn(context, report)))
    for name in TABLE_NAMES:
        assert b"".join(csv_of(table_of(context, name)))
    return True


def check_saved(report: Report, path: Path) -> None:
    """What is written is read again, and is the same, and so is the document that is made of it."""
    text = to_json(report)
    path.write_text(text, encoding="utf-8")
    loaded = load_report(path)
    assert to_json(loaded) == text
    assert markdown(loaded) == markdown(report)


def show(report: Report) -> None:
    """Print a report in every way."""
    for make in DOCUMENTS.values():
        assert make(report)
    assert terminal.render(document_of(report, is_brief=True), width=80, color=True)
    assert render_screen(screen_of(report, None), width=80, color=True)


def sources_in(folder: Path) -> list[Path]:
    """Runs to damage: the fixtures, and scenarios of every topic, those with sidecars first."""
    built = {name: build() for name, build in SCENARIOS.items()}
    names = [name for name in built if built[name].sidecars]
    names += [name for name in built if name not in names][::4]
    sources = [path for path in sorted(FIXTURES.iterdir()) if path.is_dir()]
    for name in names:
        built[name].write(folder / name)
        sources.append(folder / name)
    return [path for path in sources if 0 < _weight(path) < 2_000_000]


def _weight(source: Path) -> int:
    return sum(path.stat().st_size for path in source.rglob(f"*{_SUFFIX}"))


def _kind(error: Exception) -> str:
    """What failures of one cause have in common."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = re.sub(r"\d+", "N", str(error).rpartition("report.json: ")[2])
    return f"{type(error).__name__} {Path(place.filename).name}:{place.lineno} {text[:120]}"


def main(first_seed: int, seconds: float, folders: Sequence[Path]) -> None:
    """Try one seed after another, and print the first failure of each kind, the seeds of all, and slow ones."""
    with tempfile.TemporaryDirectory(prefix="mutated-") as name:
        folder = Path(name)
        sources = [*sources_in(folder / "sources"), *folders]
        ends = time.monotonic() + seconds
        seed, made, kinds = first_seed, 0, dict[str, list[int]]()
        while time.monotonic() < ends:
            choice = random.Random(seed)
            begun = time.monotonic()
            try:
                made += follow(write_damaged(sources, folder, choice), choice)
            except Exception as error:
                kind = _kind(error)
                if kind not in kinds:
                    traceback.print_exc()
                kinds.setdefault(kind, []).append(seed)
            if time.monotonic() - begun > 10:
                print(f"seed {seed} took {time.monotonic() - begun:.1f} s", flush=True)
            seed += 1
        print(f"seeds {first_seed} to {seed - 1}, {made} reports")
        for kind, seeds in kinds.items():
            print(len(seeds), kind, seeds[:5])


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), [Path(folder) for folder in sys.argv[3:]])

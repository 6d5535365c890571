"""A run is the join of its parts: in whatever order they arrive and wherever they were read, the report is the same."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from scripts.cuda_trace import PROFILE_START_NS, CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import marked_steps
from traceview.base.location import Location
from traceview.report.build import analyze
from traceview.report.saved import to_json
from traceview.trace.columns import NONE
from traceview.trace.model import Trace
from traceview.trace.reading.load import Readers, load
from traceview.trace.reading.part import HostFile, read_host
from traceview.xplane.planes import TEXT_STATS

FIXTURES = sorted(path.parent.name for path in Path("fixtures").glob("*/plugins"))


def report_of(logdir: Path, readers: Readers | None = None) -> str:
    return to_json(analyze(load(logdir, readers=readers)))


class Elsewhere:
    """Reads in another order, and passes what it has read through pickles, as a cluster does."""

    def __init__(self, order: Callable[[list[int]], None]) -> None:
        self._order = order

    def read(self, paths: Sequence[Location], salvage: bool) -> Iterator[tuple[int, HostFile]]:
        numbers = list(range(len(paths)))
        self._order(numbers)
        for number in numbers:
            file = read_host(paths[number], salvage=salvage)
            yield number, pickle.loads(pickle.dumps(file))


def files_of_all_kinds(folder: Path) -> list[Path]:
    """Of GPUs and of replicas, with and without steps, input, collectives and samples."""
    for name, scenario in SCENARIOS.items():
        scenario().write(folder / name)
    return sorted([*folder.rglob("*.xplane.pb"), *Path("fixtures").rglob("*.xplane.pb")])


def test_hosts_of_any_kinds_are_joined_as_they_are_analysed_together(tmp_path: Path) -> None:
    files, random_of = files_of_all_kinds(tmp_path / "all"), random.Random(9)
    for number in range(12):
        logdir = tmp_path / str(number)
        run = logdir / "plugins" / "profile" / "run"
        run.mkdir(parents=True)
        for host, file in enumerate(random_of.sample(files, random_of.choice((2, 3, 5, 9)))):
            stem = file.name.removesuffix(".xplane.pb")
            for beside in file.parent.glob(f"{stem}.*"):
                ending = beside.name.removeprefix(stem)
                (run / f"host{host}{ending}").write_bytes(beside.read_bytes())
        readers = Elsewhere(random_of.shuffle).read
        assert report_of(logdir, readers) == report_of(logdir), sorted(run.iterdir())


def mixed_hosts(tmp_path: Path) -> Path:
    """A host of replicas between two of GPUs: the devices of the trace are not in the order of hosts."""
    path = tmp_path
    for name in ("host0", "host2"):
        trace = CudaTrace(name, start_ns=PROFILE_START_NS + 7 * (name == "host0"))
        for step in marked_steps(trace):
            step.kernel(0, 2, 42)
            step.kernel(1, 3, 40)
            if name == "host2":
                step.kernel(1, 41, 43)
        path = trace.write(tmp_path)
    (of_replicas,) = Path("fixtures/custom-loop-2").glob("plugins/profile/*/*.xplane.pb")
    path.with_name("host1.xplane.pb").write_bytes(of_replicas.read_bytes())
    return tmp_path


def named(trace: Trace, host: str) -> Iterator[tuple[str, list[object]]]:
    """What the events of one host are called, and what their stats say, as text."""
    names = trace.names
    index = [entry.name for entry in trace.hosts].index(host)
    device, events = trace.device_columns, trace.host_columns
    rows = trace.device_rows(index)
    for key in ("name", "op"):
        yield key, [names.text(name) for name in getattr(device, key)[rows].tolist()]
    numbers = device.instruction[rows].tolist()
    yield "instruction", [None if place == NONE else trace.instructions[place] for place in numbers]
    span = events.rows_of_host(index)
    yield "host name", [names.text(name) for name in events.name[span].tolist()]
    for key in sorted(TEXT_STATS):
        stat = events.stat(key).among(span)
        texts = [names.text(name) for name in stat.value.tolist()]
        yield key, list(zip((stat.row - span.start).tolist(), texts, strict=True))


def test_events_have_the_names_in_their_files(tmp_path: Path) -> None:
    run = mixed_hosts(tmp_path)
    trace = load(run)
    for file in trace.files:
        (path,) = run.rglob(file.name)
        alone = load(path)
        assert list(named(trace, file.host)) == list(named(alone, file.host))

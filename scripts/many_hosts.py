"""Simulates runs of up to 1,000 hosts of eight GPUs: what joining their parts costs, and what the report shows.

The part of one generated host arrives once per host, as bytes, under another name and with another start, as it would
from the workers of a cluster; nothing is read from a disk. Then the hosts answer what they can tell by themselves; their
own time for that counts for nobody, their answers arrive as bytes too. Each row is a process of its own. Nothing is asserted.

    python -m scripts.many_hosts [--hosts N ...] [--events small|large] [--alone]
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from scripts.bench_trace import write_trace
from scripts.growth import write_hosts
from traceview.base.location import Location
from traceview.base.timing import measured
from traceview.document.screen import render_screen
from traceview.report.build import analyze
from traceview.report.document import screen_of
from traceview.report.saved import to_json
from traceview.trace.reading.load import Answering, load
from traceview.trace.reading.part import HostFile, read_host
from traceview.trace.reading.worker import receive, send

HOSTS: Final = (16, 64, 256, 1000)
WIDTH: Final = 80
MB: Final = 1e6


def one_file(folder: Path, events: str) -> Path:
    """The file of one host: four steps of five kernels per GPU, or one step of 27,000 events."""
    if events == "large":
        return write_trace(folder / "one.xplane.pb", 1)
    (path,) = write_hosts(folder / "one", 1).rglob("*.xplane.pb")
    return path


class Arrivals:
    """Gives the part of one host as that of every host, and what each answers.

    `seconds`: until the parts had arrived; `elsewhere_seconds`: what the hosts took to answer. `answer_bytes`: of all.
    """

    def __init__(self, part: bytes) -> None:
        self._part = part
        self._name_of: dict[int, str] = {}
        self.seconds = 0.0
        self.elsewhere_seconds = 0.0
        self.answer_bytes = 0

    def read(self, paths: Sequence[Location], salvage: bool) -> Iterator[tuple[int, HostFile]]:
        for number, path in enumerate(paths):
            self._name_of[number] = path.name
            begun = time.perf_counter()
            file: HostFile = receive(io.BytesIO(self._part))
            self.seconds += time.perf_counter() - begun
            yield number, _as_host(file, number, path.name)

    def ask(
        self, answering: Answering, questions: Mapping[int, object]
    ) -> Iterator[tuple[int, object]]:
        for number, question in questions.items():
            begun = time.perf_counter()
            stream = io.BytesIO()
            file = _as_host(receive(io.BytesIO(self._part)), number, self._name_of[number])
            send(stream, answering(file, question))
            self.elsewhere_seconds += time.perf_counter() - begun
            self.answer_bytes += stream.tell()
            stream.seek(0)
            yield number, receive(stream)


def _as_host(file: HostFile, number: int, file_name: str) -> HostFile:
    assert file.part
    recording = file.part.recording
    (host,) = recording.hosts
    assert host.profile_start_ns
    assert host.profile_stop_ns
    renamed = replace(
        host,
        name=f"host{number}",
        file=file_name,
        profile_start_ns=host.profile_start_ns + 1000 * number,
        profile_stop_ns=host.profile_stop_ns + 1000 * number,
    )
    part = replace(
        file.part, recording=replace(recording, hosts=(renamed,)), sha256=f"{number:064x}"
    )
    return replace(file, part=part)


def peak_mb() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB


def simulated(host_count: int, events: str, *, is_alone: bool) -> dict[str, Any]:
    """What one run costs, in this process."""
    gc.disable()
    with tempfile.TemporaryDirectory() as scratch:
        stream = io.BytesIO()
        send(stream, read_host(one_file(Path(scratch), events)))
        logdir = Path(scratch) / "logs" / "plugins" / "profile" / "run"
        logdir.mkdir(parents=True)
        for number in range(host_count):
            (logdir / f"host{number}.xplane.pb").touch()
        arrivals = Arrivals(stream.getvalue())
        begun = time.perf_counter()
        with measured() as stages:
            trace = load(logdir, readers=arrivals)
        loaded = time.perf_counter() - begun
    after_merge = peak_mb()
    begun = time.perf_counter()
    report = analyze(trace, readers=None if is_alone else arrivals)
    analyzed = time.perf_counter() - begun - arrivals.elsewhere_seconds
    screen = render_screen(screen_of(report), width=WIDTH, color=False)
    return {
        "hosts": host_count,
        "gpus": len(trace.device_list),
        "events": trace.device_columns.count + trace.host_columns.count,
        "part_mb": len(stream.getvalue()) / MB,
        "answers_mb": arrivals.answer_bytes / MB,
        "arriving_s": arrivals.seconds,
        "merge_s": stages.seconds["joining hosts"],
        "rest_of_load_s": loaded - arrivals.seconds - stages.seconds["joining hosts"],
        "merge_peak_mb": after_merge,
        "report_s": analyzed,
        "peak_mb": peak_mb(),
        "report_mb": len(to_json(report)) / MB,
        "lines": len(screen.splitlines()),
        "screen": screen,
    }


def main() -> None:
    """Print a row per number of hosts, and the last screen."""
    parser = argparse.ArgumentParser(prog="python -m scripts.many_hosts", description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=HOSTS)
    parser.add_argument("--events", choices=("small", "large"), default="small")
    parser.add_argument("--alone", action="store_true", help="the hosts are asked nothing")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(simulated(arguments.hosts[0], arguments.events, is_alone=arguments.alone)))
        return
    print(
        "| hosts × 8 GPUs | events | parts MB | answers MB | arriving s | merge s | peak MB | report s | peak MB | screen |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    screen = ""
    for count in arguments.hosts:
        words = ["--one", "--hosts", str(count), "--events", arguments.events]
        words += ["--alone"] if arguments.alone else []
        command = [sys.executable, "-m", "scripts.many_hosts", *words]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        row = json.loads(done.stdout)
        print(
            f"| {count:,} | {row['events']:,} | {row['part_mb'] * count:,.0f} | {row['answers_mb']:,.0f} "
            f"| {row['arriving_s']:.2f} "
            f"| {row['merge_s']:.2f} | {row['merge_peak_mb']:,.0f} | {row['report_s']:.1f} "
            f"| {row['peak_mb']:,.0f} | {row['lines']} lines |",
            flush=True,
        )
        screen = row["screen"]
    print(f"\n{screen}")


if __name__ == "__main__":
    main()

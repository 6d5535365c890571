"""A damaged file gives a trace or a format error, whichever byte is wrong, and never anything else."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import traceview
from tests.xplane import spaces, wire
from tests.xplane.spaces import event_count
from traceview.base.errors import TraceFormatError
from traceview.trace.reading.locate import find_runs, summarize
from traceview.xplane import read
from traceview.xplane.columns import Fault, Space

ROOT = Path(__file__).resolve().parents[2]
generous = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
thorough = settings(generous, max_examples=300)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.xplane.pb"


def store(path: Path, data: bytes) -> None:
    # A new file each time: some file systems write one that was emptied to the disk at once.
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def one_byte_off(data: bytes) -> Iterator[bytes]:
    """Every truncation, removal and flipped bit, and at every place a few bytes more."""
    for at in range(len(data)):
        yield data[:at]
        yield data[:at] + data[at + 1 :]
        for bit in range(8):
            yield data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        for more in (0x00, 0x0A, 0x80, 0xFF):
            yield data[:at] + bytes([more]) + data[at:]


def outcome(path: Path, *, salvage: bool) -> Space | Fault:
    """What reading gives: a space, or what stopped it."""
    try:
        return read.read_file(path, salvage=salvage)
    except TraceFormatError as caught:
        error = caught
    where = "" if error.offset is None else f"byte {error.offset}: "
    assert (error.path, str(error)) == (path, f"{path}: {where}{error.reason}")
    return Fault(-1 if error.offset is None else error.offset, error.reason)


def check_offset(fault: Fault, size: int) -> None:
    assert -1 <= fault.offset <= size
    assert fault.reason


def check_reading(path: Path, data: bytes) -> None:
    """What holds for every file: strict is salvage without a fault, and every fault has its place."""
    store(path, data)
    strict, salvaged = outcome(path, salvage=False), outcome(path, salvage=True)
    if isinstance(strict, Space):
        assert strict.faults == ()
        assert isinstance(salvaged, Space)
        assert salvaged.faults == ()
    else:
        check_offset(strict, len(data))
        first = salvaged.faults[0] if isinstance(salvaged, Space) else salvaged
        assert first == strict
    if isinstance(salvaged, Space):
        assert salvaged.planes
        for fault in salvaged.faults:
            check_offset(fault, len(data))


def test_one_wrong_byte_in_a_small_file(path: Path) -> None:
    # Each third of the cases: every byte is hit four times or more, each time in other ways.
    for data in itertools.islice(
        one_byte_off(spaces.small_space().SerializeToString()), 0, None, 3
    ):
        check_reading(path, data)


@pytest.fixture(scope="module")
def recorded() -> bytes:
    """A recorded trace of 28 kB."""
    (path,) = ROOT.glob("fixtures/plain-1/plugins/profile/*/*.xplane.pb")
    return path.read_bytes()


_damage = st.tuples(
    st.floats(0, 1, exclude_max=True),
    st.sampled_from(["set", "drop", "add", "cut"]),
    st.integers(0, 255),
)


def damaged(data: bytes, where: float, how: str, value: int) -> bytes:
    at = int(where * len(data))
    middle, rest = {
        "set": (bytes([value]), data[at + 1 :]),
        "drop": (b"", data[at + 1 :]),
        "add": (bytes([value]), data[at:]),
        "cut": (b"", b""),
    }[how]
    return data[:at] + middle + rest


@thorough
@given(_damage)
def test_one_wrong_byte_in_a_recorded_file(
    tmp_path: Path, recorded: bytes, damage: tuple[float, str, int]
) -> None:
    check_reading(tmp_path / "a.xplane.pb", damaged(recorded, *damage))


def load_or_say_why(path: Path) -> None:
    """All that is public of loading; anything but a format error goes through."""
    for salvage in (False, True):
        with suppress(TraceFormatError):
            assert traceview.load(path, salvage=salvage).hosts
    for run in find_runs(path):
        summarize(run)


_extreme = st.sampled_from([-(2**63), -(2**61) - 1, -1, 0, 10**15, 2**61, 2**61 + 1, 2**63 - 1])
_unsigned = st.sampled_from([0, 1, 10**15, spaces.START_NS, 2**63, 2**64 - 1])


@generous
@given(st.lists(_extreme, min_size=9, max_size=9), _unsigned, _unsigned, st.booleans())
def test_loading_numbers_that_no_writer_writes(
    tmp_path: Path, values: list[int], start: int, stop: int, in_metadata: bool
) -> None:
    space = spaces.small_space()
    host, gpu, environment = space.planes
    host.lines[0].timestamp_ns, gpu.lines[0].timestamp_ns = values[:2]
    environment.stats[0].uint64_value, environment.stats[1].uint64_value = start, stop
    event = gpu.lines[0].events[1]
    event.offset_ps, event.duration_ps, event.metadata_id = values[2:5]
    call = host.lines[0].events[1]
    call.offset_ps, call.duration_ps, call.metadata_id = values[5:8]
    holder = gpu.event_metadata[1] if in_metadata else event
    for stat in (1, 4, 2**40):
        holder.stats.add(metadata_id=stat, uint64_value=stop)
        holder.stats.add(metadata_id=stat, double_value=float(values[8]))
        holder.stats.add(metadata_id=stat, double_value=float("nan"))
    path = tmp_path / "a.xplane.pb"
    store(path, space.SerializeToString())
    load_or_say_why(path)


def test_the_more_is_left_of_a_file_the_more_is_read_and_a_cut_is_told_once(path: Path) -> None:
    data = spaces.small_space().SerializeToString()
    counts = [0]
    for size in range(len(data) + 1):
        store(path, data[:size])
        found = outcome(path, salvage=True)
        if isinstance(found, Space):
            assert len(found.faults) <= 1
            counts.append(event_count(*found.planes))
    assert counts == sorted(counts)
    assert sorted(set(counts)) == list(range(9))


@pytest.mark.parametrize(
    ("last_line", "place", "reason"),
    [
        (b"\x1a\x02\x07", -3, "damaged plane '/device:GPU:0': "),  # cut off, and damaged: told once
        (b"\x1a\x01\x07", 0, "damaged line '' of '/device:GPU:0': "),
    ],
)
def test_damage_in_one_plane_hides_none_in_another(
    tmp_path: Path, last_line: bytes, place: int, reason: str
) -> None:
    host, gpu, environment = (p.SerializeToString() for p in spaces.small_space().planes)
    parts = [wire.content(1, part) for part in (environment + b"\x07", host, gpu + last_line)]
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(b"".join(parts))
    faults = read.read_file(path, salvage=True).faults
    assert [fault.offset for fault in faults] == [len(parts[0]) - 1, sum(map(len, parts)) + place]
    assert faults[0].reason.startswith("damaged plane 'Task Environment': ")
    assert faults[1].reason.startswith(reason)


# The message ends where its memory page ends; the next page may not be touched.
_GUARDED = """
import ctypes, mmap, sys
import numpy as np
from tests.xplane import spaces, test_damage, wire
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.PAGESIZE
room = mmap.mmap(-1, 3 * page)
address = ctypes.addressof(ctypes.c_char.from_buffer(room))
# A page boundary lies in the first two pages; what is behind it is made unreadable.
limit = (address // page + 1) * page + page * (address % page == 0)
assert libc.mprotect(ctypes.c_void_p(limit), ctypes.c_size_t(page), 0) == 0
if sys.argv[2:] == ["touch"]:
    ctypes.string_at(limit, 1)
decoder = wire.DECODERS[-1]
assert decoder.__name__.endswith(sys.argv[1])
def views(message):
    for data in test_damage.one_byte_off(message):
        if data:
            start = limit - len(data)
            ctypes.memmove(start, data, len(data))
            yield data, memoryview((ctypes.c_uint8 * len(data)).from_address(start)).cast("B")
plane = spaces.small_space().planes[1]
calls = 0
for data, view in views(plane.lines[0].SerializeToString()):
    assert decoder.decode_line(view, 0, len(data), wire.WANTED).time.size <= 8
    decoder.scan_fields(view, 0, len(data))
    for offset in range(len(data)):
        try:
            decoder.intern_contents(view, np.array([offset]))
        except ValueError:
            pass
    calls += 1
del plane.lines[:]
plane.event_metadata[1].stats.add(metadata_id=3, str_value=b"size:1")
plane.stats.add(metadata_id=1, double_value=0.5)
for data, view in views(plane.SerializeToString()):
    assert len(decoder.read_plane(view).stat_names) <= 5
    calls += 1
print(calls)
"""


def run_guarded(decoder: ModuleType, *arguments: str) -> subprocess.CompletedProcess[str]:
    name = decoder.__name__.rpartition(".")[2]
    return subprocess.run(
        [sys.executable, "-c", _GUARDED, name, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there is no mprotect")
def test_nothing_is_read_behind_the_buffer() -> None:
    decoder = wire.DECODERS[-1]
    done = run_guarded(decoder)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 3000
    assert run_guarded(decoder, "touch").returncode < 0, "the page behind is not guarded"

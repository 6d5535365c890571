"""Checks that Python stacks are sampled in the window, name the lines that run, and harm nothing."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import statistics
import struct
import sys
import sysconfig
import threading
import time
import zlib
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread, get_ident
from threading import enumerate as threads
from types import SimpleNamespace
from typing import Any, Final
from weakref import ref

import msgspec
import pytest

from tests.capture.conftest import ROOT, environment_with, run_python
from traceview.capture.process.around import _in_python
from traceview.capture.process.python_code import CodePlaces
from traceview.capture.sampling import python_sampling
from traceview.capture.sampling.python_sampling import PythonListener
from traceview.capture.sampling.sampled_stacks import NOT_KEPT, Stacks
from traceview.capture.sidecar.file import Sidecar
from traceview.trace.sidecar.sidecar import PythonRecord, python_samples

TRACE = Path("trace")
HERE = Path(__file__).name
OURS = python_sampling.__file__


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Nor changed: what a script can ask of its process is as it was."""
    before = sys.getswitchinterval(), gc.isenabled(), gc.enable, gc.disable, [*gc.callbacks]
    yield
    assert not [thread for thread in threads() if thread.name == "traceview-python"]
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    after = sys.getswitchinterval(), gc.isenabled(), gc.enable, gc.disable, [*gc.callbacks]
    assert after == before


@pytest.fixture(params=["native", "python"])
def sampler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the module in C, and as without a compiler."""
    if request.param == "python":
        monkeypatch.setattr(python_sampling, "_STACKS", None)
    return str(request.param)


def begun() -> tuple[Sidecar, PythonListener]:
    """A window that is open."""
    sidecar, listener = Sidecar(state="recording"), PythonListener()
    sidecar.add("clock", {"started": {"wall_ns": time.time_ns()}})
    listener.opening(sidecar)
    listener.opened(sidecar)
    return sidecar, listener


def window_around(work: Callable[[], object]) -> Sidecar:
    """The sidecar after a window in which the main thread does `work`."""
    sidecar, listener = begun()
    work()
    sidecar.add("clock", {"stopped": {"wall_ns": time.time_ns()}})
    listener.closed(sidecar, TRACE)
    listener.finished()
    return sidecar


def samples_of(sidecar: Sidecar) -> list[tuple[int, dict[str, Any], list[str]]]:
    """Time, thread and stack of each sample, read as the page on captures says."""
    group = sidecar.groups["python"]
    tables = json.loads(zlib.decompress(b64decode(group["stacks"])))
    content = zlib.decompress(b64decode(group["samples"]))
    count = len(content) // 16
    columns = struct.unpack(f"<{count}q{count}i{count}i", content)
    rows, t_ns = [], 0
    for passed, thread, stack in zip(
        columns[:count], columns[count : 2 * count], columns[2 * count :], strict=True
    ):
        t_ns += passed
        lines = []
        for number in tables["stacks"][stack]:
            file, function, line, is_user = tables["frames"][number]
            place = f"{tables['files'][file]}:{line} in {tables['functions'][function]}"
            lines.append(place + "*" * is_user)
        rows.append((t_ns, group["threads"][thread], lines))
    return rows


def compute_until(is_over: Callable[[], bool]) -> None:
    total = 0
    while not is_over():
        for number in range(1000):
            total += number * number


def seconds(length: float) -> Callable[[], bool]:
    end = time.perf_counter() + length
    return lambda: time.perf_counter() > end


def column(sidecar: Sidecar, name: str, kind: str) -> tuple[int, ...]:
    """A number of each sample."""
    content = zlib.decompress(b64decode(sidecar.groups["python"][name]))
    return struct.unpack(f"<{len(content) // struct.calcsize(kind)}{kind}", content)


def test_python_that_computes_is_sampled(sampler: str) -> None:
    begun_ns = time.time_ns()
    sidecar = window_around(lambda: compute_until(seconds(0.3)))
    rows = samples_of(sidecar)
    assert all(begun_ns <= t_ns <= time.time_ns() for t_ns, _, _ in rows)
    assert [t_ns for t_ns, _, _ in rows] == sorted(t_ns for t_ns, _, _ in rows)
    main = [lines[0] for _, thread, lines in rows if thread["name"] == "MainThread"]
    first = compute_until.__code__.co_firstlineno
    inside = [f"{HERE}:{line} in compute_until*" for line in range(first, first + 5)]
    assert sum(line.endswith((*inside, "<lambda>*")) for line in main) > 0.9 * len(main)
    group = sidecar.groups["python"]
    assert group["sampler"] == sampler
    # Of 300, because the machine may be busy.
    assert len(main) > 5
    assert group["round_count"] > 5
    late = column(sidecar, "late", "i")
    assert len(late) == len(rows)
    assert min(late) >= 0
    read = python_samples(msgspec.convert(json.loads(json.dumps(group)), PythonRecord))
    assert read is not None
    assert read.sampler == sampler
    if sampler == "native":
        assert read.held is not None
        assert read.held.tolist() == [*column(sidecar, "held", "i")]
        is_main = [thread["name"] == "MainThread" for _, thread, _ in rows]
        # Others hardly want the lock.
        assert (read.held[is_main] >= 0).mean() > 0.8
    else:
        assert read.held is None


def sorts(length: float) -> None:
    """Native code that keeps the lock."""
    numbers = [*range(1000, 0, -1), *range(1000)] * 20
    is_over = seconds(length)
    while not is_over():
        sorted(numbers)


def packs(length: float) -> None:
    """Native code that lets go of the lock."""
    content = os.urandom(50_000)
    is_over = seconds(length)
    while not is_over():
        zlib.compress(content)


@pytest.mark.parametrize("count", [1, 3])
def test_samples_lie_where_a_thread_spends_its_time(count: int) -> None:
    """Also where it does not let go of the lock, and where others want that."""

    def work() -> None:
        is_over = seconds(0.4)
        while not is_over():
            for part in parts:
                begun = time.perf_counter()
                part()
                spent[get_ident(), part.__name__] += time.perf_counter() - begun

    def sort() -> None:
        sorts(0.006)

    def pack() -> None:
        packs(0.004)

    def compute() -> None:
        compute_until(seconds(0.008))

    def rest() -> None:
        time.sleep(0.004)

    parts = (sort, pack, compute, rest)
    spent: defaultdict[tuple[int, str], float] = defaultdict(float)
    others = [Thread(target=work) for _ in range(count - 1)]

    def all_work() -> None:
        for thread in others:
            thread.start()
        work()
        for thread in others:
            thread.join()

    seen: Counter[tuple[int, str]] = Counter()
    for _, thread, lines in samples_of(window_around(all_work)):
        names = [line.partition(" in ")[2].rstrip("*") for line in lines]
        seen.update((thread["ident"], part.__name__) for part in parts if part.__name__ in names)
    assert len(spent) == len(parts) * count
    for (ident, name), length in spent.items():
        total = sum(each for (who, _), each in spent.items() if who == ident)
        count_all = sum(each for (who, _), each in seen.items() if who == ident)
        assert seen[ident, name] / count_all == pytest.approx(length / total, abs=0.12), name


def test_the_thread_that_holds_the_lock_is_known() -> None:
    """Two that compute hand it to each other; one that sleeps never has it."""
    is_over = Event()
    works = Thread(target=compute_until, args=(is_over.is_set,), name="works")
    sleeps = Thread(target=lambda: is_over.wait(5), name="sleeps")
    for thread in (works, sleeps):
        thread.start()
    sidecar = window_around(lambda: compute_until(seconds(0.4)))
    is_over.set()
    for thread in (works, sleeps):
        thread.join()
    held: dict[str, list[int]] = {}
    for (_, thread_row, _), number in zip(
        samples_of(sidecar), column(sidecar, "held", "i"), strict=True
    ):
        held.setdefault(thread_row["name"], []).append(number)
    assert {*held["sleeps"]} == {-1}
    one, other = ({*held[name]} - {-1} for name in ("MainThread", "works"))
    assert not one & other
    assert len(one) > 3
    assert len(other) > 3
    ratios = [sum(number >= 0 for number in held[name]) / len(held[name]) for name in held]
    assert 0.7 < sum(ratios) < 1.1


def test_what_passes_a_call_on_is_left_out() -> None:
    """As without a C compiler; below it is what the script calls."""
    called = _in_python(statistics.stdev, lambda *_: True, lambda _, result, __: result)
    sidecar = window_around(lambda: [called(range(20_000)) for _ in range(20)])
    inside = [lines for _, _, lines in samples_of(sidecar) if "statistics.py" in lines[0]]
    assert inside
    assert not [line for lines in inside for line in lines if line.startswith("traceview/")]


def test_code_that_is_gone_has_its_name_and_lines() -> None:
    """Another lies where it lay, with other lines."""

    def work() -> None:
        for place in (3, 40, 7, 60) * 10:
            source = (
                "\n" * place + f"def made_{place}(is_over):\n    while not is_over():\n        pass"
            )
            scope: dict[str, Any] = {}
            exec(compile(source, f"/job/made_{place}.py", "exec"), scope)
            scope[f"made_{place}"](seconds(0.01))
            exec(
                compile("\n" * place + "while not is_over(): pass", "<stdin>", "exec"),
                {"is_over": seconds(0.01)},
            )

    lines = [
        each[0]
        for _, _, stack in samples_of(window_around(work))
        if (each := [line for line in stack if "made_" in line])
    ]
    right = {
        f"made_{place}.py:{place + line} in made_{place}*"
        for place in (3, 40, 7, 60)
        for line in (1, 2, 3)
    }
    assert len({*lines} & right) > 3
    assert {*lines} <= right
    typed = [
        line
        for _, _, stack in samples_of(window_around(work))
        for line in stack
        if "<stdin>" in line
    ]
    assert {*typed} == {f"<stdin>:{place + 1} in <module>*" for place in (3, 40, 7, 60)}


def test_what_the_script_has_let_go_is_freed_at_once(sampler: str) -> None:
    """Frames hold the variables of the script; a sample that kept them would keep arrays and iterators alive."""

    class Large:
        pass

    def work() -> None:
        for _ in range(20):
            use()

    def use() -> None:
        large = Large()
        compute_until(seconds(0.004))
        known.append(ref(large))

    known: list[ref[Large]] = []
    gc.collect()
    gc.disable()
    try:
        assert window_around(work).groups["python"]["sampler"] == sampler
        assert [one() for one in known] == [None] * 20
    finally:
        gc.enable()


def test_a_thread_that_ends_in_the_window_is_named(sampler: str) -> None:
    def work() -> None:
        thread = Thread(target=compute_until, args=(seconds(0.2),), name="short")
        thread.start()
        thread.join()
        time.sleep(0.05)

    sidecar = window_around(work)
    assert "short" in {thread["name"] for _, thread, _ in samples_of(sidecar)}, sampler


def test_long_collections_are_noted() -> None:
    def work() -> None:
        kept = [[number] for number in range(300_000)]
        gc.collect()
        kept.clear()

    spans = window_around(work).groups["python"]["collections"]
    assert any(length_ns > 1_000_000 and generation == 2 for _, length_ns, generation in spans)


def test_threads_that_run_or_wait_in_a_library_are_kept_and_those_that_serve_are_not() -> None:
    """The thread that hands the steps of a parameter server to a worker waits in a queue, below no code of the user."""
    over = Event()
    scope: dict[str, Any] = {"over": over}
    library = str(Path(msgspec.__file__).parent / "loop.py")
    exec(compile("def serve():\n    over.wait()\n", library, "exec"), scope)
    reader = Thread(target=compute_until, args=(over.is_set,), name="reader")
    others = [
        Thread(target=scope["serve"], name="library"),
        Thread(target=over.wait, name="serves"),
    ]
    for thread in (reader, *others):
        thread.start()
    try:
        sidecar = window_around(lambda: time.sleep(0.2))
    finally:
        over.set()
        for thread in (reader, *others):
            thread.join()
    stacks: dict[str, list[list[str]]] = {}
    for _, thread_row, lines in samples_of(sidecar):
        stacks.setdefault(thread_row["name"], []).append(lines)
    assert "MainThread" in stacks
    assert "serves" not in stacks
    assert any("in compute_until*" in lines[0] for lines in stacks["reader"])
    assert all("in wait" in lines[0] for lines in stacks["library"])
    assert any(line.startswith("msgspec/loop.py:2 in serve") for line in stacks["library"][0])
    known = {"ident": reader.ident, "name": "reader", "native_id": reader.native_id}
    assert known in sidecar.groups["python"]["threads"]


def test_a_stack_has_all_up_to_the_first_code_of_the_user_and_then_only_that() -> None:
    def write() -> None:
        json.dumps([list(range(50_000))] * 40, indent=1)

    def log() -> None:
        json.dumps(object(), default=lambda _: write())

    rows = samples_of(window_around(log))
    of_user = [
        (lines, next(place for place, line in enumerate(lines) if line.endswith("*")))
        for _, _, lines in rows
        if "json/encoder.py" in lines[0]
    ]
    inside = [(lines, first) for lines, first in of_user if lines[first].endswith("in write*")]
    assert inside
    for lines, first in inside:
        assert [line.partition(" in ")[2] for line in lines[first : first + 3]] == [
            "write*",
            # Before 3.11 Python does not know what is around a lambda.
            "log*" if sys.version_info >= (3, 11) else "<lambda>*",
            "log*",
        ]
        assert all(line.endswith("*") and HERE in line for line in lines[first : first + 3])
        assert all(line.endswith("*") for line in lines[first:])


def test_a_window_that_is_too_short_for_a_sample_says_so() -> None:
    sidecar, listener = begun()
    # However late the machine lets it end.
    sidecar.add("clock", {"stopped": {"wall_ns": listener._started_ns}})
    listener.closed(sidecar, TRACE)
    assert sidecar.groups["python"]["reason"] == "the window was too short"


def test_a_profile_that_fails_ends_the_sampling(sampler: str) -> None:
    sidecar, listener = begun()
    sidecar.state = "failed"
    listener.finished()
    # Before it has begun, too.
    listener = PythonListener()
    listener.opening(Sidecar(state="waiting"))
    listener.finished()
    assert window_around(lambda: time.sleep(0.05)).groups["python"]["sampler"] == sampler


def test_a_module_that_does_not_know_this_python_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It compares the frames that it reads with those that Python shows."""
    module = SimpleNamespace(start=lambda *_: "frames", note=lambda: None, stop=lambda: None)
    monkeypatch.setattr(python_sampling, "_STACKS", module)
    sidecar = window_around(lambda: compute_until(seconds(0.1)))
    assert samples_of(sidecar)
    assert sidecar.groups["python"]["sampler"] == "python"
    assert sidecar.groups["notes"]["python"] == ["sampled with Python's lock: frames"]


def test_an_error_of_the_sampler_is_a_problem_of_the_sidecar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no frames")

    monkeypatch.setattr(python_sampling, "_STACKS", None)
    monkeypatch.setattr(PythonListener, "_round", fail)
    group = window_around(lambda: time.sleep(0.02)).groups["python"]
    assert group["reason"] == "RuntimeError"


def test_a_forked_child_keeps_nothing(sampler: str) -> None:
    sidecar, listener = begun()
    child = os.fork()
    if child == 0:
        listener.closed(sidecar, TRACE)
        listener.finished()
        os._exit("python" in sidecar.groups)
    assert os.waitpid(child, 0)[1] == 0
    time.sleep(0.1)
    listener.closed(sidecar, TRACE)
    assert sidecar.groups["python"]["round_count"] > 0, sampler


def test_too_many_samples_double_the_interval(
    sampler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_sampling, "MOST_SAMPLES", 20)
    sidecar = window_around(lambda: time.sleep(0.5))
    assert 0 < len(samples_of(sidecar)) <= 40, sampler
    assert sidecar.groups["python"]["interval_ns"] >= 2_000_000


class NativeThread:
    """A thread that Python has not started, and that calls a function."""

    ident: int

    def __init__(self, function: Callable[[], object]) -> None:
        is_there = Event()

        def call(_: object) -> None:
            self.ident = get_ident()
            is_there.set()
            function()

        self._library = ctypes.CDLL(None)
        self._call = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(call)
        self._is_there = is_there
        self._thread = ctypes.c_ulong()

    def __enter__(self) -> NativeThread:
        assert not self._library.pthread_create(ctypes.byref(self._thread), None, self._call, None)
        assert self._is_there.wait(5)
        return self

    def __exit__(self, *_: object) -> None:
        assert not self._library.pthread_join(self._thread, None)


def processor_times(sidecar: Sidecar, ident: int) -> list[int]:
    """Microseconds at each sample of a thread."""
    rows = zip(samples_of(sidecar), column(sidecar, "cpu", "q"), strict=True)
    return [cpu_us for (_, thread, _), cpu_us in rows if thread["ident"] == ident]


def test_a_native_thread_has_its_own_processor_time() -> None:
    """As TensorFlow's threads run functions of the script: one computes, one sleeps."""
    is_over = Event()
    with (
        NativeThread(lambda: compute_until(is_over.is_set)) as works,
        NativeThread(lambda: is_over.wait(5)) as sleeps,
    ):
        sidecar = window_around(lambda: time.sleep(0.3))
        is_over.set()
    worked, slept = (processor_times(sidecar, thread.ident) for thread in (works, sleeps))
    assert min(worked) > 0
    assert worked[-1] - worked[0] > 10_000
    assert slept[-1] - slept[0] < 10_000


def alone(tmp_path: Path, body: str) -> Any:
    """What a script prints as JSON, in a process of its own."""
    script = f"import json, sys, time\nfrom tests.capture.test_python_stacks import *\n{body}"
    options: Any = {"script": script, "environment": environment_with(), "code": 0}
    return json.loads(run_python(tmp_path, "train.py", **options).out)


RESTLESS: Final = """
from traceview.capture.sampling import stacks
problem = stacks.start(200_000, 1 << 16)
assert problem is None, problem
stacks.note()

def deep(depth):
    return depth and deep(depth - 1)

def generated(depth):
    if depth:
        yield from generated(depth - 1)
    yield from range(9)

def made():
    scope = {}
    exec(compile("def made(): return sum(range(99))", "<made>", "exec"), scope)
    return scope["made"]()

is_over = seconds(2)
def restless():
    while not is_over():
        deep(800), sum(generated(50)), made(), gc.collect(0)

def comes_and_goes():
    while not is_over():
        others = [Thread(target=deep, args=(30,)) for _ in range(8)]
        for thread in others: thread.start()
        for thread in others: thread.join()
        if os.fork() == 0: os._exit(stacks.stop() is not None)
        assert os.wait()[1] == 0

workers = [Thread(target=each) for each in (restless, restless, comes_and_goes)]
for thread in workers: thread.start()
for thread in workers: thread.join()
*_, codes, found = stacks.stop()
print(json.dumps([len(found), sorted({name for _, name, *_ in codes})]))
"""


def test_a_process_whose_frames_and_threads_come_and_go_is_not_harmed(tmp_path: Path) -> None:
    count, names = alone(tmp_path, RESTLESS)
    assert count > 50
    assert {"deep", "generated", "comes_and_goes"} <= {*names}


@pytest.mark.parametrize(
    ("file", "is_user", "shown"),
    [
        ("/home/me/job/train.py", True, "train.py"),
        ("/home/me/job/data/load.py", True, "data/load.py"),
        ("/home/me/other/lib.py", True, "lib.py"),
        ("/v/lib/python3.11/site-packages/keras/src/x.py", False, "keras/src/x.py"),
        ("/usr/lib/python3/dist-packages/yaml.py", False, "yaml.py"),
        (os.__file__, False, "os.py"),
        (json.__file__, False, "json/__init__.py"),
        (python_sampling.__file__, False, "traceview/capture/sampling/python_sampling.py"),
        (str(ROOT / "traceview/demo/training.py"), True, "traceview/demo/training.py"),
        # An installed package that is the script, and an environment in the folder of the script.
        ("/v/lib/python3.11/site-packages/job/train.py", True, "train.py"),
        ("/home/me/job/.venv/lib/python3.11/site-packages/keras/src/x.py", False, "keras/src/x.py"),
        ("/home/me/job/env/lib/python3.11/queue.py", False, "queue.py"),
        # The methods of data classes, and what somebody types.
        ("<string>", False, "<string>"),
        ("<attrs generated init a.B>", False, "<attrs generated init a.B>"),
        ("<stdin>", True, "<stdin>"),
        ("<ipython-input-3-1f>", True, "<ipython-input-3-1f>"),
    ],
)
def test_code_of_the_user_is_what_is_not_installed(
    file: str, is_user: bool, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "/env/" in file:
        monkeypatch.setattr(sysconfig, "get_path", lambda _: "/home/me/job/env/lib/python3.11")
    scripts = [Path("/home/me/job"), Path("/v/lib/python3.11/site-packages/job")]
    places = CodePlaces(scripts)
    assert (places.is_user(file), places.shown(file)) == (is_user, shown)


@pytest.mark.parametrize("metadata", ["numpy-2.5.2.dist-info", "mine.egg-info", "numpy"])
def test_packages_that_were_installed_into_any_folder_are_no_code_of_the_user(
    metadata: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `pip install --target`; a project that is installed for its development has an `egg-info`."""
    (tmp_path / "bundle" / metadata).mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path / "bundle")
    places = CodePlaces([Path("/home/me/job")])
    file = str(tmp_path / "bundle" / "numpy" / "lib.py")
    is_installed = metadata.endswith(".dist-info")
    assert places.is_user(file) != is_installed
    assert places.shown(file) == ("numpy/lib.py" if is_installed else "lib.py")


@pytest.mark.parametrize(
    ("files", "is_kept"),
    [
        pytest.param((OURS, threading.__file__), False, id="ours and the standard library"),
        pytest.param((OURS,), False, id="ours alone"),
        pytest.param((threading.__file__,), False, id="the standard library alone"),
        pytest.param((OURS, threading.__file__, __file__), True, id="called by the user"),
        pytest.param((OURS, pytest.__file__), True, id="called by a package"),
    ],
)
def test_a_stack_of_ours_and_the_standard_library_alone_is_not_kept(
    files: tuple[str, ...], is_kept: bool
) -> None:
    """The innermost first."""
    code = (lambda: None).__code__
    stack = [(code.replace(co_filename=file), 0) for file in files]
    number = Stacks(CodePlaces()).number_of(stack)
    assert (number != NOT_KEPT) is is_kept

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
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread, get_ident
from threading import enumerate as threads
from typing import Any
from weakref import ref

import msgspec
import pytest

from tests.capture.conftest import ROOT, environment_with, run_python
from traceview.capture.process.around import _in_python
from traceview.capture.process.python_code import CodePlaces
from traceview.capture.sampling import python_sampling
from traceview.capture.sampling.python_sampling import UNKNOWN, PythonListener, ThreadClocks
from traceview.capture.sidecar.file import Sidecar

TRACE = Path("trace")
HERE = Path(__file__).name


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threads() if thread.name == "traceview-python"]
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


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


def test_python_that_computes_is_sampled() -> None:
    """It holds the GIL, which the sampling thread has to ask for."""
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
    # Of 60, because the machine may be busy.
    assert len(main) > 5
    assert group["round_count"] > 5


def test_what_passes_a_call_on_is_left_out() -> None:
    """As without a C compiler; below it is what the script calls."""
    called = _in_python(statistics.stdev, lambda *_: True, lambda _, result, __: result)
    sidecar = window_around(lambda: [called(range(20_000)) for _ in range(20)])
    inside = [lines for _, _, lines in samples_of(sidecar) if "statistics.py" in lines[0]]
    assert inside
    assert not [line for lines in inside for line in lines if line.startswith("traceview/")]


def alone(tmp_path: Path, body: str) -> Any:
    """What a script prints as JSON, in a process that has no threads but its own."""
    script = f"import json, sys, time\nfrom tests.capture.test_python_stacks import *\n{body}"
    options: Any = {"script": script, "environment": environment_with(), "code": 0}
    return json.loads(run_python(tmp_path, "train.py", **options).out)


WITH_A_LOADER = """
import os, threading
over = threading.Event()
def loads():
    while not over.is_set(): sum(range(20_000))
threading.Thread(target=loads).start()
def work():
    for number in range(40):
        end = time.perf_counter() + 0.003
        while time.perf_counter() < end: sum(range(100))
        time.sleep(0.002)
        if number == 20 and os.fork() == 0: os._exit(work_on())
def work_on():
    end = time.perf_counter() + 0.05
    while time.perf_counter() < end: sum(range(100))
    return 0
def kept():
    rows = samples_of(window_around(work))
    main = [lines[0] for _, thread, lines in rows if thread["name"] == "MainThread"]
    return sum(":12 in work" in line for line in main)
alone = kept()
python_sampling._MAIN_THREAD = None
print(json.dumps([alone, kept()]))
over.set()
"""


def test_the_main_thread_takes_samples_where_others_run_python_too(tmp_path: Path) -> None:
    """A stretch shorter than the switch interval, which stays as it is, for others wait for the lock; a child takes none."""
    with_it, without = alone(tmp_path, WITH_A_LOADER)
    assert with_it > 2 * without
    assert with_it > 20


def test_what_is_asked_of_the_main_thread_is_asked_until_the_end() -> None:
    """A second one cannot ask."""
    asked: list[int] = []

    def answer(due_ns: int) -> None:
        asked.append(time.time_ns() - due_ns)

    main_thread = python_sampling._MAIN_THREAD
    assert main_thread is not None
    assert main_thread.start(answer, 500_000)
    assert not main_thread.start(answer, 500_000)
    compute_until(lambda: len(asked) >= 10)
    main_thread.stop()
    count = len(asked)
    compute_until(seconds(0.01))
    assert len(asked) == count
    assert min(asked) >= 0


FAILS = """
def fails(*_):
    signal.raise_signal(number)
    raise RuntimeError("no frames")
"""


@pytest.mark.parametrize("error", [LookupError, KeyboardInterrupt])
def test_what_a_handler_of_a_signal_raises_is_raised_in_the_script(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the main thread takes a sample; what the sample raises is not."""

    def handler(_number: int, _frame: object) -> None:
        raise error

    # As if it were of the package.
    code = compile(FAILS, python_sampling.__file__, "exec")
    names: dict[str, Any] = {"signal": signal, "number": signal.SIGUSR1}
    exec(code, names)
    listener, sidecar = PythonListener(), Sidecar(state="recording")
    listener.opening(sidecar)
    listener._begun_ns = 0
    monkeypatch.setattr(listener, "_sample", names["fails"])
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(error):
            listener._answer(time.time_ns())
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert listener._problem is None
        listener._answer(time.time_ns())
        assert listener._problem == "RuntimeError"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_the_script_has_let_go_is_freed_at_once() -> None:
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
        window_around(work)
        assert [one() for one in known] == [None] * 20
    finally:
        gc.enable()


def test_the_switch_interval_is_short_while_the_main_thread_runs_alone_and_the_script_sets_none(
    tmp_path: Path,
) -> None:
    body = """
over, seen = Event(), []
reader = Thread(target=compute_until, args=(over.is_set,))
def look():
    compute_until(seconds(0.1))
    seen.append(sys.getswitchinterval())
def beside():
    reader.start()
    look()
    over.set()
    reader.join()
def chosen():
    look()
    sys.setswitchinterval(0.002)
    compute_until(seconds(0.02))
before = sys.getswitchinterval()
for work in (look, beside, chosen):
    window_around(work)
    seen.append(sys.getswitchinterval())
print(json.dumps([before, *seen]))
"""
    before, *seen = alone(tmp_path, body)
    assert before > python_sampling.SOON_SECONDS
    short = pytest.approx(python_sampling.SOON_SECONDS)
    assert seen == [short, before, before, before, short, pytest.approx(0.002)]


def test_no_finalizer_of_the_script_runs_in_the_sampling_thread() -> None:
    """Garbage is collected by the thread that makes one object too many."""
    threads: list[str] = []

    def collected(_phase: str, _facts: dict[str, int]) -> None:
        threads.append(threading.current_thread().name)

    threshold = gc.get_threshold()
    gc.callbacks.append(collected)
    try:
        gc.set_threshold(1)
        sidecar = window_around(lambda: time.sleep(0.3))
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(collected)
    assert gc.isenabled()
    assert "MainThread" in threads
    # It may happen when the thread begins and ends, before and after its rounds.
    assert threads.count("traceview-python") < sidecar.groups["python"]["round_count"] / 4


@pytest.mark.parametrize("chosen", [False, True])
def test_what_the_script_chooses_of_collections_holds_and_is_seen(*, chosen: bool) -> None:
    """Whatever the sampling thread does meanwhile."""
    seen: list[bool] = []

    def work() -> None:
        (gc.enable if chosen else gc.disable)()
        is_over = seconds(0.2)
        while not is_over():
            seen.append(gc.isenabled())

    functions = gc.enable, gc.disable, gc.isenabled
    try:
        (gc.disable if chosen else gc.enable)()
        window_around(work)
        assert gc.isenabled() is chosen
    finally:
        gc.enable()
    assert set(seen) == {chosen}
    assert functions == (gc.enable, gc.disable, gc.isenabled)


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
    group = window_around(lambda: None).groups["python"]
    assert group["reason"] == "the window was too short"


def test_a_profile_that_fails_ends_the_sampling() -> None:
    sidecar, listener = begun()
    sidecar.state = "failed"
    listener.finished()


def test_an_error_of_the_sampler_is_a_problem_of_the_sidecar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no frames")

    monkeypatch.setattr(PythonListener, "_sample", fail)
    group = window_around(lambda: time.sleep(0.02)).groups["python"]
    assert group["reason"] == "RuntimeError"


def test_a_forked_child_keeps_nothing() -> None:
    sidecar, listener = begun()
    child = os.fork()
    if child == 0:
        listener.closed(sidecar, TRACE)
        listener.finished()
        os._exit("python" in sidecar.groups)
    assert os.waitpid(child, 0)[1] == 0
    time.sleep(0.03)
    listener.closed(sidecar, TRACE)
    assert sidecar.groups["python"]["round_count"] > 0


def test_too_many_samples_double_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_sampling, "MOST_SAMPLES", 20)
    sidecar = window_around(lambda: time.sleep(0.5))
    assert len(samples_of(sidecar)) <= 40
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
    content = zlib.decompress(b64decode(sidecar.groups["python"]["cpu"]))
    times = struct.unpack(f"<{len(content) // 8}q", content)
    rows = zip(samples_of(sidecar), times, strict=True)
    return [cpu_us for (_, thread, _), cpu_us in rows if thread["ident"] == ident]


def late_us(sidecar: Sidecar) -> tuple[int, ...]:
    """How late the round of each sample came."""
    content = zlib.decompress(b64decode(sidecar.groups["python"]["late"]))
    return struct.unpack(f"<{len(content) // 4}i", content)


def test_it_is_recorded_how_late_a_round_came() -> None:
    """One call keeps the lock for long; before and after it the main thread sleeps."""

    def keeps_the_lock() -> None:
        time.sleep(0.05)
        begun = time.perf_counter()
        sum(range(10_000_000))
        kept_us.append((time.perf_counter() - begun) * 1e6)
        time.sleep(0.05)

    kept_us: list[float] = []
    sidecar = window_around(keeps_the_lock)
    late = late_us(sidecar)
    assert len(late) == len(samples_of(sidecar))
    assert min(late) >= 0
    assert kept_us[0] / 2 < max(late)
    # Of more than 30 rounds while the thread sleeps.
    assert sorted(late)[len(late) // 2] < kept_us[0] / 4


def dropped() -> None:
    """At its end Python drops what it made, in milliseconds of native code."""
    kept = {}
    for number in range(200_000):
        kept[number] = str(number)


def next_one() -> None:
    time.sleep(0.002)


def test_time_before_a_function_begins_is_of_what_ran_before() -> None:
    """A thread that must let go of the lock does so where the next function begins, which has run nothing yet."""

    def loop() -> None:
        for _ in range(20):
            dropped()
            next_one()

    sidecar = window_around(loop)
    begins = f"{HERE}:{next_one.__code__.co_firstlineno} in next_one"
    samples = [
        (lines, late)
        for (*_, lines), late in zip(samples_of(sidecar), late_us(sidecar), strict=True)
    ]
    assert not [late for lines, late in samples if begins in lines[0] and late > 500]
    # It was as late, and is where most of the time before was spent.
    assert [late for lines, late in samples if " in dropped" in lines[0] and late > 2000]


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


def test_a_thread_that_has_ended_is_not_asked_for_its_clock() -> None:
    """Its memory may be gone; another thread that gets its address has another clock.

    The kernel may know a thread for a moment longer than `pthread_join` waits, and Python one for a moment later.
    """
    clocks = ThreadClocks()

    def comes_to(is_known: bool, ident: int, clocks: ThreadClocks = clocks) -> bool:
        until = time.monotonic() + 60
        while (clocks.cpu_ns(ident) == UNKNOWN) is is_known:
            if time.monotonic() > until:
                return False
        return True

    is_over = Event()
    with NativeThread(lambda: is_over.wait(5)) as first:
        assert comes_to(True, first.ident)
        is_over.set()
    assert comes_to(False, first.ident)
    assert comes_to(False, first.ident, ThreadClocks())
    for _ in range(20):
        is_over.clear()
        with NativeThread(lambda: is_over.wait(5)) as second:
            assert comes_to(True, second.ident)
            is_over.set()
        assert comes_to(False, second.ident)


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

"""A report under a limit of memory has the same bytes, and what cannot be held or spilled is one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from errno import EACCES, ENOENT, ENOSPC
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import traceview
from scripts.bench_trace import write_trace
from scripts.scenarios import SCENARIOS
from tests.command import Command
from traceview import memory_limit
from traceview.cli.options import memory_size
from traceview.errors import MemoryLimitError, UsageError
from traceview.memory_limit import is_limited, limited, spilled_bytes
from traceview.report.saved import to_json
from traceview.xplane.read import read_file

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures"
FIXTURE = str(FIXTURES / "custom-loop-2")
MB = 10**6
TIGHT = "150MB"
"""Little more than a process without a trace holds."""

spill: Any = pytest.importorskip("traceview.spill", reason="needs Linux and a compiler")

# The process that runs this has a limit of its own, as one in a container has: the kernel refuses more.
UNDER_A_HARD_LIMIT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))
from traceview.cli import main
sys.argv = ["traceview", *sys.argv[1:]]
main()
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory of 70 MB."""
    logdir = tmp_path_factory.mktemp("large")
    write_trace(logdir / "plugins" / "profile" / "run" / "a.xplane.pb", 30)
    return logdir


@pytest.fixture
def in_files(tmp_path: Path) -> Iterator[None]:
    """Every array of half a kilobyte or more lies in a file."""
    before = spill.begin(0, os.fsencode(tmp_path), 512)
    yield
    spill.end(before)
    assert spill.most_spilled() > 0
    assert not any(tmp_path.iterdir())


def _json(logdir: Path) -> str:
    return to_json(traceview.analyze(logdir, lanes=True, top=None))


@pytest.fixture(scope="module")
def known() -> dict[Path, str]:
    """The reports of all fixtures, made in memory."""
    return {path: _json(path) for path in sorted(FIXTURES.iterdir()) if path.is_dir()}


@pytest.mark.usefixtures("in_files")
@pytest.mark.parametrize("name", sorted(p.name for p in FIXTURES.iterdir() if p.is_dir()))
def test_a_report_from_files_has_the_same_bytes(name: str, known: dict[Path, str]) -> None:
    assert _json(FIXTURES / name) == known[FIXTURES / name]


@pytest.mark.parametrize("name", sorted(SCENARIOS)[::8])
def test_a_report_on_a_scenario_from_files_has_the_same_bytes(name: str, tmp_path: Path) -> None:
    logdir, files = tmp_path / "logs", tmp_path / "files"
    files.mkdir()
    SCENARIOS[name]().write(logdir)
    expected = _json(logdir)
    before = spill.begin(0, os.fsencode(files), 512)
    try:
        assert _json(logdir) == expected
    finally:
        spill.end(before)


def test_arrays_keep_their_values_in_files(tmp_path: Path) -> None:
    before = spill.begin(0, os.fsencode(tmp_path), 1 << 12)
    try:
        zeros = np.zeros(100_000, dtype=np.int64)
        used = np.arange(100_000)
        del used  # its pages may be used again
        again = np.zeros(100_000, dtype=np.int64)
        assert not zeros.any()
        assert not again.any()
        growing = np.arange(10)
        for size in (100_000, 1_000_000, 20, 3_000):
            # A reference check would count that of the test.
            growing.resize(size, refcheck=False)
            assert growing[:10].tolist() == list(range(10))
            assert not growing[20:].any()
    finally:
        spill.end(before)
    assert zeros.sum() == again.sum() == 0  # outlives the limit


def test_threads_that_decode_spill_too(large: Path, tmp_path: Path) -> None:
    (path,) = large.rglob("*.xplane.pb")
    before = spill.begin(0, os.fsencode(tmp_path), 1 << 14)
    try:
        space = read_file(path)
    finally:
        spill.end(before)
    columns = [line.columns.time for plane in space.planes for line in plane.lines]
    owners = [column if column.base is None else column.base for column in columns]
    assert sum(owner.nbytes >= 1 << 14 for owner in owners) > 10
    assert {_handler_of(owner) for owner in owners} == {"traceview_spill"}


def _handler_of(array: Any) -> str:
    """The name of what allocated an array."""
    multiarray = import_module(
        "numpy._core.multiarray" if find_spec("numpy._core") else "numpy.core.multiarray"
    )
    name: str = multiarray.get_handler_name(array)
    return name


def _run(
    arguments: Sequence[str], folder: Path, *, limit: int | None = None
) -> subprocess.CompletedProcess[str]:
    program = (
        ["-m", "traceview"] if limit is None else ["-c", UNDER_A_HARD_LIMIT.format(limit=limit)]
    )
    return subprocess.run(
        [sys.executable, *program, *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_report_under_a_hard_limit_has_the_same_bytes(large: Path, tmp_path: Path) -> None:
    analyze = ("analyze", str(large), "--format", "json")
    expected = _run(analyze, tmp_path)
    assert expected.returncode == 0, expected.stderr
    refused = _run(analyze, tmp_path, limit=150 * MB)
    assert refused.returncode == 4, refused.stderr
    assert "--max-memory" in refused.stderr
    assert "Traceback" not in refused.stderr
    for limit in (None, 150 * MB):
        held = _run((*analyze, "--max-memory", TIGHT), tmp_path, limit=limit)
        assert held.returncode == 0, held.stderr
        assert held.stdout == expected.stdout
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ("gaps", "--format", "json"),
        ("steps",),
        ("report", "--format", "json"),
        ("gate", "--require", "busy_ratio >= 0"),
        ("export", "--to", "csv"),
    ],
)
def test_other_commands_take_the_limit(words: tuple[str, ...], tmp_path: Path) -> None:
    name, *options = words
    if name == "export":
        options += ["-o", str(tmp_path / "tables")]
    done = _run((name, FIXTURE, *options, "--max-memory", TIGHT), tmp_path)
    assert done.returncode == 0, done.stderr


def test_what_the_limit_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_DATA)
    begun = spill.private_memory()
    with limited(begun + 400 * MB):
        assert is_limited()
        arrays = [np.ones(10 * MB // 8) for _ in range(60)]
        assert spill.private_memory() <= begun + 400 * MB
        assert spilled_bytes() > 300 * MB
        assert sum(array[-1] for array in arrays) == 60
        with pytest.raises(MemoryError):
            bytearray(500 * MB)
    assert not is_limited()
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    program = (
        "import numpy, sys, time\n"
        "from traceview.memory_limit import limited\n"
        "with limited(300_000_000):\n"
        "    kept = [numpy.ones(1_000_000) for _ in range(60)]\n"
        "    print('spilled', flush=True)\n"
        "    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        try:
            assert process.stdout.readline() == "spilled\n"
            assert any(" (deleted)" in line for line in _maps(process.pid))
            assert not any(tmp_path.iterdir())
        finally:
            process.send_signal(signal.SIGKILL)
    assert not any(tmp_path.iterdir())


def _maps(process: int) -> list[str]:
    return Path(f"/proc/{process}/maps").read_text().splitlines()


# Errors


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MB", 512 * MB),
        ("1GB", 1000 * MB),
        ("1.5GiB", 3 << 29),
        (" 2 gb ", 2000 * MB),
        ("0.25TB", 250_000 * MB),
        ("700MiB", 700 << 20),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert memory_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "1", "1G", "-1GB", "1,5GB", "1GBs", "1e3MB", "٣GB"])
def test_nonsense_is_one_line(text: str, command: Command) -> None:
    done = command("analyze", FIXTURE, "--max-memory", text)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        f"traceview: error: --max-memory {text}: not a size of memory",
        "hint: a number and MB, GB, MiB or GiB: 1.5GB",
    ]


def test_too_little_for_any_trace_is_said_before(command: Command) -> None:
    done = command("analyze", FIXTURE, "--max-memory", "20MB")
    assert (done.code, done.out) == (13, "")
    first, second = done.err.splitlines()
    assert first == "traceview: error: --max-memory 20MB: no trace can be analysed in so little"
    assert second.startswith("hint: at least ")


def test_too_little_for_this_trace_says_what_to_try(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("traceview.report.build.analyze", fail)
    done = command("analyze", FIXTURE, "--max-memory", "64GB")
    assert (done.code, done.out) == (13, "")
    assert done.err.splitlines() == [
        "traceview: error: --max-memory 64,000MB is too little for this trace",
        "hint: try 128,000MB; names, tables of a report and sorting cannot be spilled",
    ]


def test_no_file_can_be_made(tmp_path: Path, large: Path) -> None:
    program = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))\n"
        "from traceview.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "analyze", str(large), "--max-memory", TIGHT],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (13, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("traceview: error: --max-memory: no file of ")
    assert first.endswith(f"can be made in {tmp_path}: File too large")
    assert second == "hint: set TMPDIR to another folder"
    assert not any(tmp_path.iterdir())


class _Failing(SimpleNamespace):
    """What stands for the allocator, and says why it made no file."""

    def begin(self, _limit: int, _folder: bytes) -> None: ...
    def end(self, _before: object) -> None: ...
    def private_memory(self) -> int:
        return 0

    def is_in_memory(self, _folder: bytes) -> bool:
        return bool(self.in_memory)

    def most_spilled(self) -> int:
        return 700 * MB

    def failure(self) -> tuple[int, int]:
        return self.number, 300 * MB


def test_a_full_disk_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/somewhere")
    monkeypatch.setattr(memory_limit, "_spill", _Failing(number=ENOSPC, in_memory=False))
    full = "/somewhere is full: 1,000MB of what exceeds"
    with pytest.raises(MemoryLimitError, match=full), limited(10**15):
        raise MemoryError
    monkeypatch.setattr(memory_limit, "_spill", _Failing(number=EACCES, in_memory=False))
    denied = "no file of 300MB can be made in /somewhere: Perm"
    with pytest.raises(MemoryLimitError, match=denied), limited(10**15):
        raise MemoryError


def test_files_in_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/somewhere")
    monkeypatch.setattr(memory_limit, "_spill", _Failing(number=0, in_memory=True))
    with pytest.raises(UsageError, match="/somewhere lies in memory"), limited(10**15):
        pass


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise FileNotFoundError(ENOENT, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.gettempdir", fail)
    with pytest.raises(UsageError, match="No usable temporary directory"), limited(10**15):
        pass


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is none here")
def test_a_folder_in_memory_is_known(tmp_path: Path) -> None:
    assert spill.is_in_memory(b"/dev/shm")
    assert not spill.is_in_memory(os.fsencode(ROOT))


@pytest.mark.parametrize("option", [("--workers", "2"), ("--scheduler", "tcp://127.0.0.1:9")])
def test_several_processes_have_no_common_limit(option: tuple[str, str], command: Command) -> None:
    done = command("analyze", FIXTURE, "--max-memory", "1GB", *option)
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines()[0] == (
        "traceview: error: --max-memory holds the memory of one process"
    )


def test_without_compiled_modules(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "_spill", None)
    done = command("analyze", FIXTURE, "--max-memory", "1GB")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "traceview: error: --max-memory needs Linux and the compiled modules"
    )
    assert command("analyze", FIXTURE).code == 0

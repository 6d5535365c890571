"""Checks what `capture --check` reads from the machine, with stand-ins for what is not installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from traceview.capture.check.gpu_inventory import (
    Gpu,
    GpuProcess,
    read_proc,
    read_smi,
    visible_gpus,
)
from traceview.capture.check.libraries import in_toolkits, load_library, packaged
from traceview.capture.check.tensorflow_facts import import_tensorflow, read_installed


def test_smi() -> None:
    def run(command: Sequence[str]) -> str:
        if "query-gpu" in command[1]:
            return (
                "0, GPU-a, Tesla T4, 15360, 360, 570.1\n1, GPU-b, Tesla T4, [N/A], [N/A], 570.1\n"
            )
        return "GPU-b, 77, 1024\n"

    inventory = read_smi(run)
    assert inventory.gpus == (
        Gpu(0, "GPU-a", "Tesla T4", 15360 << 20, 360 << 20),
        Gpu(1, "GPU-b", "Tesla T4", None, None, (GpuProcess(77, 1 << 30),)),
    )


@pytest.mark.parametrize("answer", ["nonsense\n", "x, y, z, 1, 2, 3\n"])
def test_smi_that_says_something_else(answer: str) -> None:
    assert read_smi(lambda _: answer).notes[0].startswith("nvidia-smi: ")


def test_smi_that_fails() -> None:
    def run(_: Sequence[str]) -> str:
        raise OSError("NVIDIA-SMI has failed")

    assert read_smi(run).notes == ("nvidia-smi: NVIDIA-SMI has failed",)


def driver_folder(proc: Path, *models: str) -> Path:
    folder = proc / "driver" / "nvidia"
    (folder / "gpus").mkdir(parents=True)
    (folder / "version").write_text("NVRM version: 570.1\n", encoding="utf-8")
    for index, model in enumerate(models):
        (folder / "gpus" / f"0000:0{index}:00.0").mkdir()
        information = f"Model: \t {model}\nGPU UUID: \t GPU-{index}\n"
        (folder / "gpus" / f"0000:0{index}:00.0" / "information").write_text(information, "utf-8")
    return proc


def test_proc(tmp_path: Path) -> None:
    assert read_proc(tmp_path).gpus == ()
    inventory = read_proc(driver_folder(tmp_path, "NVIDIA L4", "NVIDIA L4"))
    assert inventory.gpus == (Gpu(0, "GPU-0", "NVIDIA L4"), Gpu(1, "GPU-1", "NVIDIA L4"))


def test_a_driver_that_shows_no_gpu_is_a_problem(tmp_path: Path) -> None:
    assert read_proc(driver_folder(tmp_path)).problem == "the driver is loaded but shows no GPU"


GPUS = tuple(Gpu(index, f"GPU-{'abcd'[index]}0-1", "A100") for index in range(4))


@pytest.mark.parametrize(
    ("variable", "seen", "unknown", "repeated"),
    [
        (None, [0, 1, 2, 3], None, None),
        ("", [], None, None),
        ("-1", [], None, None),
        ("2,0", [2, 0], None, None),
        ("1, 3", [1, 3], None, None),
        ("0,-1,1", [0], None, None),
        ("0,9,1", [0], "9", None),
        ("0,x", [0], "x", None),
        ("1,1", [1], None, "1"),
        ("GPU-b0,GPU-D", [1, 3], None, None),
        ("GPU-", [], "GPU-", None),
        ("١", [], "١", None),
        ("9" * 5000, [], "9" * 5000, None),
    ],
)
def test_visible(
    variable: str | None, seen: list[int], unknown: str | None, repeated: str | None
) -> None:
    visible = visible_gpus(GPUS, variable)
    assert [gpu.index for gpu in visible.gpus] == seen
    assert (visible.unknown, visible.repeated) == (unknown, repeated)


def test_slices_count() -> None:
    assert visible_gpus(GPUS, "MIG-a,MIG-b").count == 2


# What runs in a process of its own


def answering(code: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code)


def test_tensorflow_answers() -> None:
    answer = (
        '{"version": "2.21.0", "is_cuda_build": true, "build": {"cuda_version": "12.5"},'
        ' "gpus": ["/physical_device:GPU:0"]}'
    )
    log = "2026 gpu_device.cc:1] Cannot dlopen some GPU libraries. \\x1b[31m"
    code = f"import sys; print('hello\\ntraceview-tensorflow:' + {answer!r}); print('{log}', file=sys.stderr)"
    imported = import_tensorflow(os.environ, program=answering(code))
    assert (imported.version, imported.cuda, imported.is_cuda_build) == ("2.21.0", "12.5", True)
    assert imported.gpus == ("/physical_device:GPU:0",)
    assert imported.log == ("Cannot dlopen some GPU libraries. \x1b[31m",)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("raise ImportError('libfoo.so')", "ImportError: libfoo.so"),
        ("raise SystemExit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9"),
        ("print('traceview-tensorflow:[]')", "invalid"),
        ("import time; time.sleep(9)", "longer than"),
    ],
)
def test_tensorflow_does_not_answer(code: str, error: str) -> None:
    timeout = 0.3 if "sleep" in code else 20.0
    imported = import_tensorflow(os.environ, program=answering(code), timeout_seconds=timeout)
    assert error in imported.error
    assert imported.version == ""


def test_tensorflow_by_its_metadata(tmp_path: Path) -> None:
    assert read_installed([str(tmp_path)]).version == ""
    for name in ("tensorflow_cpu", "keras"):
        folder = tmp_path / f"{name}-2.20.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 2.20.0\n", "utf-8"
        )
    info = tmp_path / "tensorflow" / "python" / "platform"
    info.mkdir(parents=True)
    (info / "build_info.py").write_text(
        "import collections\nbuild_info = collections.OrderedDict([('is_cuda_build', False)])\n",
        "utf-8",
    )
    installed = read_installed([str(tmp_path)])
    assert installed.packages == (("tensorflow-cpu", "2.20.0"),)
    assert installed.is_cpu_package
    assert installed.build == {"is_cuda_build": False}


def test_a_library_that_is_not_there() -> None:
    library = load_library(["libtraceview-absent.so"], "version", os.environ)
    assert library.path == ""
    assert "libtraceview-absent.so" in library.error


def test_a_file_that_is_no_library_is_what_is_said(tmp_path: Path) -> None:
    path = tmp_path / "libcupti.so.12"
    path.write_bytes(b"no library")
    library = load_library([str(path), "libtraceview-absent.so"], "version", os.environ)
    assert str(path) in library.error


def test_where_libraries_are_looked_for(tmp_path: Path) -> None:
    wheel = tmp_path / "nvidia" / "cuda_cupti" / "lib" / "libcupti.so.12"
    toolkit = (
        tmp_path / "usr" / "local" / "cuda-12.5" / "extras" / "CUPTI" / "lib64" / "libcupti.so.12"
    )
    for path in (wheel, toolkit):
        path.parent.mkdir(parents=True)
        path.touch()
    assert packaged([tmp_path], 12) == [str(wheel)]
    assert in_toolkits(tmp_path, {}, "libcupti.so.12") == [str(toolkit)]


@pytest.mark.tensorflow
def test_the_real_tensorflow() -> None:
    imported = import_tensorflow(os.environ)
    assert imported.error == ""
    assert imported.version == read_installed().version

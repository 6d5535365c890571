"""Checks what `capture --check` reports, with a stand-in for nvidia-smi and processes that answer for a framework."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.xspace import XSpace
from tests.command import Command
from traceview.capture.check import checks
from traceview.capture.check.checks import (
    Check,
    Trial,
    check_framework,
    check_gpus,
    check_output,
    check_parts,
    check_profile,
    chosen,
    try_profile,
)
from traceview.cli.commands.capture import check_section
from traceview.document.terminal import render_section

FOUR = "".join(f"GPU {n}: NVIDIA H200 (UUID: GPU-{n})\\n" for n in range(4))
SEES_ALL = Trial("2.21.0", 4, 4, has_events=True)
SEES_TWO = Trial("2.21.0", 2, 2, has_events=True, reason="Cannot dlopen some GPU libraries")
SEES_NONE = Trial("2.21.0", has_events=True)


@pytest.mark.parametrize(
    ("listing", "trial", "visible", "status", "part"),
    [
        (f"printf '{FOUR}'", SEES_ALL, None, "ok", "4 of 4"),
        (f"printf '{FOUR}'", Trial(), None, "ok", "4 by nvidia-smi"),
        (f"printf '{FOUR}'", SEES_TWO, None, "failed", "2 of 4 GPUs: Cannot dlopen"),
        (f"printf '{FOUR}'", SEES_TWO, "0,2", "warning", "=0,2: "),
        (None, SEES_NONE, None, "warning", "not installed"),
        (None, SEES_TWO, None, "ok", "2 of 2"),
        ("echo driver/library version mismatch; exit 1", SEES_NONE, None, "failed", "mismatch"),
    ],
)
def test_gpus(
    listing: str | None,
    trial: Trial,
    visible: str | None,
    status: str,
    part: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if listing:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{listing}\n", encoding="utf-8")
        (tmp_path / "nvidia-smi").chmod(0o755)
    found = check_gpus("tensorflow", trial)
    assert (found.status, part in found.detail) == (status, True), found


@pytest.mark.parametrize(
    ("framework", "installed", "trial", "status"),
    [
        ("tensorflow", {"tensorflow": "2.21.0"}, SEES_ALL, "ok"),
        ("tensorflow", {"tensorflow": "2.21.0"}, Trial(reason="libfoo.so"), "failed"),
        ("tensorflow", {"tensorflow": "2.14.1"}, Trial("2.14.1"), "warning"),
        ("tensorflow", {"tensorflow": "2.20", "tensorflow-cpu": "2.20"}, SEES_ALL, "warning"),
        ("tensorflow", {}, Trial(), "failed"),
        ("jax", {"jax": "0.4.30", "jaxlib": "0.4.30"}, Trial("0.4.30"), "ok"),
        ("jax", {"jax": "0.12.0"}, Trial("0.12.0"), "warning"),
    ],
)
def test_a_framework(framework: str, installed: dict[str, str], trial: Trial, status: str) -> None:
    assert check_framework(framework, installed, trial).status == status


@pytest.mark.parametrize(
    ("trial", "status"),
    [
        (SEES_ALL, "ok"),
        (Trial("2.21.0", has_events=True), "ok"),
        (Trial("2.21.0", 4, 0, has_events=True), "failed"),
        (Trial("2.21.0", 4, 4), "failed"),
        (Trial(), "not applicable"),
    ],
)
def test_a_profile(trial: Trial, status: str) -> None:
    assert check_profile("tensorflow", trial).status == status


def test_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_output(tmp_path / "logs").status == "ok"
    assert not (tmp_path / "logs").exists()
    found = check_output(Path(os.devnull, "logs"))
    assert (found.status, "Not a directory" in found.detail) == ("failed", True)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=(1 << 30) - 1))
    assert check_output(tmp_path / "logs").status == "warning"


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        ("import jax.numpy as jnp", "jax"),
        ("import os\n    from flax import nnx", "jax"),
        ("import jax\nimport tensorflow as tf", "tensorflow"),
        ("import keras", "tensorflow"),
        ("# import jax", "tensorflow"),
    ],
)
def test_the_framework_of_a_script(
    text: str, framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "packages_distributions", lambda: {"tensorflow": []})
    assert chosen(text)[0] == framework


# What answers in a process of its own


def answering(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def test_a_trial_counts_the_gpus_of_the_trace(tmp_path: Path) -> None:
    space = XSpace()
    for name in ("/device:GPU:0", "/host:CPU"):
        plane = space.planes.add(name=name.encode())
        plane.lines.add(id=1).events.add(metadata_id=1)
    trace = tmp_path / "made.xplane.pb"
    trace.write_bytes(space.SerializeToString())
    code = (
        f"import shutil, sys; shutil.copy({str(trace)!r}, sys.argv[1])\n"
        "print('hello\\ntraceview-trial:[\"2.21.0\", 2]')\n"
        "print('2026 cupti_tracer.cc:1] CUPTI error: insufficient privileges', file=sys.stderr)"
    )
    assert try_profile("tensorflow", program=answering(code)) == Trial(
        "2.21.0", 2, 1, has_events=True, reason="CUPTI error: insufficient privileges"
    )


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise ImportError('libfoo.so')", "ImportError: libfoo.so"),
        ("raise SystemExit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9"),
        ("", "no answer"),
        ("import time; time.sleep(9)", "longer than"),
    ],
)
def test_a_trial_that_fails(code: str, reason: str) -> None:
    timeout_s = 0.3 if "sleep" in code else 20.0
    trial = try_profile("tensorflow", program=answering(code), timeout_s=timeout_s)
    assert (trial.version, reason in trial.reason) == ("", True), trial


@pytest.mark.tensorflow
@pytest.mark.parametrize("framework", ["tensorflow", "jax"])
def test_a_trial_with_the_real_framework(framework: str) -> None:
    pytest.importorskip(framework)
    trial = try_profile(framework)
    assert (trial.version != "", trial.has_events) == (True, True), trial


# What is shown

HOSTILE = Check("script", "failed", "a\x1b[31m\u202e[bold]b[/bold]\ud800", "c\x07\nd")


def test_the_table_of_hostile_text() -> None:
    results = [HOSTILE, Check("profiling-permission", "not applicable", "there is no GPU " * 9)]
    text = render_section(check_section(results), width=40, color=False)
    assert max(map(len, text.splitlines())) <= 40
    assert not {"\x1b", "\u202e", "\x07"} & set(text)
    assert "[bold]b[/bold]" in "".join(text.split())
    assert text.startswith("2 checks: 1 failed, 1 not applicable\n  - failed: script:")
    assert b"fix: c" in b" ".join(text.encode("utf-8").split())


def test_the_command(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checks, "_LIST_GPUS", ("printf", FOUR))
    monkeypatch.setattr(checks, "chosen", lambda _: ("tensorflow", {"tensorflow": "2.21.0"}))
    monkeypatch.setattr(checks, "try_profile", lambda *_: SEES_ALL)
    monkeypatch.setattr(checks, "find_spec", lambda _: True)
    done = command("capture", "--check")
    assert (done.code, done.out.splitlines()[0]) == (0, "5 checks: 5 ok  No problem found.")
    done = command("capture", "--check", "absent.py")
    assert (done.code, "absent.py: No such file" in " ".join(done.out.split())) == (8, True)


@pytest.mark.parametrize("missing", ["", "thread_clocks", "stacks", "native"])
def test_parts_that_were_not_compiled(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> object | None:
        return None if missing and name.endswith(missing) else object()

    monkeypatch.setattr(checks, "find_spec", found)
    check = check_parts()
    assert check.status == ("warning" if missing else "ok")
    assert ("C compiler" in check.fix) is bool(missing)

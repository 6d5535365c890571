"""What stands in the script's place is a Python script, a program, or a notebook."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from traceview.base.errors import UsageError
from traceview.capture.launch.command import command_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "torchrun", "python", "jupyter"):
        (programs / name).write_text("#!/bin/sh\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    return tmp_path


EMPTY_ZIP = b"PK\x05\x06" + bytes(18)


def write(path: Path, text: str | bytes, *, can_run: bool = False) -> None:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(0o755 if can_run else 0o644)


@pytest.mark.parametrize(
    ("name", "content", "can_run", "command"),
    [
        ("train.py", "import tensorflow", False, None),
        ("train.py", "#!/bin/bash\n", True, None),  # whatever it says, its name says Python
        ("train", "import tensorflow", False, None),
        ("torchrun", "#!/opt/venv/bin/python3.11 -u\n", True, ["{folder}/torchrun"]),
        ("train.sh", "python train.py", False, ["bash", "{folder}/train.sh"]),
        ("train.sh", "#!/bin/zsh -e\n", True, ["{folder}/train.sh"]),
        ("launch", "#!/usr/bin/perl\n", True, ["{folder}/launch"]),
        ("trainer", b"\x7fELF\x02\x01", True, ["{folder}/trainer"]),
        ("app.pyz", EMPTY_ZIP, False, None),
        ("app", EMPTY_ZIP, False, None),
    ],
)
def test_a_file_is_told_by_its_name_and_whether_it_can_run(
    folder: Path, name: str, content: str | bytes, can_run: bool, command: list[str] | None
) -> None:
    write(folder / name, content, can_run=can_run)
    expected = [c.replace("{folder}", str(folder)) for c in command or [sys.executable, name]]
    assert command_of(name, []) == expected
    assert command_of(name, ["--epochs", "3"]) == [*expected, "--epochs", "3"]


def test_a_module_runs_as_python_runs_it(folder: Path) -> None:
    assert command_of("a.b", ["-x"], is_module=True) == [sys.executable, "-m", "a.b", "-x"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("nosuch", "to run a module: traceview capture -m nosuch"),
        ("nosuch.py", "give the path of a Python file"),
        ("--steps=3", "give the path of a Python file; put options of traceview capture before it"),
    ],
)
def test_what_is_not_there_is_an_error(folder: Path, name: str, hint: str) -> None:
    with pytest.raises(UsageError, match="script not found") as raised:
        command_of(name, [])
    assert str(raised.value.hint).startswith(hint)


def test_a_name_without_a_file_is_a_program(folder: Path) -> None:
    assert command_of("torchrun", ["--n", "2"]) == ["torchrun", "--n", "2"]
    assert command_of("python", ["train.py"]) == ["python", "train.py"]
    assert command_of(sys.executable, ["x.py"]) == [sys.executable, "x.py"]


def test_a_file_or_package_comes_before_a_program_of_its_name(folder: Path) -> None:
    (folder / "torchrun").mkdir()
    assert command_of("torchrun", []) == ["torchrun"]
    write(folder / "torchrun" / "__main__.py", "")
    assert command_of("torchrun", []) == [sys.executable, "torchrun"]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_notebook_is_sent_to_what_runs_it(folder: Path, is_there: bool) -> None:
    if is_there:
        write(folder / "train.ipynb", "{}")
    with pytest.raises(UsageError, match=r"^train\.ipynb is a notebook$") as raised:
        command_of("train.ipynb", [])
    assert "traceview capture -- jupyter execute train.ipynb" in str(raised.value.hint)
    assert "%%traceview" in str(raised.value.hint)

"""A shell reads back what commands are made of, and runs nothing in it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.command import Command
from traceview.base.text import shell_command, shell_path, shell_word

NAMES = (
    "run",
    "a b",
    'it\'s "x"',
    "$(touch HIT)",
    "`touch HIT`; touch HIT & #",
    "new\nline",
    "-dash",
    "--run",
    "clear\x1b[2J",
    "back\\slash'\n",
    "über",
    "\u202ereversed",
    "\udce9 of another encoding",
    "*?[a]{b,c}~!",
)


def read_back(command: str, folder: Path) -> list[str]:
    """The words that bash makes of a command of traceview."""
    script = f"traceview() {{ printf '%s\\0' \"$@\"; }}\n{command}"
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, check=True)
    assert done.stderr == b""
    assert not (folder / "HIT").exists()
    return done.stdout.decode(errors="surrogateescape").split("\0")[:-1]


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_reads_back_the_same_words(name: str, tmp_path: Path) -> None:
    assert read_back(f"traceview --run {shell_word(name)}", tmp_path) == ["--run", name]
    assert shell_word(name).isprintable()
    path = f"./{name}" if name.startswith("-") else name
    assert read_back(f"traceview analyze {shell_path(name)}", tmp_path) == ["analyze", path]
    words = ("traceview", "analyze", name, "--run", name)
    assert read_back(shell_command(words), tmp_path) == ["analyze", path, "--run", name]


@pytest.mark.parametrize("name", NAMES[1::3])
@pytest.mark.usefixtures("no_terminal")
def test_the_commands_of_a_report_reach_the_same_run(
    name: str, command: Command, fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where log directory and run have a hostile name, and the page is narrow."""
    monkeypatch.chdir(tmp_path)
    (source,) = (fixtures / "slow-input-2").rglob("*.xplane.pb")
    logs = Path(name)
    for run in (name, "2026_01_01_00_00_00"):
        folder = logs / "plugins" / "profile" / run
        folder.mkdir(parents=True)
        shutil.copy(source, folder / "host.xplane.pb")
    said = command("analyze", f"./{name}", "--run", name, "--width", "60").out.splitlines()
    printed = [line[line.index("traceview") :] for line in said if "traceview " in line]
    assert len(printed) == 2
    for line in printed:
        _, *words = words_of = read_back(line, tmp_path)
        again = command(*words_of)
        assert (again.code, again.err) == (0, "")
        assert words[words.index("--run") + 1] == name

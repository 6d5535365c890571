"""Does the bootstrap get as far as its own message on a Python that is too old, and does its demo always show something?"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts import dev

DEV = Path(__file__).parent.parent / "scripts" / "dev.py"


def test_it_parses_on_an_old_python() -> None:
    tree = ast.parse(DEV.read_text(encoding="utf-8"), feature_version=(3, 7))
    # The first thing done after imports that an old Python has as well.
    guard = next(
        node for node in tree.body[1:] if not isinstance(node, (ast.Import, ast.ImportFrom))
    )
    assert isinstance(guard, ast.If)
    assert "sys.version_info < (3, 10)" in ast.unparse(guard.test)
    futures = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    assert futures == [], "an old Python does not parse `from __future__ import annotations`"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that dev.py starts, none of which is; every environment is ready."""
    commands: list[list[str]] = []

    def run(command: Sequence[str | Path]) -> None:
        commands.append([Path(command[0]).parts[-3], *map(str, command[1:])])

    monkeypatch.setattr(dev, "run", run)
    monkeypatch.setattr(dev.Environment, "ready", lambda *_, **__: None)
    monkeypatch.setattr(dev, "NO_TENSORFLOW_FROM", (4, 0))
    return commands


def test_the_demo_is_a_capture(
    started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev.main(["demo", "--", "--slowdown", "input"]) == 0
    assert started == [[".venv-tensorflow", "capture", "--demo", "--slowdown", "input"]]
    program = dev.WITH_TENSORFLOW.program("traceview")
    assert f"a script of your own: {program} capture --analyze" in capsys.readouterr().err

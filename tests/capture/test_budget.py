"""A window is judged when it is saved: nothing of the analysis is imported before, and nothing ends the training unasked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from traceview.base.errors import BudgetError, UsageError
from traceview.capture.budget import Budget, WindowBudget


def trace_of(folder: Path) -> Path:
    (path,) = folder.rglob("*.xplane.pb")
    return path


@pytest.fixture
def slow(fixtures: Path) -> Path:
    """A window of 65.4 ms steps that wait for input."""
    return trace_of(fixtures / "slow-input-2")


def said(budget: Budget, trace: Path, over_budget: str = "warn") -> list[str]:
    lines: list[str] = []
    WindowBudget(budget, over_budget, lines.append).judge(trace)
    return lines


def test_a_window_that_meets_its_budget_is_not_worth_a_word(slow: Path) -> None:
    assert said(["step_time_ms <= 66", "finding:unused-gpu absent"], slow) == []
    assert said(["step_time_ms <= 66"], slow, "raise") == []


def test_a_window_over_its_budget_is_said(slow: Path) -> None:
    (line,) = said(["step_time_ms <= 65", "state.input_ratio <= 5%"], slow)
    assert line == (
        "Gate failed: 2 of 2 conditions fail. step_time_ms <= 65 (65.4 ms, allowed <= 65.0 ms) and "
        "state.input_ratio <= 5% (replica:0: 63.0%, allowed <= 5.0%; replica:1: 63.0%, allowed <= 5.0%)"
    )


def test_or_ends_the_training_if_that_was_asked_for(slow: Path) -> None:
    with pytest.raises(BudgetError, match="Gate failed: the condition fails") as caught:
        said(["step_time_ms <= 65"], slow, "raise")
    assert caught.value.exit_code == 10
    assert str(slow.parent) in str(caught.value.hint)


def test_a_file_with_a_baseline(
    slow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "budget.toml"
    path.write_text(f'baseline = "{slow}"\nrequire = ["step_time:+5%"]\n')
    assert said("budget.toml", slow) == []
    assert said(path, slow) == []
    path.write_text('require = ["step_time_ms <= 1"]\n')
    assert len(said(path, slow)) == 1


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["step_tme <= 1"], "the window was not judged: condition 'step_tme <= 1': no key"),
        (
            ["step_time:+5%"],
            "the window was not judged: condition 'step_time:+5%' needs a baseline",
        ),
        (
            ["memory_peak_gb < 1"],
            "Gate not judged: the condition cannot be judged",
        ),
    ],
)
def test_what_prevents_a_judgement_ends_no_training(
    texts: list[str], message: str, slow: Path
) -> None:
    (line,) = said(texts, slow, "raise")
    assert line.startswith(message)


def test_a_trace_that_cannot_be_read_ends_no_training(
    tmp_path: Path, slow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / "host.xplane.pb"
    damaged.write_bytes(b"\xff" * 64)
    (line,) = said(["step_time_ms <= 1"], damaged, "raise")
    assert line.startswith(f"the window was not judged: {damaged}: ")

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("traceview.comparison.gate.verdict", broken)
    assert said(["step_time_ms <= 1"], slow, "raise") == [
        "the window was not judged: ZeroDivisionError('a bug')"
    ]


def test_wrong_arguments_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file") as caught:
        WindowBudget(tmp_path / "nowhere.toml", "warn", print)
    assert "budget=['step_time_ms <= 120']" in str(caught.value.hint)
    with pytest.raises(UsageError, match="over_budget must be 'warn' or 'raise', not 'stop'"):
        WindowBudget(["step_time_ms <= 1"], "stop", print)


START = """
import sys, types
import traceview
keras = types.ModuleType("keras")
keras.callbacks = types.SimpleNamespace(Callback=object)
callback = traceview.keras_callback("logs", range(10, 15), budget=["step_time_ms <= 1"], keras=keras)
print(sorted(name for name in sys.modules if name.startswith("traceview.")))
"""


def test_a_callback_with_a_budget_imports_no_analysis(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{START}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "traceview.capture.budget" in done.stdout
    for package in ("analysis", "comparison", "document", "gate", "report", "trace"):
        assert f"'traceview.{package}" not in done.stdout

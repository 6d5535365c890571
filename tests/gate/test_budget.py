"""A budget is a TOML file of two keys; whatever else is in it is refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.reports import full_report
from traceview.base.errors import TraceFormatError, TraceNotFoundError, UsageError
from traceview.comparison.gate import asked_conditions, baseline_of, budget_in
from traceview.comparison.history import FILES, file_content
from traceview.report.saved import load_report, to_json


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "budget.toml"


def test_a_budget(file: Path) -> None:
    file.write_text('baseline = "main"\nrequire = ["step_time:+5%", "finding:warning absent"]\n')
    budget = budget_in(file)
    assert budget.require == ("step_time:+5%", "finding:warning absent")
    assert budget.baseline == "main"


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ('requires = ["x"]', "unknown field `requires`", "require ="),
        ('require = "step_time_ms <= 1"', "Expected `array`", "require ="),
        ("require = [1]", "Expected `str`", ""),
        ("baseline = 1", "Expected `str", ""),
    ],
)
def test_what_is_no_budget(file: Path, text: str, problem: str, hint: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        budget_in(file)
    assert caught.value.message.startswith(f"{file}: ")
    assert problem in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("content", [b"require = [", b"\xff\xfe", b"= 3"])
def test_what_is_no_toml(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(TraceFormatError, match="not TOML"):
        budget_in(file)
    with pytest.raises(TraceNotFoundError, match="no such file"):
        budget_in(file.with_name("other.toml"))
    with pytest.raises(TraceNotFoundError, match="directory"):
        budget_in(file.parent)


def test_what_is_asked_for(file: Path) -> None:
    file.write_text('require = ["finding:warning absent"]\nbaseline = "main"\n')

    def asked(*arguments: Any) -> tuple[list[str], str | None]:
        conditions, baseline = asked_conditions(*arguments)
        return [condition.text for condition in conditions], baseline

    own = ["finding:warning absent", "busy_ratio >= 0.5", "step_time:+5%"]
    assert asked(["busy_ratio >= 0.5"], file, "other") == (own, "other")
    assert asked(["busy_ratio:-5%"], None, "main") == (["busy_ratio:-5%"], "main")
    assert asked([], file, None)[1] == "main"
    assert asked([], None, "main") == (["step_time:+5%"], "main")
    file.write_text('require = ["step_tme <= 1"]')
    with pytest.raises(UsageError, match="no key is called step_tme"):
        asked_conditions([], file, None)
    with pytest.raises(UsageError, match="there is no condition"):
        asked_conditions([], None, None)
    with pytest.raises(UsageError, match="'step_time:\\+3%' needs a baseline"):
        asked_conditions(["step_time:+3%"], None, None)


def test_a_baseline_by_name_or_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".traceview" / "baselines" / "main"
    folder.mkdir(parents=True)
    report = full_report()
    for name in FILES[:2]:
        (folder / name).write_bytes(file_content(report))
    Path("whole.json").write_text(to_json(report), encoding="utf-8")
    named = baseline_of("main", None).reports
    assert named == (load_report(folder / FILES[0]),) * 2
    assert named[0].results.steps == report.results.steps
    assert baseline_of("whole.json", None).reports == (report,)
    assert baseline_of("./whole.json", None).reports == (report,)
    with pytest.raises(TraceNotFoundError) as caught:
        baseline_of("mian", None)
    assert caught.value.hint == "did you mean main?"
    with pytest.raises(TraceNotFoundError, match="no baseline is called main in elsewhere"):
        baseline_of("main", Path("elsewhere"))

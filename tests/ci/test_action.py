"""The GitHub Action: its steps are run with a stand-in for GitHub's environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ci.action import Runner

HOLDS = "step_time_ms <= 66\nfinding:unused-gpu absent\n"
FAILS = "step_time_ms <= 60\n\nstate.input_ratio <= 5%"
STUB = "#!/bin/sh\nmkdir -p traceview-report; echo of a stand-in > traceview-report/gate.md\n"
"""A gate that passes, for what is not about its verdict."""


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def test_the_comment_is_renewed_and_others_stay(runner: Runner, slow: str) -> None:
    others = [
        {"id": 1, "user": "User", "body": "<!-- traceview gate -->\nquoted by a person"},
        {"id": 2, "user": "Bot", "body": "<!-- traceview nightly -->\nof another gate"},
        {"id": 3, "user": "Bot", "body": "see <!-- traceview gate -->"},
    ]
    runner.comments.write_text(json.dumps(others))
    failed = runner.run(logdir=slow, require=FAILS)
    assert (failed.code, failed.outputs["gate"]) == (10, {"exit-code": "10"})
    assert failed.printed["Gate"].count("::error title=traceview gate") == 2
    assert failed.uploaded == ["traceview-report"]
    assert "secret" not in "".join(failed.printed.values())
    first = runner.comment_bodies()
    assert first[:3] == [row["body"] for row in others]
    assert "| FAIL | `step_time_ms <= 60` |" in first[3]
    passed = runner.run(logdir=slow, require=HOLDS)
    assert (passed.code, passed.outputs["gate"]) == (0, {"exit-code": "0"}), passed.printed
    assert (
        "::notice title=traceview gate::Gate passed: all 2 conditions hold."
        in (passed.printed["Gate"])
    )
    assert "python -m pip install --quiet" in passed.printed["Install traceview"]
    assert "Capture" not in passed.printed
    assert passed.summary.count("## Gate passed") == 1
    written = {path.name for path in (runner.folder / "traceview-report").iterdir()}
    assert {"report.html", "report.json", "gate.md", "gate.xml"} <= written
    second = runner.comment_bodies()
    assert (len(second), second[:3]) == (4, first[:3])
    assert second[3].startswith("<!-- traceview gate -->\n## Gate passed: all 2 conditions hold.")
    assert "(https://github.example/owner/project/actions/runs/42)" in second[3]
    runner.program("traceview", STUB)
    runner.run(logdir=slow, require=HOLDS, comment_key="nightly")
    assert "of a stand-in" in runner.comment_bodies()[1]


def test_a_budget_a_baseline_and_what_cannot_be_judged(runner: Runner, slow: str) -> None:
    (runner.folder / "my budget.toml").write_text('require = ["step_time:+5%"]\n')
    outcome = runner.run(
        logdir=slow, budget="my budget.toml", baseline=slow, require="memory_peak_gb <= 300"
    )
    assert (outcome.code, outcome.outputs["gate"]["exit-code"]) == (7, "7")
    (comment,) = runner.comment_bodies()
    assert "Gate not judged: 1 of 2 conditions" in comment
    assert "| ok | `step_time:+5%` |" in comment


def test_wrong_usage_ends_the_action_at_once(runner: Runner, slow: str) -> None:
    outcome = runner.run(logdir=slow, require="step_tme <= 3")
    assert outcome.code == 2
    assert "no key is called step_tme" in outcome.printed["Gate"]
    assert "Verdict" not in outcome.printed
    assert runner.comment_bodies() == []
    assert runner.run(logdir="nowhere", require=HOLDS).code == 3


def test_a_token_that_may_not_comment_does_not_change_the_verdict(
    runner: Runner, slow: str
) -> None:
    runner.program("traceview", STUB)
    runner.pull_request = ""
    assert runner.run(logdir=slow, require=HOLDS).code == 0
    assert not runner.log.exists(), "there is no pull request to comment on"
    runner.pull_request = "7"
    runner.environment["GH_FAILS"] = "1"
    outcome = runner.run(logdir=slow, require=HOLDS)
    assert outcome.code == 0
    said = outcome.printed["Comment on the pull request"]
    assert "::warning title=traceview gate::the comment was not written" in said


def test_inputs_are_never_part_of_a_script(runner: Runner, slow: str) -> None:
    hostile = '$(touch pwned) `touch pwned` "; touch pwned; #'
    runner.program("traceview", STUB)
    for name in ("require", "budget", "baseline", "capture"):
        runner.run(logdir=slow, **({"require": HOLDS} | {name: hostile}))
    for name, text in (("comment_key", 'x" | halt; "'), ("captures", "x[$(touch pwned)]")):
        assert runner.run(logdir=slow, **{"require": HOLDS, name: text}).code == 2
    assert not [*runner.folder.rglob("pwned")]


def test_several_captures_are_judged_together(runner: Runner, slow: str) -> None:
    runner.program("traceview", '#!/bin/sh\necho "[$1] [$2] [$3]"; exit 0\n')
    outcome = runner.run(capture="train.py", captures="3", logdir="logs", baseline="main")
    made = [f"[capture] [--output] [logs{end}]" for end in ("", "-2", "-3")]
    assert outcome.printed["Capture"].splitlines() == made
    assert outcome.printed["Gate"].startswith("[gate] [traceview-report/report.json] [logs-2]")


def test_captures_get_all_lines_and_quoted_arguments_whole(runner: Runner, slow: str) -> None:
    runner.program("traceview", '#!/bin/sh\nprintf "[%s]" "$@"; exit 5\n')
    capture = "--steps 10:20\ntrain.py --name 'my run' \"two words\""
    outcome = runner.run(capture=capture, logdir="logs", require=HOLDS)
    expected = "[capture][--output][logs][--steps][10:20][train.py][--name][my run][two words]"
    assert (outcome.code, outcome.printed["Capture"]) == (5, expected)

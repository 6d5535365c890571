"""Tests that a trace of JAX gets the advice for JAX, and a trace of TensorFlow its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceview
from scripts.cuda_trace import MS, PROFILE_START_NS, CudaTrace
from scripts.scenarios.model import marked_steps, new_trace
from tests.analysis.made import analyzed, the
from tests.sidecars import write_sidecar
from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import Finding
from traceview.report.redaction import redacted
from traceview.report.saved import to_json

CODE = "no-step-marker"


@pytest.mark.parametrize(
    ("call", "is_jax"),
    [("PjitFunction(train_step)", True), ("FunctionRun", False), ("a PjitFunction(x)", False)],
)
def test_the_calls_of_the_host_choose_the_advice(call: str, is_jax: bool, tmp_path: Path) -> None:
    trace = CudaTrace()
    trace.host_event(call, 0, MS)
    trace.kernel(0, MS, 2 * MS, launch_ps=MS // 2)
    finding = the(analyzed(tmp_path, trace), CODE)
    rule = RULES[CODE]
    _, of_jax = rule.advised("jax")
    assert finding.advice == (of_jax if is_jax else rule.advice).replace("`", "")


def test_advice_for_jax_names_nothing_of_tensorflow() -> None:
    of_jax = [rule for rule in RULES.values() if "jax" in rule.actions]
    advised = [text for rule in of_jax for text in rule.advised("jax") if text]
    assert advised
    assert [text for text in advised if "tf." in text or "traceview capture" in text] == []


MAIN: dict[str, Any] = {"ident": 140_000, "name": "MainThread", "native_id": 1}


def compiled_again(
    folder: Path, *functions: tuple[str, list[dict[str, Any]]], **groups: Any
) -> Finding:
    """What is said of four steps, of which the last two compile for 20 of 100 ms; by the sidecar these functions."""
    trace = new_trace(length_ms=1000)
    for number, step in enumerate(marked_steps(trace, period_ms=100, marker_ms=100)):
        length_ms = 20 if number > 1 else 1
        step.host("PjitFunction(update)", 0, length_ms)
        if number > 1:
            step.host("backend_compile_and_load", 1, length_ms)
        step.kernel(0, length_ms, 100, launch_ms=length_ms)
    recorded = [{"name": name, "compilations": calls} for name, calls in functions]
    write_sidecar(trace.write(folder), {"jax": {"functions": recorded}, **groups})
    codes = ("retracing", "compile-in-window")
    (finding,) = (row for row in traceview.analyze(folder).findings if row.code in codes)
    return finding


def again(step: int, *changes: tuple[str, Any, Any], is_new: bool = False) -> dict[str, Any]:
    """A compilation; an argument as text is an array of this type."""
    known = [
        {
            "name": name,
            **{key: {"type": each} if isinstance(each, str) else each for key, each in pair},
        }
        for name, *values in changes
        for pair in [zip(("old", "new"), values, strict=True)]
    ]
    t_ns = PROFILE_START_NS + step * 100_000_000 + 10_000_000
    return {"t_ns": t_ns, "is_new_function": is_new, "changes": known}


FOUR = {"devices": 4, "type": "float32[8,2]"}
A, B = "float32[96,128]", "float32[64,128]"


@pytest.mark.parametrize(
    ("old", "new", "words", "action"),
    [
        (A, B, f"{A} -> {B}", "Give batch one shape"),
        (A, "bfloat16[96,128]", f"{A} -> bfloat16[96,128]", "Give batch one dtype"),
        ("~float32[]", "float32[]", "~float32[] -> float32[]", "Give batch one dtype"),
        (None, A, f"absent -> {A}", "Give each call the same arguments"),
        *(
            ({"static": "int"}, {"static": new}, f"static int -> static {new}", "Pass batch as an array")
            for new in ("int", "str")
        ),
        (
            *({"static": "object"}, {"static": "object"}),
            "static object -> static object",
            "Give each call the same arguments",
        ),
        (FOUR, {**FOUR, "devices": 1}, "float32[8,2] placed differently", "Give batch one sharding"),
    ],
)  # fmt: skip
def test_the_argument_that_has_changed_is_named(
    old: Any, new: Any, words: str, action: str, tmp_path: Path
) -> None:
    finding = compiled_again(tmp_path, ("update", [again(2, ("batch", old, new))]))
    assert finding.title.startswith("update compiled again 1 time as batch changes: GPU:0 waits ")
    changed = finding.evidence[0]
    assert (changed.where, changed.value, changed.detail) == ("batch", words, "step 2")
    assert finding.action.startswith(action)


def test_what_has_changed_most_often_leads(tmp_path: Path) -> None:
    calls = [
        again(2, ("batch", A, B), ("labels", A, B)),
        again(3, ("rate", "int32[]", "float32[]")),
    ]
    finding = compiled_again(tmp_path, ("update", calls), ("loss", [again(3, ("batch", A, B))]))
    assert finding.title.startswith(
        "update and loss compiled again 3 times as batch and labels change: "
    )
    where = [each.where for each in finding.evidence if each.metric == "changed_argument"]
    assert where == ["batch", "labels", "rate"]


def test_a_function_that_is_made_in_the_loop(tmp_path: Path) -> None:
    calls = [again(number, ("batch", A, B), is_new=True) for number in (2, 3)]
    finding = compiled_again(tmp_path, ("update", calls))
    assert finding.title.startswith("update made and compiled anew 2 times: GPU:0 waits ")
    assert finding.action.startswith("Make the function and its jax.jit once")


def test_where_no_argument_has_changed_a_field_of_one_may_have(tmp_path: Path) -> None:
    finding = compiled_again(tmp_path, ("update", [again(3)]))
    assert finding.title.startswith("update traced 1 time after the first step: GPU:0 waits ")
    assert finding.action.startswith("Leave fields that change out of the static ones")
    assert "may have changed, or a setting of JAX" in finding.explanation


def test_what_was_compiled_beside_the_used_steps_explains_nothing(tmp_path: Path) -> None:
    finding = compiled_again(tmp_path, ("update", [again(9, ("batch", A, B))]))
    assert finding.code == "compile-in-window"


@pytest.mark.parametrize("field", ["type", "static", ""])
def test_a_sidecar_smuggles_no_text_into_a_report(field: str, tmp_path: Path) -> None:
    """The words of a change are ours, so redaction leaves them; a sidecar with other words is not read."""
    old = {"type": B} | ({field: "secret[1]"} if field else {})
    compiled_again(tmp_path, ("secret", [again(2, ("secret", old, A))]))
    report = traceview.analyze(tmp_path)
    assert "secret" not in to_json(redacted(report))
    assert ("secret" in to_json(report)) is not bool(field)

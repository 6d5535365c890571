"""A finding that is a consequence of another stands inside that one, and none gets lost."""

from __future__ import annotations

from msgspec.structs import replace

from traceview.analysis.rules.consequences import with_explained_inside
from traceview.analysis.rules.finding import Evidence, Finding
from traceview.analysis.rules.rule import Rule


def rule(code: str, *explains: str) -> Rule:
    return Rule(
        code=code,
        title=f"A title of {code}",
        meaning="A meaning.",
        action="An action.",
        starts_at="always",
        example="A title",
        severity="warning",
        explains=explains,
    )


RULES = {
    each.code: each
    for each in (
        rule("marginal-gpu", "straggler-gpu"),
        rule("input-bound", "straggler-gpu", "late-by-turns"),
        rule("straggler-gpu", "late-by-turns"),
        rule("late-by-turns"),
    )
}


def finding(code: str, *devices: str) -> Finding:
    return RULES[code].finding(evidence=(Evidence("value", 1, 0, "here"),), devices=devices)


def explained_by(findings: list[Finding]) -> dict[str, list[object]]:
    """By code of each remaining finding the codes of those inside it."""
    return {
        each.code: [item.value for item in each.evidence if item.metric == "explains"]
        for each in with_explained_inside(findings, RULES)
    }


def test_a_consequence_stands_in_the_evidence_of_its_cause() -> None:
    cause, consequence = finding("straggler-gpu", "GPU:0"), finding("late-by-turns", "GPU:0")
    evidence = Evidence("explains", "late-by-turns", None, "", value_is="words")
    expected = replace(cause, evidence=(*cause.evidence, evidence))
    assert with_explained_inside([consequence, cause], RULES) == [expected]


def test_without_its_cause_a_finding_stays() -> None:
    findings = [finding("late-by-turns"), finding("marginal-gpu")]
    assert with_explained_inside(findings, RULES) == findings


def test_a_cause_explains_only_what_is_about_its_device() -> None:
    shard = finding("input-bound", "GPU:1")
    assert explained_by([shard, finding("straggler-gpu", "GPU:2")]) == {
        "input-bound": [],
        "straggler-gpu": [],
    }
    findings = [shard, finding("straggler-gpu", "GPU:1"), finding("late-by-turns")]
    assert explained_by(findings) == {"input-bound": ["straggler-gpu", "late-by-turns"]}


def test_a_chain_stands_inside_its_first_cause() -> None:
    chain = [finding("late-by-turns"), finding("straggler-gpu"), finding("marginal-gpu")]
    assert explained_by(chain) == {"marginal-gpu": ["late-by-turns", "straggler-gpu"]}

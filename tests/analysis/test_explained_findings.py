"""A finding that is a consequence of another stands inside that one, and none gets lost."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from traceview.analysis.base import Evidence, Finding, Rule
from traceview.analysis.explained_findings import with_explained_inside


def rule(code: str, *explains: str) -> Rule:
    return Rule(code, "always", "meaning", "evidence", "advice", "example", explains=explains)


RULES = {
    each.code: each
    for each in (
        rule("host-op-in-step", "straggler-gpu", "collective-wait"),
        rule("marginal-gpu", "straggler-gpu"),
        rule("replica-starved", "straggler-gpu", "collective-wait"),
        rule("straggler-gpu", "collective-wait"),
        rule("collective-wait"),
    )
}


def finding(code: str, *devices: str) -> Finding:
    evidence = (Evidence("value", 1, 0, "here"),)
    return RULES[code].finding(
        f"title of {code}", evidence, confidence=("high", "recorded"), devices=devices
    )


def explained_by(findings: list[Finding]) -> dict[str, list[str]]:
    """By code of each remaining finding the codes of those inside it."""
    return {
        each.code: [item.where for item in each.evidence if item.metric == "explains"]
        for each in with_explained_inside(findings, RULES)
    }


def test_a_consequence_stands_in_the_evidence_of_its_cause() -> None:
    cause, consequence = finding("straggler-gpu", "GPU:1"), finding("collective-wait", "GPU:0")
    evidence = Evidence("explains", "title of collective-wait", None, "collective-wait")
    expected = replace(cause, evidence=(*cause.evidence, evidence))
    assert with_explained_inside([consequence, cause], RULES) == [expected]


def test_without_its_cause_a_finding_stays() -> None:
    findings = [finding("collective-wait"), finding("marginal-gpu")]
    assert with_explained_inside(findings, RULES) == findings


def test_a_late_shard_explains_only_its_own_device() -> None:
    shard = finding("replica-starved", "GPU:1")
    assert explained_by([shard, finding("straggler-gpu", "GPU:2")]) == {
        "replica-starved": [],
        "straggler-gpu": [],
    }
    findings = [shard, finding("straggler-gpu", "GPU:1"), finding("collective-wait")]
    assert explained_by(findings) == {"replica-starved": ["straggler-gpu", "collective-wait"]}


def test_a_chain_stands_inside_its_first_cause() -> None:
    chain = [finding("collective-wait"), finding("straggler-gpu"), finding("marginal-gpu")]
    assert explained_by(chain) == {"marginal-gpu": ["collective-wait", "straggler-gpu"]}


@pytest.mark.parametrize(("ratio", "is_explained"), [(0.10, True), (0.09, False)])
def test_an_op_on_the_host_explains_waiting_if_it_costs_half_as_much(
    ratio: float, is_explained: bool
) -> None:
    wait = replace(finding("collective-wait", "GPU:0"), cost_ratio=0.20)
    findings = [replace(finding("host-op-in-step", "GPU:1"), cost_ratio=ratio), wait]
    assert ("collective-wait" in explained_by(findings)) != is_explained


def test_codes_without_a_rule_explain_nothing() -> None:
    findings = [finding("straggler-gpu"), finding("collective-wait")]
    assert with_explained_inside(findings, {}) == findings


def test_a_finding_that_costs_more_is_explained_in_part() -> None:
    cause, consequence = finding("straggler-gpu", "GPU:1"), finding("collective-wait", "GPU:0")
    for cost_ratio, metric in ((0.1, "explains"), (0.11, "explains_part")):
        costly = replace(consequence, cost_ratio=cost_ratio)
        (kept,) = with_explained_inside([replace(cause, cost_ratio=0.1), costly], RULES)
        assert kept.evidence[-1].metric == metric

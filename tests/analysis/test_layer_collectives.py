"""Collectives that layers make are told from the sum of the gradients, and cost what they take without compute."""

from __future__ import annotations

from pathlib import Path

import pytest

import traceview
from scripts.scenarios.collectives import all_reduce, layer_step
from scripts.scenarios.model import Step, marked_steps, ms, new_trace
from traceview.analysis.rules.finding import Finding
from traceview.analysis.rules.words import Number


def analyzed(folder: Path, *fillers: object, count: int = 4) -> dict[str, Finding]:
    """The findings on steps of 50 ms, each filled by a function that gets it and a number for its first collective."""
    trace = new_trace()
    for index, step in enumerate(marked_steps(trace, count=count)):
        for fill in fillers:
            assert callable(fill)
            fill(step, 100 * index)
    trace.write(folder)
    return {row.code: row for row in traceview.analyze(folder).findings}


def layers(length_ms: float = 1, layer: str = "batch_normalization") -> object:
    return lambda step, first: layer_step(step, first, length_ms=length_ms, layer=layer)


def test_the_layers_are_counted_and_their_time_is_no_other_finding(tmp_path: Path) -> None:
    found = analyzed(tmp_path, layers())
    finding = found["layer-collectives"]
    assert finding.title == (
        "Both GPUs spend 8.00 of 50.0 ms (16%) in synchronised batch normalisation of 4 layers"
    )
    assert finding.severity == "warning"
    assert finding.loss is not None
    assert finding.loss.gpu_time_ps == 2 * 4 * ms(8)
    evidence = {row.metric: row.value for row in finding.evidence}
    assert evidence == {
        "layer_collective_count": 8,
        "layer": "functional_1/batch_normalization_0",
    }
    # Of the 9 ms that all collectives take, one is the sum of the gradients.
    assert "collective-exposed" not in found


@pytest.mark.parametrize(("length_ms", "is_found"), [(0.31, False), (0.32, True)])
def test_where_it_starts(length_ms: float, is_found: bool, tmp_path: Path) -> None:
    """From 5 % of the steps of 49.975 ms on: eight collectives of 0.3124 ms."""
    assert ("layer-collectives" in analyzed(tmp_path, layers(length_ms))) == is_found


def test_layers_of_another_kind_are_layers(tmp_path: Path) -> None:
    finding = analyzed(tmp_path, layers(layer="memory_bank"))["layer-collectives"]
    assert finding.title == "Both GPUs spend 8.00 of 50.0 ms (16%) in collectives of 4 layers"


def sum_of_gradients(step: Step, first: int, *, scope: str, packs: int) -> None:
    """The same layers without collectives, and the gradients summed in some packs of 3 ms, in the backward pass."""
    for ordinal in range(2):
        for place in range(8):
            layer = f"{scope}functional_1/batch_normalization_{place % 4}"
            name = f"{layer}/Sum:Sum" if place < 4 else f"gradient_tape/{layer}/Tile:Tile"
            step.kernel(ordinal, 2 + place, 3 + place, op=name)
        step.kernel(ordinal, 10, 11, op=f"gradient_tape/{scope}loss/Mul:Mul")
        step.kernel(ordinal, 48, 49, op=f"gradient_tape/{scope}functional_1/dense/MatMul:MatMul")
    for pack in range(packs):
        span = (12 + 4 * pack, 15 + 4 * pack)
        op = f"{scope}CollectiveReduceV2_{pack}:CollectiveReduceV2"
        all_reduce(step, [span] * 2, instance=first + 20 + pack, asked_ms=span[0] - 1, op=op)


@pytest.mark.parametrize("scope", ["", "train/"])
@pytest.mark.parametrize("packs", [1, 8])
def test_the_sum_of_the_gradients_is_not_of_layers(packs: int, scope: str, tmp_path: Path) -> None:
    """Also where the script sums them itself, before the backward pass ends and in a scope around the whole step."""
    found = analyzed(
        tmp_path, lambda step, first: sum_of_gradients(step, first, scope=scope, packs=packs)
    )
    assert "layer-collectives" not in found
    assert ("collective-exposed" in found) is (packs == 8)


def test_more_collectives_than_the_layers_can_have_are_not_theirs(tmp_path: Path) -> None:
    """Of nine in the backward pass four may be of the layers; nobody knows which."""

    def more(step: Step, first: int) -> None:
        for place in range(5):
            start_ms = 34 + 2 * place
            op = f"CollectiveReduceV2_{20 + place}:CollectiveReduceV2"
            all_reduce(
                step,
                [(start_ms, start_ms + 1)] * 2,
                instance=first + 30 + place,
                asked_ms=start_ms - 0.5,
                op=op,
            )
        for ordinal in range(2):
            step.kernel(ordinal, 45, 46, op="gradient_tape/functional_1/conv2d/Mul:Mul")

    finding = analyzed(tmp_path, layers(), more)["layer-collectives"]
    assert finding.arguments["calls"] == Number(4, "collective")
    assert finding.loss is not None
    assert finding.loss.ps_per_step == ms(4)


def test_a_collective_after_the_backward_pass_is_not_of_layers(tmp_path: Path) -> None:
    """As for the norm of all gradients, or a metric."""

    def norm(step: Step, first: int) -> None:
        op = "CollectiveReduceV2_40:CollectiveReduceV2"
        all_reduce(step, [(36, 39)] * 2, instance=first + 40, asked_ms=35, op=op)

    finding = analyzed(tmp_path, layers(), norm)["layer-collectives"]
    assert finding.arguments["calls"] == Number(8, "collective")
    assert finding.loss is not None
    assert finding.loss.ps_per_step == ms(8)

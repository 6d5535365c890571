"""Divides the compute of the used steps into parts: lines of Python, layers, and small layers that are alike together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import dropwhile
from math import inf
from typing import Final, NamedTuple

import numpy as np

from traceview.analysis.facts.layers import Place, jitted_functions, label_places
from traceview.analysis.measures.context import Context
from traceview.analysis.workload.costly_ops import all_ps, types_of_labels
from traceview.base.record import Count, OpName, OpType, Record, Share, SourceLine
from traceview.base.sweeping import SWEEPS

_NEARLY_ALL: Final = 0.8
"""Of the compute: a line or layer that has more of it tells no more than that it is the step. A choice of ours."""

_LARGE: Final = 0.2
"""Of the compute: layers with less of it count together with others that are alike. A choice of ours."""

_NUMBER: Final = "_0123456789"
"""What ends the name of a layer that Keras or a script has numbered."""


class PartOfCompute(Record, frozen=True):
    """Ops of one layer that one line of Python made, with their gradients; without layer and line those of one type.

    Of a line that makes layers which others make, too, all ops are one part. Small layers whose names differ in numbers alone
    are one part, and so are those inside a layer that has no large one.

    Attributes:
        source_line: The line; null where none was recorded, and where the layer has no other and the line has.
        layer: The layer; null where no name shows any, and where the line makes no other; `*` for numbers that differ.
        op_type: The type of op that takes most of it; null where none was recorded.
        compute_ratio: Its share of the compute in the used steps.
        layer_count: How many layers have that name.
    """

    source_line: SourceLine | None
    layer: OpName | None
    op_type: OpType | None
    compute_ratio: Share
    layer_count: Count = 1


class _Maker(NamedTuple):
    """What made some ops, "" for what is not known or says nothing."""

    layer: str
    layer_count: int = 1
    line: str = ""


_NOBODY: Final = _Maker("")


def parts_of_compute(context: Context) -> Iterator[PartOfCompute]:
    """All parts, the one that takes longest first."""
    made, ps = context.trace.once(label_places), context.once(all_ps)
    types, type_of_label = context.once(types_of_labels)
    of_place = _makers(made.places, context.trace.once(jitted_functions))
    whole_ps, took = int(ps.sum()), SWEEPS.totals(made.place, ps, len(of_place)).tolist()
    ps_of: dict[_Maker, int] = defaultdict(int)
    for maker, maker_ps in zip(of_place, took, strict=True):
        ps_of[maker] += maker_ps
    ps_of.pop(_NOBODY, None)
    if max(ps_of.values(), default=0) > _NEARLY_ALL * whole_ps:
        ps_of.clear()
    shown = _alike(_shown({maker: own for maker, own in ps_of.items() if own}), ps_of, whole_ps)
    makers = list(dict.fromkeys((_NOBODY, *shown.values())))
    number_of = {maker: number for number, maker in enumerate(makers)}
    numbers = [number_of[shown.get(maker, _NOBODY)] for maker in of_place]
    part = np.array(numbers, dtype=np.int64)[made.place]
    # What nobody is known to have made is divided by its type.
    part = np.where(part == 0, len(makers) + type_of_label, part)
    known = [*((maker, "") for maker in makers), *((_NOBODY, type_) for type_ in types)]
    by_part = SWEEPS.totals(part, ps, len(known)).tolist()
    order = (number for number, part_ps in enumerate(by_part) if part_ps)
    for number in sorted(order, key=lambda each: (-by_part[each], known[each])):
        by_type = SWEEPS.totals(type_of_label, np.where(part == number, ps, 0), len(types))
        maker, op_type = known[number][0], types[int(by_type.argmax())]
        if maker != _NOBODY or op_type:
            yield PartOfCompute(
                maker.line or None,
                maker.layer or None,
                op_type or None,
                by_part[number] / whole_ps,
                maker.layer_count,
            )


def _makers(places: Sequence[Place], functions: Collection[str]) -> list[_Maker]:
    """The layer and line that stand for each place; the `functions` around a layer are none.

    Where several lines make one layer, the model is applied several times: which of these lines it is tells more than the layer.
    """
    made = [
        ("/".join(dropwhile(functions.__contains__, place.scopes)), place.line) for place in places
    ]
    lines_of = Counter(layer for layer, line in set(made) if layer and line)
    whole = {line for layer, line in made if lines_of[layer] > 1}
    return [_Maker("" if line in whole else layer, line=line) for layer, line in made]


def _shown(makers: Collection[_Maker]) -> dict[_Maker, _Maker]:
    """What is said of each: a line that makes one layer, a layer that one line makes, else both."""
    lines_of = Counter(maker.layer for maker in makers)
    layers_of = Counter(maker.line for maker in makers)
    shown = {}
    for maker in makers:
        is_of_line = bool(maker.line) and layers_of[maker.line] == 1
        has_line = is_of_line or not maker.layer or lines_of[maker.layer] > 1
        shown[maker] = _Maker(
            "" if is_of_line else maker.layer, line=maker.line if has_line else ""
        )
    return shown


def _alike(
    shown: Mapping[_Maker, _Maker], ps_of: Mapping[_Maker, int], whole_ps: int
) -> dict[_Maker, _Maker]:
    """The same, but small layers that are alike as one."""
    layers = {maker: each.layer for maker, each in shown.items() if each.layer and not each.line}
    name_of = alike_layers(
        {layer: ps_of[maker] for maker, layer in layers.items()},
        large_ps=_LARGE * whole_ps,
        most_ps=_NEARLY_ALL * whole_ps,
    )
    joined = {maker: _Maker(*name_of[layer]) for maker, layer in layers.items() if layer in name_of}
    return {**shown, **joined}


class AlikeLayers(NamedTuple):
    """The name that some layers have, with a star for numbers that differ, and how many they are."""

    name: str
    layer_count: int


def alike_layers(
    ps_of: Mapping[str, int], large_ps: float, most_ps: float = inf
) -> dict[str, AlikeLayers]:
    """By small layer those that it counts with; `ps_of`: by layer its time.

    From the innermost on, layers count as the one around them where any takes less than `large_ps`, and all at most `most_ps`.
    The outermost scope is the model.
    """
    scopes_of = {layer: tuple(layer.split("/")) for layer, ps in ps_of.items() if ps < large_ps}
    members: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for layer, scopes in scopes_of.items():
        members[tuple(scope.rstrip(_NUMBER) or scope for scope in scopes)].append(layer)

    def took(*kinds: tuple[str, ...]) -> int:
        return sum(ps_of[layer] for kind in kinds for layer in members[kind])

    for depth in range(max(map(len, members), default=0), 2, -1):
        inside_of = defaultdict(list)
        for kind in members:
            if len(kind) >= depth - 1:
                inside_of[kind[: depth - 1]].append(kind)
        for outer, inside in inside_of.items():
            has_small = any(took(kind) < large_ps for kind in inside if kind != outer)
            if has_small and took(*inside) <= most_ps:
                members[outer] = [layer for kind in inside for layer in members.pop(kind)]
    alike: dict[str, AlikeLayers] = {}
    for kind, layers in members.items():
        if len(layers) > 1:
            roots = {scopes_of[layer][: len(kind)] for layer in layers}
            named = zip(kind, *roots, strict=True)
            words = (own[0] if len({*own}) == 1 else f"{name}*" for name, *own in named)
            alike |= dict.fromkeys(layers, AlikeLayers("/".join(words), len(roots)))
    return alike

"""Fills the sentences of rules: templates over typed arguments, which stay tokens until a printer has them.

A template is a sentence of ours. `{name}` is an argument; `{name:waits/wait}` a word that agrees with how many devices it
names; what stands in `[…]` is left out where one of its arguments is absent; what stands between backticks is code:

    {who:waits/wait} {loss} for Python between steps[ in {line}].
    Both replicas wait 20.4 of 45.6 ms (45%) for Python between steps in on_train_batch_end, train.py:87.

No text of a trace is ever part of a template, so no character of it can be taken for one of these marks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Annotated, Any, Final, TypeAlias

from traceview.base.record import (
    Activity,
    Count,
    DeviceKey,
    Integer,
    Picoseconds,
    Record,
    Share,
    SourceLine,
    TextKind,
    Words,
    kind_in,
    one_of,
)
from traceview.base.text import lazy_pattern
from traceview.document import numbers
from traceview.document.phrase import Phrase, Token, names
from traceview.ledger.states import BY_KEY, MEANINGS, State
from traceview.ledger.states import KEYS as STATE_KEYS

# Arguments


class Devices(Record, frozen=True, tag="devices", tag_field="is"):
    """Some devices of a run.

    Attributes:
        keys: Their keys, in the order of the device list.
        of_count: How many visible devices of their kind there are.
        noun: What one of them is called.
    """

    keys: tuple[DeviceKey, ...]
    of_count: Count
    noun: Annotated[str, one_of("CPU", "GPU", "TPU", "replica", "device")] = "GPU"


class Lost(Record, frozen=True, tag="loss", tag_field="is"):
    """How much of a step, or without steps of the window, something takes.

    Attributes:
        ps: The time that it takes, picoseconds.
        of_ps: The time that it is a part of, picoseconds.
        ratio: The exact share.
        awaited_ps: How much of the time these devices wait for others that lose it, picoseconds; 0 where that is little.
    """

    ps: Picoseconds
    of_ps: Picoseconds
    ratio: Share
    awaited_ps: Picoseconds = 0


class Slower(Record, frozen=True, tag="slower", tag_field="is"):
    """How long something takes that usually takes less.

    Attributes:
        ps: The time that it takes, picoseconds.
        usual_ps: The time that it usually takes, picoseconds.
    """

    ps: Picoseconds
    usual_ps: Picoseconds


class Quantity(Record, frozen=True, tag="quantity", tag_field="is"):
    """A measured value.

    Attributes:
        value: The value; of a place in an order 1 is the first.
        unit: What it is measured in; ratio: 1 is all.
    """

    value: int | float
    unit: Annotated[str, one_of("ps", "ratio", "bytes", "bytes_per_second", "place")]


class Number(Record, frozen=True, tag="number", tag_field="is"):
    """A number of things.

    Attributes:
        value: How many.
        noun: What one is called; empty where the sentence says it.
        of: Of how many; 0 where that is not said.
    """

    value: Integer
    noun: Words = ""
    of: Count = 0


class Line(Record, frozen=True, tag="line", tag_field="is"):
    """A line of Python.

    Attributes:
        line: File, number and function, as samples name it.
        called: The same of what is called there and takes most of the time, of a library or the script; null without one.
        others: Numbers of other lines of the function that take much.
    """

    line: SourceLine
    called: SourceLine | None = None
    others: tuple[Count, ...] = ()


class Names(Record, frozen=True, tag="names", tag_field="is"):
    """Recorded names of one kind.

    Attributes:
        names: The names.
        kind: What they name.
    """

    names: tuple[Annotated[str, kind_in("kind")], ...]
    kind: TextKind


class Ops(Record, frozen=True, tag="ops", tag_field="is"):
    """Ops or kernels.

    Attributes:
        names: Their names.
    """

    names: tuple[Activity, ...]


class StateName(Record, frozen=True, tag="state", tag_field="is"):
    """A state of a device.

    Attributes:
        state: Its key.
    """

    state: Annotated[str, one_of(*STATE_KEYS)]


_Measured: TypeAlias = Lost | Slower | Quantity | Number
Argument: TypeAlias = Devices | _Measured | Line | Ops | Names | StateName
"""What a template is filled with. The type says what it is: how it is printed, and whether redaction replaces it."""

Arguments: TypeAlias = Mapping[str, Argument]

_WAITING: Final = MEANINGS[State.DEVICE_WAIT].name

_MOST_LISTED: Final = 4
"""Devices named one by one; of more, how many they are."""

_PIECE: Final = lazy_pattern(
    r"`(?P<code>[^`]*)`|\{(?P<name>\w+)(?::(?P<one>[^/{}]*)/(?P<more>[^/{}]*))?\}|(?P<mark>[\[\]])"
)

_OUTLINE: Final = lazy_pattern(rf"{_PIECE.pattern}|(?P<rest>[^`{{\[\]]+|.)")


def filled(template: str, arguments: Arguments, *, is_sentence: bool = True) -> Phrase:
    """The sentence that a template makes of its arguments, with a capital letter at its beginning if it is a whole one.

    A name keeps its letters. Raises `KeyError` for an argument that is missing outside of brackets.
    """
    sentence: list[Token] = []
    optional: list[Token] | None = None
    is_whole = True
    at = 0
    for match in _PIECE.finditer(template):
        tokens = sentence if optional is None else optional
        if match.start() > at:
            tokens.append(Token(template[at : match.start()]))
        at = match.end()
        if match["mark"] == "[":
            optional, is_whole = [], True
        elif match["mark"]:
            sentence += (optional or []) if is_whole else []
            optional = None
        elif match["name"] is None:
            tokens.append(Token(match["code"], "code"))
        elif optional is not None and match["name"] not in arguments:
            is_whole = False
        else:
            tokens += _filled_in(match, arguments[match["name"]])
    if at < len(template):
        sentence.append(Token(template[at:]))
    if is_sentence and sentence and sentence[0].kind in ("text", "number"):
        first = sentence[0]
        sentence[0] = Token(first.text[:1].upper() + first.text[1:], first.kind)
    return tuple(sentence)


def outline(template: str, *, is_whole: bool = True) -> Phrase:
    """The sentence with `…` in the place of every argument, for those who read about a rule; else what is before its optional parts."""
    matches: Iterable[re.Match[str]] = _OUTLINE.finditer(template)
    if not is_whole:
        matches = takewhile(lambda match: not match["mark"], matches)
    return tuple(
        Token(match["code"], "code")
        if match["code"] is not None
        else Token("…" if match["more"] is None else f"… {match['more']}")
        if match["name"]
        else Token(match["rest"] or "")
        for match in matches
        if not match["mark"]
    )


def _filled_in(match: re.Match[str], argument: Argument) -> Iterator[Token]:
    yield from tokens_of(argument)
    if match["one"] is not None:
        yield Token(f" {match['more'] if _is_several(argument) else match['one']}")


def _is_several(argument: Argument) -> bool:
    """Whether a verb about it is plural."""
    match argument:
        case Devices(counted) | Names(counted) | Ops(counted):
            return len(counted) != 1
        case Number(value):
            return value != 1
    return False


def line_words(line: str) -> str:
    """`on_train_batch_end, train.py:87`, without names that Python makes up, `<module>`, `<listcomp>`."""
    place, _, function = line.partition(" in ")
    return f"{function}, {place}" if function and not function.startswith("<") else place


def _called(line: str, caller: str) -> str:
    """`sort of numpy`, of `numpy/_core/fromnumeric.py:1 in sort`, of `numpy:0 in $numpy sort` and of `… in _sort`, which nobody wrote;
    `develop, :15` of a function in the file of what calls it.
    """
    place, _, function = line.partition(" in ")
    if (at := place.partition(":"))[0] == caller.partition(":")[0]:
        return f"{function}, :{at[2]}"
    package = place.partition(":")[0].partition("/")[0].removesuffix(".py")
    name = function.rpartition(" ")[2]
    return f"{name if name.startswith('__') else name.removeprefix('_')} of {package}"


def plain_type(op_type: str) -> str:
    """`MatMul` of `_MklNativeFusedMatMul`, as TensorFlow calls ops that Grappler has fused or oneDNN runs."""
    bare = op_type.removeprefix("_")
    for mark in ("Mkl", "Native", "Fused"):
        # `FusedBatchNorm` is no mark: no underscore precedes it.
        bare = bare.removeprefix(mark) if op_type.startswith("_") else bare
    return bare


def tokens_of(argument: Argument) -> Iterator[Token]:
    """An argument in words."""
    match argument:
        case Devices():
            yield _devices(argument)
        case Names(kept):
            # `a, b and c`
            yield from names(kept)
        case Ops(kept):
            yield from names([*map(plain_type, kept)])
        case StateName(state):
            yield Token(MEANINGS[BY_KEY[state]].name)
        case Line(line, called, others):
            # `train, train.py:61, 65`
            yield Token(", ".join((line_words(line), *map(str, others))), "name")
            if called:
                yield from (Token(" ("), Token(_called(called, line), "name"), Token(")"))
        case _:
            yield Token(_number(argument), "number")


def _number(argument: _Measured) -> str:
    match argument:
        case Lost(ps, of_ps, ratio, awaited_ps):
            # `20.4 of 45.6 ms (45%, 3.20 ms of it waiting for a device)`
            waiting = f", {numbers.time(awaited_ps)} of it {_WAITING}" if awaited_ps else ""
            return f"{numbers.part_of(ps, of_ps)} ({numbers.percent(ratio)}{waiting})"
        case Slower(ps, usual_ps):
            # `24.5 instead of 19.1 ms`
            return numbers.part_of(ps, usual_ps, "instead of")
        case Quantity(value, unit):
            return _WRITERS[unit](value)
        case Number(value, ""):
            return numbers.count(value)
        case Number(value, noun, 0):
            # `3 steps`
            return numbers.plural(value, noun, _several(noun))
        case Number(value, noun, of):
            # `1 of 4 GPUs`
            return f"{numbers.count(value)} of {numbers.plural(of, noun, _several(noun))}"


_WRITERS: Final[Mapping[str, Callable[[Any], str]]] = {
    "ps": numbers.time,
    "ratio": numbers.percent,
    "bytes": numbers.size,
    "bytes_per_second": numbers.rate,
    # `fifth`, `20th`
    "place": numbers.ordinal,
}


def _several(noun: str) -> str:
    """The plural of one of our nouns: `copies`, `batches`, `GPUs`."""
    if noun.endswith("y"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("ch", "s")) else f"{noun}s"


def _devices(devices: Devices) -> Token:
    """`GPU:1`, `GPU:0, 2 and 3`, `both replicas`, `all 64 GPUs`, `12 of 64 GPUs`; those of several hosts by their whole keys."""
    keys, count = devices.keys, len(devices.keys)
    if count == devices.of_count and count > 1:
        return Token(f"{'both' if count == 2 else f'all {count}'} {devices.noun}s")
    if count > _MOST_LISTED:
        return Token(f"{count} of {devices.of_count} {devices.noun}s")
    if count > 1 and len({key.rpartition(":")[0] for key in keys}) == 1:
        keys = (keys[0], *(key.rpartition(":")[2] for key in keys[1:]))
    return Token(numbers.listed(keys, _MOST_LISTED), "device")

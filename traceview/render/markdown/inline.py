r"""How does recorded text stand in Markdown without being Markdown?

Names become code, in which nothing is markup, a link, a mention or an emoji. In sentences a call, a command line and
every word that is more than a word become code too: `dataset.map(f, num_parallel_calls=4)`, `traceview gaps LOGDIR`,
`model/dense`, `tf.data.AUTOTUNE`, `@someone`, `#1`. Everything goes through
`harmless` first, so that there are no line breaks, control or reordering characters, and nothing is endless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from traceview.render import numbers
from traceview.render.harmless import harmless

MOST: Final = 120
"""Characters of one name; the middle of a longer one is left out."""

LONGEST_PROSE: Final = 1200
"""Characters of one paragraph."""

COMMANDS: Final = (
    *(
        "analyze",
        "balance",
        "capture",
        "collectives",
        "crosscheck",
        "devices",
        "doctor",
        "explain",
        "export",
    ),
    *(
        "gaps",
        "input",
        "open",
        "ops",
        "render",
        "report",
        "runs",
        "schema",
        "steps",
        "transfers",
        "version",
    ),
)
"""What may stand after `traceview` in a sentence for the two to be a command line."""

_LONGEST_PIECE: Final = 300
"""Characters of a call or command in a sentence; a longer one is taken for words."""

_MARKUP: Final = re.compile(r"[\\`*_\[\]<>#|~$&]")
_MORE_THAN_A_WORD: Final = re.compile(r"[\\`*_{}\[\]<>#|!~@&$^/=:]")
_DOTTED: Final = re.compile(r"[A-Za-z_]\w+(?:\.[A-Za-z_]\w*)+")
_CALL_START: Final = re.compile(
    r"(?<![^ (\"'])(?:if [\w %=<>]{1,30}: )?(?:[A-Za-z_]\w* = )?@?[A-Za-z_][\w.]*\((?!s\))"
)
_CALL_GOES_ON: Final = re.compile(r"\.[A-Za-z_][\w.]*\(")
_COMMAND: Final = re.compile(
    rf"(?<![^ (\"'])traceview (?:{'|'.join(COMMANDS)})(?![\w.:/-])"
    r"(?: (?:--[a-z][a-z-]*|[A-Z][A-Z_]*(?::[A-Z]+)?|[a-z]+(?:-[a-z]+)+|[\w/-]+\.json)(?![\w/:(]))*"
)
_END_OF_WORD: Final = re.compile(r"[.,;:)\"'?!]*(?: |$)")
_HTML: Final = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_DEVICE: Final = re.compile(r"(?:CPU|GPU|TPU|replica):\d+")
_BLOCK_START: Final = re.compile(r"^(?=[-+])|^(\d+)(?=[.)](?: |$))")
_BEFORE: Final = "(\"'"
_AFTER: Final = ".,;:)\"'?!"


def code(text: str, most: int = MOST) -> str:
    """A name as code, also in the cell of a table."""
    shown = _shortened(harmless(text), most)
    if not shown.strip():
        return numbers.ABSENT
    if "`" in shown or "|" in shown:
        # A delimiter of backticks or an escaped pipe is read differently here and there; entities are not.
        spelled = "".join(c if c.isalnum() or c == " " else f"&#{ord(c)};" for c in shown)
        return f"<code>{spelled}</code>"
    return f"`{shown}`"


def plain(text: str) -> str:
    """Words and numbers of our own, for a heading or a cell: nothing in them is markup."""
    return _MARKUP.sub(lambda match: _HTML.get(match[0], f"\\{match[0]}"), harmless(text))


def prose(text: str) -> str:
    """A sentence that may hold recorded names."""
    whole = _shortened(harmless(text.strip()), LONGEST_PROSE)
    shown, done = "", 0
    for start, end in _pieces(whole):
        shown += _words(whole[done:start]) + code(whole[start:end], _LONGEST_PIECE)
        done = end
    shown += _words(whole[done:])
    return _BLOCK_START.sub(lambda m: f"{m[1] or ''}\\", shown, count=1)


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """Where the calls and command lines in a sentence begin and end."""
    calls = [
        (found.start(), _end_of_call(text, found.end())) for found in _CALL_START.finditer(text)
    ]
    commands = [found.span() for found in _COMMAND.finditer(text)]
    done = 0
    for start, stop in sorted(
        [*((start, stop) for start, stop in calls if stop is not None), *commands]
    ):
        is_apart = _END_OF_WORD.match(text, stop) is not None
        if start >= done and is_apart and stop - start <= _LONGEST_PIECE:
            done = stop
            yield start, stop


def _end_of_call(text: str, inside: int) -> int | None:
    """Where the call ends whose opening parenthesis is left of `inside`, with calls of its result; None if it does not."""
    depth = 1
    for place in range(inside, min(len(text), inside + _LONGEST_PIECE)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            further = _CALL_GOES_ON.match(text, place + 1)
            return _end_of_call(text, further.end()) if further else place + 1
    return None


def _words(text: str) -> str:
    return " ".join(map(_word, text.split(" ")))


def _word(word: str) -> str:
    core = word.lstrip(_BEFORE)
    before = word[: len(word) - len(core)]
    after = ""
    while core and core[-1] in _AFTER and not (core[-1] == ")" and _is_balanced(core)):
        core, after = core[:-1], core[-1] + after
    is_name = any(c.isalnum() for c in core) and (
        _MORE_THAN_A_WORD.search(core) is not None
        or _DOTTED.fullmatch(core) is not None
        or core.startswith("--")
        or core.lower().startswith("www.")
    )
    is_plain = not is_name or _DEVICE.fullmatch(core)
    return before + (plain(core) if is_plain else code(core)) + after


def _is_balanced(text: str) -> bool:
    return text.count("(") >= text.count(")")


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[head - most + 1 :]}"

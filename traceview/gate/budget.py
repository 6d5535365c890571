"""Reads a budget: a TOML file with the conditions that a run has to meet."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

import msgspec
from msgspec import Struct

from traceview.errors import TraceFormatError, TraceNotFoundError, UsageError
from traceview.gate.conditions import Condition, condition_of
from traceview.location import Location

_KEYS: Final = ("require", "baseline", "strict")


class Budget(Struct, frozen=True):
    """Conditions, and what else the file says. `baseline`: a name or a path, None where it names none."""

    conditions: tuple[Condition, ...]
    baseline: str | None = None
    strict: bool = False


def budget_in(path: Location) -> Budget:
    """The budget in a file.

    Raises `TraceNotFoundError` where there is no such file, `TraceFormatError` for one that is no TOML, and `UsageError`
    for a key or a condition that does not exist.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise TraceNotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise TraceNotFoundError(f"{path}: {error.strerror or error}") from error
    try:
        data = msgspec.toml.decode(content)
    except ImportError:
        raise UsageError(
            f"{path}: reading TOML needs Python 3.11 or the package tomli",
            hint="pip install tomli, or give the conditions with --require",
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceFormatError(path, f"not TOML: {error}") from None
    try:
        return _budget(data)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None


def _budget(data: dict[str, Any]) -> Budget:
    for key in data:
        if key not in _KEYS:
            near = get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"keys: {', '.join(_KEYS)}"
            raise UsageError(f"no key of a budget is called {key}", hint=hint)
    texts = data.get("require", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UsageError("require is no list of texts", hint='require = ["step_time_ms <= 120"]')
    baseline, strict = data.get("baseline"), data.get("strict", False)
    if baseline is not None and not isinstance(baseline, str):
        raise UsageError("baseline is no text: the name of a baseline, or a path")
    if not isinstance(strict, bool):
        raise UsageError("strict is neither true nor false")
    return Budget(tuple(map(condition_of, texts)), baseline, strict)

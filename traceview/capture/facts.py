"""How is a group of fields gathered, of which any may be out of reach?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_LONGEST_REASON: Final = 200


class Absent(Exception):  # noqa: N818  # nothing has failed: this is an answer
    """A field cannot be had; the message says why."""


class Facts:
    """Fields of one group. One that cannot be had is named in `missing` with the reason, never guessed."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.missing: dict[str, str] = {}

    def ask(self, field: str, question: Callable[[], Any]) -> Any:
        """Set a field to the answer, and return it: None where there is none."""
        try:
            answer = question()
        except Absent as reason:
            self.missing[field] = str(reason)
            return None
        except Exception as error:
            self.missing[field] = f"{type(error).__name__}: {error}"[:_LONGEST_REASON]
            return None
        if answer is None:
            self.missing[field] = "not known to this TensorFlow"
            return None
        self.values[field] = answer
        return answer

    def as_group(self) -> dict[str, Any]:
        """The fields, and `missing` if something is."""
        return {**self.values, **({"missing": self.missing} if self.missing else {})}

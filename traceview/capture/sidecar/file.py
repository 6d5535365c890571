"""Writes the sidecar `<host>.traceview.json`: groups of fields with what the trace itself does not say, each of which may be missing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns
from typing import Any, Final, Literal

from traceview.base.errors import NoAnswerError

SCHEMA_VERSION: Final = 1
SIDECAR_SUFFIX: Final = ".traceview.json"
State = Literal["waiting", "recording", "saved", "failed"]


@dataclass
class Sidecar:
    """The fields so far."""

    state: State = "waiting"
    groups: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def is_recording(self) -> bool:
        """Whether the profile runs, and has not been asked to stop."""
        return self.state == "recording" and "stopped" not in self.groups.get("clock", {})

    @property
    def stopped_ns(self) -> int:
        """When the profile was asked to stop, or now, in Unix nanoseconds."""
        return int(self.groups.get("clock", {}).get("stopped", {}).get("wall_ns", time_ns()))

    def add(self, group: str, values: Mapping[str, Any]) -> None:
        """Set fields of a group, replacing only those of the same name."""
        self.groups[group] = {**self.groups.get(group, {}), **values}

    def note(self, about: str, text: str) -> None:
        """Add a line to the notes about something, once."""
        known = self.groups.get("notes", {}).get(about, ())
        self.add("notes", {about: list(dict.fromkeys((*known, text)))})

    def write(self, path: Path) -> None:
        """Replace a file by the current fields; raises `OSError`."""
        fields = {"schema_version": SCHEMA_VERSION, "state": self.state, **self.groups}
        text = json.dumps(fields, indent=2, ensure_ascii=False, default=_plain)
        write_whole(path, f"{text}\n".encode("utf-8", "replace"))


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python, anything else as text: the reader takes no text for a number."""
    return value.item() if hasattr(value, "item") else str(value)


class WindowListener:
    """Adds groups to the sidecar at the moments that a subclass overrides. What they raise is noted there (`notes.listeners`)."""

    def opening(self, sidecar: Sidecar) -> None:
        """The window is about to open; what happens here is not recorded."""

    def opened(self, sidecar: Sidecar) -> None:
        """The profile runs; what happens here is in the trace."""

    def closed(self, sidecar: Sidecar, trace: Path) -> None:
        """The profile is written to `trace`, which moves later; the sidecar is written after this."""

    def finished(self) -> None:
        """Nothing more will be recorded. May be called more than once."""


class Facts:
    """The fields of a group whose reader wants to know why one has no value: `missing` names it with the reason."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.missing: dict[str, str] = {}

    def ask(self, field: str, question: Callable[[], Any]) -> None:
        """Set a field to the answer, where there is one."""
        answer = self.find(field, question)
        if answer is not None:
            self.values[field] = answer

    def find(self, field: str, question: Callable[[], Any]) -> Any:
        """The answer, without setting the field; None, with the reason in `missing`, without an answer."""
        answer, reason = None, "not known to this TensorFlow"
        try:
            answer = question()
        except NoAnswerError as absent:
            reason = str(absent)
        except Exception as error:
            reason = reason_of(error)
        if answer is None:
            self.missing[field] = reason
        return answer

    def as_group(self) -> dict[str, Any]:
        """The fields, and `missing` unless it is empty."""
        return {**self.values, **({"missing": self.missing} if self.missing else {})}


def answers(questions: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """A group with a field for each question that has an answer."""
    facts = Facts()
    for name, question in questions.items():
        facts.ask(name, question)
    return facts.values


def write_whole(path: Path, content: bytes) -> None:
    """Replace the content; raises `OSError`."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def is_running(pid: int) -> bool:
    """Whether a process of this host runs, perhaps that of another user."""
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError) as error:
        return isinstance(error, PermissionError)
    return True


def stat_fields(process: Path) -> list[str]:
    """The fields of `stat` in a folder of `/proc` behind the name of the program, which may hold any character (proc(5))."""
    return (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()


def reason_of(error: BaseException) -> str:
    """Its class: what the message holds, such as an address with a password, is not for others."""
    return type(error).__name__

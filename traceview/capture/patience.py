"""How long does the profile stay open for a step that may not come?

To start a thread takes 0.2 ms, and tens of milliseconds where all cores are busy: time of the step in which it is
done. So the thread is there before the first recorded step, and in the window it is only told.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Thread
from time import monotonic


class Patience:
    """Waits in a thread of its own and calls `at_end` there when that was in vain; `at_end` calls `dismiss` or `rest`."""

    def __init__(self, at_end: Callable[[], None]) -> None:
        self._at_end = at_end
        self._changed = Condition()
        self._until_s: float | None = None
        self._is_needed = False

    @property
    def is_waiting(self) -> bool:
        """Whether something is waited for, or has been in vain."""
        return self._until_s is not None

    def prepare(self) -> None:
        """Start the thread."""
        self._is_needed = True
        Thread(target=self._watch, name="traceview-patience", daemon=True).start()

    def wait(self, seconds: float) -> None:
        """From now on wait so long, and no longer."""
        with self._changed:
            self._until_s = monotonic() + seconds
            self._changed.notify()

    def rest(self) -> None:
        """What was waited for has come."""
        if self._until_s is not None:
            with self._changed:
                self._until_s = None

    def dismiss(self) -> None:
        """Nothing will have to be waited for: let the thread end."""
        with self._changed:
            self._is_needed = False
            self._changed.notify()

    def _watch(self) -> None:
        while self._has_waited_in_vain():
            self._at_end()

    def _has_waited_in_vain(self) -> bool:
        """Return when that is so, or with False when nobody needs it any more."""
        with self._changed:
            while self._is_needed:
                left_s = None if self._until_s is None else self._until_s - monotonic()
                if left_s is not None and left_s <= 0:
                    return True
                self._changed.wait(left_s)
        return False

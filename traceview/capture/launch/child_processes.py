"""Follows a script into the Python processes that it forks or that `multiprocessing` spawns, and captures their steps too.

A forked process inherits the hooks, but the capture that they belong to is its parent's; so it gets hooks and a capture of
its own. A spawned process is a new Python: what `multiprocessing` sends it first installs the hooks there, before the
script and TensorFlow are imported. Either makes files only when its window is near, because most such processes, readers of
data for instance, train nothing. What they record is written to a list in a temporary file, from which the process of the
script learns of it, whichever way they end.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from traceview.base.errors import CaptureError
from traceview.capture.hang.watch import HangWatch, hang_settings
from traceview.capture.launch.launched import disarm
from traceview.capture.process.imports import ImportWatch
from traceview.capture.process.termination import UTIL, finish_before_end
from traceview.capture.record.capture import Settings
from traceview.capture.record.outcome import shortcomings
from traceview.capture.record.step_watch import StepWatch
from traceview.capture.sampling.python_stacks import cost_of_sampling
from traceview.capture.sidecar.file import WindowListener

_SPAWN: Final = "multiprocessing.spawn"
_PREPARATION: Final = "get_preparation_data"
_TRAINS: Final = None
"""In the list, instead of a run: the training of a child begins."""


@dataclass(frozen=True)
class Following:
    """What a process needs to capture itself: the settings, with an absolute `out`, and the list of captures.

    `say`: a function of a module, so that it can be sent to another process; gets messages for the user. `records` is None
    before there is a list. `on_hang_s`: report if no step ends for that many seconds.
    """

    settings: Settings
    step_functions: tuple[str, ...]
    say: Callable[[str], None]
    records: Path | None = None
    on_hang_s: float | None = None


class ChildProcesses(WindowListener):
    """The processes that this one forks or spawns, from `install` to `leave`.

    `watch` captures this process itself. Once its window is closed nothing is followed any more, so that the script runs as
    without traceview from there on.
    """

    def __init__(self, following: Following, *, is_child: bool) -> None:
        self.following = following
        self.watch: StepWatch | None = None
        self._is_child = is_child
        self._is_recorded = False
        self._hang_watch: HangWatch | None = None
        self._spawn_watch = ImportWatch(self._awaited, self._patch_spawn)
        self._spawn: tuple[ModuleType, Any] | None = None

    @classmethod
    def of_script(
        cls,
        settings: Settings,
        step_functions: tuple[str, ...],
        say: Callable[[str], None],
        on_hang_s: float | None,
    ) -> ChildProcesses:
        """Those of the script that will run in this process."""
        whole = replace(settings, out=Path.cwd() / settings.out)
        return cls(Following(whole, step_functions, say, on_hang_s=on_hang_s), is_child=False)

    def install(self, watch: StepWatch) -> None:
        """Follow the script from now on, which `watch` captures in this process."""
        self.watch = watch
        handle, records = tempfile.mkstemp(prefix="traceview-", suffix=".jsonl")
        os.close(handle)
        self.following = replace(self.following, records=Path(records))
        self.follow()

    def follow(self) -> None:
        """Be there when this process forks or spawns another."""
        _followed.append(self)
        _follow_forks()
        self._spawn_watch.install()

    def leave(self) -> None:
        """Follow no further process; those that run go on."""
        with suppress(ValueError):
            _followed.remove(self)
        self._spawn_watch.remove()
        if self._spawn is not None:
            module, original = self._spawn
            self._spawn = None
            setattr(module, _PREPARATION, original)

    def forget(self) -> None:
        """Remove the list of captures."""
        self.leave()
        if self.following.records is not None:
            self.following.records.unlink(missing_ok=True)

    def finished(self) -> None:
        """The window is closed. A child adds its run to the list at once, because it may end in any way after it."""
        self.leave()
        watch = self.watch
        if not self._is_child or self._is_recorded or watch is None or watch.run is None:
            return
        self._is_recorded = True
        if watch.window.got is not None:
            first, last = watch.window.got
            self._say(f"recorded steps {first}:{last} into {watch.run}")
        self._record(str(watch.run))

    def runs(self, *, is_waiting: bool) -> list[Path]:
        """The runs of the captures so far. `is_waiting`: first wait for the processes that Python waits for in its end."""
        process = sys.modules.get("multiprocessing.process")
        if is_waiting and process is not None:
            for child in process.active_children():
                if not child.daemon:
                    child.join()
        return list(dict.fromkeys(self._recorded()))

    def _recorded(self) -> Iterator[Path]:
        records = self.following.records
        if records is None:
            return
        with suppress(OSError):
            for line in records.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError):
                    run = json.loads(line)
                    if run != _TRAINS:
                        yield Path(run)

    @property
    def has_training(self) -> bool:
        """Whether a child trains, or has trained: then this process may just wait for it. Known where hangs are watched."""
        records = self.following.records
        with suppress(OSError):
            return (
                records is not None
                and json.dumps(_TRAINS) in records.read_text("utf-8").splitlines()
            )
        return False

    def _record(self, entry: str | None) -> None:
        """Add a line to the list."""
        records = self.following.records
        if records is not None:
            with suppress(OSError), records.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(entry)}\n")

    # In a process that was forked or spawned

    def enter_fork(self) -> None:
        """Give this process, which was just forked, hooks and a capture of its own.

        One that is forked while a profile runs cannot have any: TensorFlow believes that the profile runs here, too.
        """
        inherited = self.watch
        if inherited is None:
            return
        inherited.hooks.remove()
        if inherited.capture.is_profiling:
            self.leave()
            return
        self.watch_child()
        util = sys.modules.get(UTIL)
        if util is not None:
            # Only `multiprocessing` calls it. Its processes end without coming to the end of the script.
            util.register_after_fork(self, _finish_at_end)

    def watch_child(self) -> None:
        """Capture this process, a child. No file is made before its window is near."""
        self._is_child = True
        self.watch = StepWatch(
            self.following.settings,
            self._say,
            step_functions=self.following.step_functions,
            listeners=[self],
            counts_on=self.following.on_hang_s is not None,
        )
        self._hang_watch = None
        if self.following.on_hang_s is not None:
            self.watch.observer.on_begin.append(self._watch_for_hangs)
        self.watch.hooks.install()

    def _watch_for_hangs(self) -> None:
        """TensorFlow runs something for the first time in this process, a child."""
        settings = hang_settings(self.following.on_hang_s, self._say)
        if settings is None or self.watch is None:
            return
        self._record(_TRAINS)
        try:
            self.watch.capture.prepare()
        except CaptureError as error:
            self._say(f"note: --on-hang is off in this process: {error.message}")
            return
        self._hang_watch = HangWatch(settings, self.watch, self._say)
        self._hang_watch.start()

    def finish_child(self, *, is_synchronised: bool) -> None:
        """This process, a child, ends: keep what it has recorded, and say what that lacks."""
        watch = self.watch
        if watch is None or watch.pid != os.getpid() or watch.is_finished:
            return
        if self._hang_watch is not None:
            self._hang_watch.stop()
        watch.hooks.remove()
        watch.finish(is_synchronised=is_synchronised)
        window = watch.window
        if watch.run is not None:
            for line in shortcomings(window, watch.capture.sidecar, watch.observer):
                self._say(f"note: {line}")
            for text in (str(window.times()), cost_of_sampling(watch.capture.sidecar)):
                if text is not None:
                    self._say(text)
        elif window.failures:
            self._say(f"nothing was captured: {'; '.join(window.failures)}")
        elif window.next_number:
            count, steps = window.next_number, window.steps
            self._say(
                f"nothing was captured: it ran {count} steps, and the window {steps} is later"
            )

    def _say(self, line: str) -> None:
        """Say it as this process, one of several."""
        note = "note: " if line.startswith("note: ") else ""
        self.following.say(f"{note}process {os.getpid()}: {line.removeprefix('note: ')}")

    # In the process that spawns

    def _awaited(self) -> set[str]:
        return {_SPAWN} if self._spawn is None else set()

    def _patch_spawn(self, module: ModuleType) -> None:
        original = getattr(module, _PREPARATION, None)
        if original is None:
            return

        def preparation_data(name: str) -> Any:
            return {**original(name), "traceview": _Joining(self.following)}

        self._spawn = module, original
        setattr(module, _PREPARATION, preparation_data)


class _Joining:
    """Unpickled in a spawned process, it joins that process; where traceview cannot be imported it does nothing."""

    def __init__(self, following: Following) -> None:
        self._following = following

    def __reduce__(self) -> Any:
        return exec, (_JOIN.format(content=pickle.dumps(self._following)), {})


_JOIN: Final = """
try:
    from traceview.capture.launch.child_processes import join
except ImportError:
    pass
else:
    join({content!r})
"""


def say_on_stderr(line: str) -> None:
    """Print a line for the user."""
    if sys.stderr is not None:
        sys.stderr.write(f"traceview: {line}\n")


def join(content: bytes) -> None:
    """Capture this process, which was just spawned; whatever goes wrong must not keep it from its work."""
    following: Following = pickle.loads(content)
    # The command follows this process, whatever TRACEVIEW_CAPTURE says; both would record it.
    disarm()
    try:
        children = ChildProcesses(following, is_child=True)
        children.follow()
        children.watch_child()
        # A fork server forgets the finalizers of the process that it forks, a new Python keeps them.
        _finish_at_end(children)
        sys.modules[UTIL].register_after_fork(children, _finish_at_end)
    except Exception as error:
        following.say(f"note: process {os.getpid()} is not captured: {error!r}")


def _finish_at_end(children: ChildProcesses) -> None:
    """Have `multiprocessing` end the capture of this process before the process ends."""
    finish_before_end(partial(children.finish_child, is_synchronised=False))


_followed: Final[list[ChildProcesses]] = []
_follows_forks = False


def _follow_forks() -> None:
    """Have Python call when it has forked. There is no way to take that back."""
    global _follows_forks
    if not _follows_forks and hasattr(os, "register_at_fork"):
        _follows_forks = True
        os.register_at_fork(after_in_child=_forked)


def _forked() -> None:
    for children in _followed.copy():
        children.enter_fork()

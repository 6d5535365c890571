"""How is a capture made: around a script that knows nothing of it, or in a training loop that does?"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from os import PathLike
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from traceview.capture.environment import EnvironmentListener
from traceview.capture.event_limits import ops_per_call
from traceview.capture.hooks import INPUT_PLACES, KERAS_EPOCHS, Hooks, Place
from traceview.capture.keras_calls import CallSizes
from traceview.capture.observer import Observer
from traceview.capture.outcome import coarse_steps, nothing_captured, shortcomings
from traceview.capture.outside_view import OutsideViewListener
from traceview.capture.placement import PlacementListener
from traceview.capture.recording import Capture, Settings
from traceview.capture.script import Script, ScriptEnd
from traceview.capture.serve import ProfilerServer
from traceview.capture.sidecar import WindowListener
from traceview.capture.step_objects import StepObjects
from traceview.capture.stop_risk import StopRiskListener
from traceview.capture.window import StepWindow
from traceview.errors import CaptureError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class CaptureWarning(UserWarning):
    """A capture in a training loop came out short, or not at all. The loop itself is not disturbed."""


@dataclass(frozen=True)
class ScriptCapture:
    """What came of running a script. `run` is the folder of the trace, None without one.

    `problem` says why there is none. The script's own exit code is `code`.
    """

    code: int
    run: Path | None
    problem: CaptureError | None


def capture_script(
    script: Script,
    settings: Settings,
    *,
    say: Callable[[str], None],
    step_functions: Iterable[str] = (),
    listeners: Sequence[WindowListener] = (),
    serve: int | None = None,
) -> ScriptCapture:
    """Run a script as Python would and record its steps `settings.window`.

    Steps are found as the modules `hooks` and `observer` say; `step_functions` names those to count. Lines
    for the user go to `say` as things happen. `serve`: the port on which the script offers TensorFlow's profiler
    server. Raises `UsageError` if there is no such script, `CaptureError` if nothing could be written to
    `settings.out` or the port is taken; what the script raises is shown as Python shows it.
    """
    script.check()
    servers = [] if serve is None else [ProfilerServer(serve, say)]
    for server in servers:
        server.check()
    steps = StepObjects()
    stop_risk = StopRiskListener(say)
    own_listeners = [*_default_listeners(settings, steps), stop_risk, *servers]
    capture = Capture(settings, say, [*own_listeners, *listeners])
    observer = Observer(capture.recorder, step_functions, steps)
    hooks = Hooks(observer)
    capture.is_done = hooks.remove
    capture.describe = lambda: _seen(observer, hooks)
    capture.ops_per_call = lambda count: ops_per_call(
        [callee.name for callee in observer.step_functions], steps, count
    )
    capture.prepare()
    stop_risk.check()
    hooks.install()
    for server in servers:
        server.install()
    run: Path | None = None
    problem: CaptureError | None = None
    process = os.getpid()

    def finish(end: ScriptEnd) -> None:
        nonlocal run, problem
        if os.getpid() != process:
            # A child that the script forked has come to its end: the capture is its parent's.
            return
        capture.finish(is_synchronised=not end.is_failure)
        if hooks.missing:
            say(f"note: this TensorFlow or Keras lacks {', '.join(hooks.missing)}")
        if capture.kept is None:
            problem = nothing_captured(capture.recorder, observer, end)
            return
        run = capture.kept.run
        for line in (*shortcomings(capture.recorder, observer), *coarse_steps(capture.sidecar)):
            say(f"note: {line}")
        say(str(capture.recorder.times()))

    try:
        end = script.run(before_exit=finish)
    finally:
        # Also where the module was not found.
        hooks.remove()
        for server in servers:
            server.remove()
        if run is None and problem is None and os.getpid() == process:
            capture.finish(is_synchronised=False)
    return ScriptCapture(end.code, run, problem)


def _default_listeners(settings: Settings, steps: StepObjects) -> list[WindowListener]:
    # First the one that has to stop when the profile has.
    outside_view = OutsideViewListener(is_asked=settings.is_nvml_sampled)
    return [outside_view, EnvironmentListener(), PlacementListener(steps)]


def _seen(observer: Observer, hooks: Hooks) -> dict[str, dict[str, Any]]:
    return {
        "steps": {
            "functions": [
                {
                    "name": callee.name,
                    "kind": callee.kind,
                    "is_step": callee.is_step,
                    "is_evaluation": callee.has_replicas and not callee.is_train,
                    "calls": callee.calls,
                }
                for callee in observer.callees
                if callee.calls
            ],
            "is_chosen": bool(observer.names),
        },
        "hooks": {"missing": hooks.missing},
    }


class Session:
    """A capture inside a training loop; see `capture_steps`."""

    def __init__(self, capture: Capture, steps: StepObjects) -> None:
        self._capture = capture
        self._steps = steps
        self._recorder = capture.recorder

    @property
    def run(self) -> Path | None:
        """The folder of the trace, as soon as the window has closed."""
        return self._capture.kept.run if self._capture.kept else None

    @contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Step `number` of the loop. Ask for the batch inside, and waiting for input belongs to the step.

        Outside the window this counts and does nothing else.
        """
        recorder = self._recorder
        recorder.next_number = number
        recorder.begin()
        try:
            yield
        except BaseException as error:
            if isinstance(error, StopIteration) or type(error).__name__ == "OutOfRangeError":
                recorder.abandon()
            else:
                recorder.fail("step")
            raise
        recorder.end("step")

    def wrap(self, train_step: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        """`train_step`, each call of which is the next step. The wait for its batch is in the step too."""
        recorder = self._recorder
        name = str(getattr(train_step, "__name__", "train_step"))
        self._steps.add(name, train_step)

        @wraps(train_step)
        def step(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            recorder.begin()
            try:
                result = train_step(*args, **kwargs)
            except BaseException:
                recorder.fail(name)
                raise
            recorder.end(name)
            return result

        return step

    def trains(self, name: str, model: Any) -> None:
        """The steps called `name` train a Keras model."""
        self._steps.add(name, model)

    @contextmanager
    def keras_calls(self) -> Iterator[CallSizes]:
        """How many steps the calls of a Keras `fit` in this thread make; followed until the window has closed."""
        with self._watching(KERAS_EPOCHS) as hooks:
            yield hooks.call_sizes

    @contextmanager
    def _watching(self, places: Sequence[Place]) -> Iterator[Hooks]:
        hooks = Hooks(Observer(self._recorder), places)
        self._capture.is_done = hooks.remove
        hooks.install()
        try:
            yield hooks
        finally:
            hooks.remove()

    def begin(self, count: int) -> None:
        """A call of `count` steps begins; for callbacks, which cannot wrap it."""
        self._recorder.begin(count)

    def end(self, name: str, count: int) -> None:
        """It has returned."""
        self._recorder.end(name, count)


@contextmanager
def capture_steps(
    logdir: str | PathLike[str],
    steps: range,
    *,
    synchronise: bool = True,
    max_events: int | None = None,
    run: str | None = None,
    nvml: bool = True,
) -> Iterator[Session]:
    """Record the steps `steps`, such as `range(10, 15)`, of a training loop into a new run below `logdir`.

    With MirroredStrategy and a loop of one's own::

        with traceview.capture_steps("logs", range(10, 15)) as session:
            iterator = iter(strategy.experimental_distribute_dataset(dataset))
            for number in range(100):
                with session.step(number):
                    train_step(next(iterator))

    or, without touching the loop, `train_step = session.wrap(train_step)` before it. Outside the window both
    cost a few microseconds. `nvml` samples the GPUs' driver in the window.
    One more step is recorded on each side where there is one, marked as edge in the sidecar. `session.run` is
    the folder of the trace, None if nothing was recorded: that is a `CaptureWarning`, as is a window that came
    out short, because training matters more than its profile.
    `run` names the run; without it the workers of a cluster that TF_CONFIG tells of find one together.

    Raises `UsageError` for a range that is no window, or holds step 0, or a name that is no folder's, `CaptureError` if
    `logdir` cannot be written or the run has this trace already.
    """
    with (
        _session(logdir, steps, synchronise, max_events, run, nvml) as session,
        session._watching(INPUT_PLACES),
    ):
        yield session


@contextmanager
def _session(
    logdir: str | PathLike[str],
    steps: range,
    synchronise: bool,
    max_events: int | None,
    run: str | None,
    nvml: bool,
) -> Iterator[Session]:
    settings = Settings(
        out=Path(logdir),
        window=StepWindow.of(steps),
        is_synchronised=synchronise,
        max_events=max_events,
        run=run,
        is_nvml_sampled=nvml,
    )
    objects = StepObjects()
    listeners = [*_default_listeners(settings, objects), StopRiskListener(_warn)]
    capture = Capture(settings, _warn, listeners)
    capture.ops_per_call = lambda count: ops_per_call(objects.names, objects, count)
    capture.prepare()
    is_whole = False
    try:
        yield Session(capture, objects)
        is_whole = True
    finally:
        capture.finish(is_synchronised=is_whole)
        for line in _complaints(capture):
            _warn(line)


def _complaints(capture: Capture) -> Iterator[str]:
    recorder = capture.recorder
    if capture.kept is not None:
        yield from shortcomings(recorder)
        yield from coarse_steps(capture.sidecar)
    elif recorder.failures:
        yield f"nothing was captured: {'; '.join(recorder.failures)}"
    else:
        yield (
            f"nothing was captured: the last step of the loop was {recorder.next_number - 1}, and none was "
            f"in the window {recorder.window}"
        )


def _warn(line: str) -> None:
    warnings.warn(line.removeprefix("note: "), CaptureWarning, stacklevel=2)

"""What in the script itself would spoil a capture?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from traceview.capture.preflight.check import Check, failed, listed, ok, warning
from traceview.capture.preflight.script_reading import UNKNOWN, Call, ScriptReading, read_script
from traceview.capture.tracer_options import OPTIONS_IGNORED, release
from traceview.errors import UsageError

_OWN_PROFILES: Final = (
    "profiler.experimental.start",
    "profiler.experimental.Profile",
    "profiler.experimental.server.start",
    "profiler.experimental.client.trace",
)
_GPU: Final = re.compile(r"gpu:(\d{1,9})$", re.IGNORECASE)


def read_scripts(paths: Sequence[Path]) -> tuple[list[ScriptReading], list[Check]]:
    """The scripts that can be read, and a failed check for each of the others."""
    readings, checks = [], []
    for path in paths:
        try:
            readings.append(read_script(path))
        except UsageError as error:
            checks.append(failed("script", error.message, "give the path of a Python file"))
    return readings, checks


def check_scripts(
    readings: Sequence[ScriptReading], *, visible_count: int | None, version: str
) -> Iterator[Check]:
    """What the scripts say. `visible_count`: GPUs that they would see, None if that is not known."""
    for reading in readings:
        found = [
            *_own_profiles(reading),
            *_options(reading, version),
            *_devices(reading, visible_count),
            *_placement(reading),
            *_steps(reading),
        ]
        yield from found
        if not found:
            yield ok("script", f"{reading.path}: nothing that disturbs a capture was seen")
    has_strategy = any(one.strategies for one in readings)
    trains = any(one.imports_tensorflow for one in readings)
    if trains and not has_strategy and (visible_count or 0) > 1:
        yield warning(
            "script-strategy",
            f"no strategy is made in {listed(one.path for one in readings)}: everything runs on the first of "
            f"{visible_count} GPUs",
            "tf.distribute.MirroredStrategy(), and the model in its scope(); if another file does that, name it too",
        )


def _at(reading: ScriptReading, line: int) -> str:
    return f"{reading.path}:{line}"


def _own_profiles(reading: ScriptReading) -> Iterator[Check]:
    for call in reading.named(*_OWN_PROFILES):
        yield warning(
            "script-profiler",
            f"{_at(reading, call.line)}: profiles itself ({_short(call)}); one profile runs at a time",
            "choose --steps at which it does not, or take it out: traceview keeps its own profile and the other is "
            "not taken",
        )
    for call in reading.named("summary.trace_on"):
        if call.keywords.get("profiler"):
            yield warning(
                "script-profiler",
                f"{_at(reading, call.line)}: tf.summary.trace_on(profiler=...) profiles as well",
                "leave profiler out",
            )
    for call in reading.named("callbacks.TensorBoard"):
        batches = call.keywords.get("profile_batch", 0)
        if batches is UNKNOWN or (batches and batches != "0"):
            shown = "a value that is computed" if batches is UNKNOWN else repr(batches)
            yield warning(
                "script-tensorboard",
                f"{_at(reading, call.line)}: TensorBoard(profile_batch={shown}) profiles as well",
                "profile_batch=0, or --steps elsewhere: its numbers count batches from 1 over all epochs",
            )


def _options(reading: ScriptReading, version: str) -> Iterator[Check]:
    number = release(version)
    if number is not None and number not in OPTIONS_IGNORED:
        return
    for call in reading.named("ProfilerOptions"):
        yield warning(
            "script-options",
            f"{_at(reading, call.line)}: ProfilerOptions have no effect in TensorFlow 2.20 and 2.21",
            "do not count on tracer levels; 2.19 takes them",
        )


def _devices(reading: ScriptReading, visible_count: int | None) -> Iterator[Check]:
    name = "script-devices"
    for call in reading.named("MirroredStrategy"):
        devices = call.keywords.get("devices", call.arguments[0] if call.arguments else None)
        if devices is None or devices is UNKNOWN or not isinstance(devices, list | tuple):
            continue
        matches = [_GPU.search(str(device)) for device in devices]
        numbers = sorted({int(match[1]) for match in matches if match})
        here = f"{_at(reading, call.line)}: MirroredStrategy(devices={list(devices)})"
        if visible_count is None:
            continue
        absent = [number for number in numbers if number >= visible_count]
        if absent and visible_count:
            yield failed(
                name,
                f"{here}, and GPU {listed(absent)} is not among {visible_count} visible",
                "leave devices out: it takes all that are visible",
            )
        elif absent:
            yield warning(name, f"{here}, and no GPU is visible here", "run it where the GPUs are")
        elif len(numbers) < visible_count:
            yield warning(
                name,
                f"{here}: {len(numbers)} of {visible_count} visible GPUs are used",
                "leave devices out to use all",
            )
    for call in reading.named("OneDeviceStrategy"):
        yield warning(
            name,
            f"{_at(reading, call.line)}: OneDeviceStrategy uses one device",
            "tf.distribute.MirroredStrategy() uses all",
        )


def _placement(reading: ScriptReading) -> Iterator[Check]:
    if reading.variables_outside:
        places = listed(
            f"{_at(reading, line)} {_without_root(what)}"
            for line, what in reading.variables_outside
        )
        yield warning(
            "script-scope",
            f"made outside strategy.scope(): {places}",
            "make models, optimizers, metrics and variables in `with strategy.scope():`, or they are not mirrored",
        )


def _steps(reading: ScriptReading) -> Iterator[Check]:
    name = "script-steps"
    for call in reading.named("compile"):
        count = call.keywords.get("steps_per_execution", 1)
        if count is UNKNOWN or count == "auto" or (isinstance(count, int) and count > 1):
            yield warning(
                name,
                f"{_at(reading, call.line)}: steps_per_execution={count}: only whole calls of so many steps can "
                "be captured",
                "give --steps in multiples of it, or set it to 1 for the capture",
            )
    eager = [c for c in reading.named("compile") if c.keywords.get("run_eagerly") is True]
    eager += [c for c in reading.named("run_functions_eagerly") if c.arguments[:1] in ((), (True,))]
    for call in eager:
        yield warning(
            name,
            f"{_at(reading, call.line)}: functions run eagerly, op by op",
            "profile what is trained with: take that out",
        )
    for line in reading.loops_inside:
        yield warning(
            name,
            f"{_at(reading, line)}: a loop over training steps inside a tf.function: each call counts as one step",
            "call the step function once per step, or make the loop short for the capture",
        )


def _short(call: Call) -> str:
    return _without_root(call.name)


def _without_root(name: str) -> str:
    return re.sub(r"\btensorflow\.", "tf.", name)

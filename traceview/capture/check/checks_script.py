"""Checks the training script for what would spoil a capture."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from traceview.base.errors import UsageError
from traceview.capture.check.check import Check, Subject, listed
from traceview.capture.check.script_reading import UNKNOWN, ScriptReading, read_script

_OWN_PROFILES: Final = (
    "profiler.experimental.start",
    "profiler.experimental.Profile",
    "profiler.experimental.server.start",
    "profiler.experimental.client.trace",
    "jax.profiler.start_trace",
    "jax.profiler.trace",
    "jax.profiler.start_server",
)
_GPU: Final = re.compile(r"gpu:(\d{1,9})$", re.IGNORECASE)


def read_scripts(paths: Sequence[Path]) -> tuple[list[ScriptReading], list[Check]]:
    """The scripts that can be read, and a failed check for each of the others."""
    readings, checks = [], []
    for path in paths:
        try:
            readings.append(read_script(path))
        except UsageError as error:
            checks.append(Subject("script").failed(error.message, "give the path of a Python file"))
    return readings, checks


def check_scripts(readings: Sequence[ScriptReading], *, visible_count: int) -> Iterator[Check]:
    """Check the scripts. `visible_count`: GPUs that they would see."""
    for reading in readings:
        checks = [
            *_own_profiles(reading),
            *_devices(reading, visible_count),
            *_placement(reading),
        ]
        yield from checks
        if not checks:
            yield Subject("script").ok(f"{reading.path}: no problem found")
    has_strategy = any(reading.strategies for reading in readings)
    trains = any(reading.imports_tensorflow for reading in readings)
    if trains and not has_strategy and visible_count > 1:
        yield Subject("script-strategy").warning(
            f"{listed(reading.path for reading in readings)} creates no strategy: everything runs on the first of "
            f"{visible_count} GPUs",
            "use tf.distribute.MirroredStrategy(), with the model in its scope(); if another file does that, pass it too",
        )


def _at(reading: ScriptReading, line: int) -> str:
    return f"{reading.path}:{line}"


def _own_profiles(reading: ScriptReading) -> Iterator[Check]:
    for call in reading.named(*_OWN_PROFILES):
        yield Subject("script-profiler").warning(
            f"{_at(reading, call.line)}: the script profiles itself ({_without_root(call.name)}), and only one "
            "profile can run at a time",
            "remove it, or choose --steps in which it does not run: inside the window it records nothing",
        )
    for call in reading.named("summary.trace_on"):
        if call.keywords.get("profiler"):
            yield Subject("script-profiler").warning(
                f"{_at(reading, call.line)}: tf.summary.trace_on(profiler=...) profiles too, and only one profile can run at a time",
                "remove profiler=",
            )
    for call in reading.named("callbacks.TensorBoard"):
        batches = call.keywords.get("profile_batch", 0)
        if batches is UNKNOWN or (batches and batches != "0"):
            value = "a computed value" if batches is UNKNOWN else repr(batches)
            yield Subject("script-tensorboard").warning(
                f"{_at(reading, call.line)}: TensorBoard(profile_batch={value}) profiles too, and only one profile can "
                "run at a time",
                "set profile_batch=0, or choose other --steps; profile_batch counts from 1 over all epochs",
            )


def _devices(reading: ScriptReading, visible_count: int) -> Iterator[Check]:
    subject = Subject("script-devices")
    for call in reading.named("MirroredStrategy"):
        devices = call.keywords.get("devices", call.arguments[0] if call.arguments else None)
        if devices is None or devices is UNKNOWN or not isinstance(devices, list | tuple):
            continue
        matches = [_GPU.search(str(device)) for device in devices]
        numbers = sorted({int(match[1]) for match in matches if match})
        here = f"{_at(reading, call.line)}: MirroredStrategy(devices={list(devices)})"
        absent = [number for number in numbers if number >= visible_count]
        if absent and visible_count:
            yield subject.failed(
                f"{here}, but GPU {listed(absent)} is not among the {visible_count} visible GPUs",
                "remove devices=: the strategy then uses all visible GPUs",
            )
        elif absent:
            yield subject.warning(
                f"{here}, but no GPU is visible here", "run it where the GPUs are"
            )
        elif len(numbers) < visible_count:
            yield subject.warning(
                f"{here} uses {len(numbers)} of {visible_count} visible GPUs",
                "remove devices= to use all",
            )
    for call in reading.named("OneDeviceStrategy"):
        yield subject.warning(
            f"{_at(reading, call.line)}: OneDeviceStrategy uses only one device",
            "tf.distribute.MirroredStrategy() uses all GPUs",
        )


def _placement(reading: ScriptReading) -> Iterator[Check]:
    if reading.variables_outside:
        places = listed(
            f"{_at(reading, line)} {_without_root(creator)}"
            for line, creator in reading.variables_outside
        )
        yield Subject("script-scope").warning(
            f"created outside strategy.scope(), so not mirrored: {places}",
            "create models, optimizers, metrics and variables in `with strategy.scope():`",
        )


def _without_root(name: str) -> str:
    return re.sub(r"\btensorflow\.", "tf.", name)

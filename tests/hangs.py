"""Hand-made hangs for the tests: a job of two replicas whose sixth step has not ended for a minute."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from traceview.trace.sidecar.hang import Hang, HangThread, HangWorker

SECOND = 10**9
EXECUTE = "tensorflow/python/eager/execute.py:53 in quick_execute"


def thread(
    *frames: str,
    user_line: str | None = None,
    is_main: bool = True,
    wait: Any = "lock",
    is_moving: bool | None = False,
    computing_ratio: float | None = 0.0,
) -> HangThread:
    """A thread with this stack, the innermost line first; the user's line is the outermost one."""
    return HangThread(
        name="MainThread" if is_main else "thread of a library",
        is_main=is_main,
        is_moving=is_moving,
        wait=wait,
        computing_ratio=computing_ratio,
        user_line=user_line or (frames[-1] if frames else None),
        frames=frames,
    )


def hang(*threads: HangThread, **changes: Any) -> Hang:
    """A hang with these threads, in the call of the step unless `changes` say otherwise."""
    plain = Hang(
        schema_version=1,
        traceview_version="0.1.0",
        host="gpu1",
        pid=4242,
        task=None,
        state="open",
        limit_ns=60 * SECOND,
        noticed_ns=1_800_000_060 * SECOND,
        waited_ns=60 * SECOND,
        total_ns=None,
        step_count=42,
        last_step_ns=1_800_000_000 * SECOND,
        step_function="train_step",
        is_step=True,
        is_first_call=False,
        is_lock_held=False,
        look_ns=SECOND,
        cores=0.01,
        calls_in_look=0,
        other_function=None,
        threads=threads,
    )
    return replace(plain, **changes)


def between_steps(*threads: HangThread, **changes: Any) -> Hang:
    """A hang outside of any call."""
    return hang(*threads, **{"step_function": None, "is_step": False, **changes})


def worker(state: Any = "elsewhere", **changes: Any) -> HangWorker:
    """Worker 1, in a line of its own."""
    plain = HangWorker(
        task="worker 1",
        host="gpu2",
        state=state,
        step_count=42,
        waited_ns=60 * SECOND,
        silent_ns=SECOND,
        line="train.py:50 in write_summary",
    )
    return replace(plain, **changes)


STEP = thread(EXECUTE, "train.py:87 in <module>")

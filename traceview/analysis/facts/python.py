"""Names the line of Python that ran while a device was idle, by the state of the device.

Samples of stacks show it, or frames that a tracer of Python recorded, as JAX's profiler does. Of these only the name of
the file and the first line of the function are known. What no library is known for counts as code of the user.

Where the host is late, that is the line of the thread that runs the steps. Where input or an op on the host is late, it
is that of the other threads, which run generators and `tf.py_function`; those that wait themselves run nothing. Queued work
waits for no Python.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from traceview.analysis.facts.selection import step_bounds
from traceview.analysis.rules.finding import Evidence
from traceview.analysis.rules.words import Line
from traceview.base.ids import is_in, sorted_unique, unique_ids, unique_inverse
from traceview.base.intervals import BoolArray, Int64Array, nesting
from traceview.base.record import Count, Record, Share, SourceLine
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.base.units import PS_PER_NS, PS_PER_US
from traceview.document import numbers
from traceview.ledger.build import with_taken
from traceview.ledger.columns import IDLE, By
from traceview.ledger.states import State
from traceview.ledger.table import Ledger
from traceview.trace.columns import NONE
from traceview.trace.host.host_states import HostStates
from traceview.trace.host.python_lines import PythonLine, PythonLines, python_lines
from traceview.trace.model import Step, Trace, Window
from traceview.trace.sidecar.sidecar import (
    PythonFrame,
    PythonSamples,
    PythonState,
    PythonThread,
)
from traceview.xplane.planes import is_python_frame

_BY_OTHER_THREADS: Final = (State.INPUT, State.HOST_OPS)
_BY_NO_THREAD: Final = (
    State.DEVICE_WAIT,
    State.TURN,
    State.DEPENDENCY,
    State.LATENCY,
    State.NO_WORK,
)
BY_CALLER: Final = frozenset(State) - {*_BY_OTHER_THREADS, *_BY_NO_THREAD}
"""States of an idle device for which the thread that runs the steps is the reason."""

PYTHON_LINE: Final = "python_line"
"""The evidence that names a line; its place says how much of the sampled time was there."""

COMPILING: Final = lazy_pattern(
    r"jax/_src/(?:interpreters/(?:mlir|partial_eval)|compiler|stages)\.py (?!(?:call|__call__)\Z).*|"
    r"jax/_src/pjit\.py (?:_pjit_lower|_resolve_and_lower|_trace_for_jit)|tensorflow/python/(?:autograph/pyct/.*|"
    r"framework/func_graph\.py (?:_create_op_internal|func_graph_from_py_func)|"
    r"eager/polymorphic_function/tracing_compilation\.py _create_concrete_function)",
    re.DOTALL,
)
"""Files and functions that trace, lower and compile (JAX 0.10, TensorFlow 2.21)."""


FEED: Final = (
    "Give that more threads or processes, or less work: what the line asks for is not there yet."
)
OTHERS: Final = "another thread or process"
"""What helps a line that waits in a queue, and what it waits for."""
_AWAITED_IN: Final = {
    "iterator": ("in make_iterator", "in anonymous_iterator_v3"),
    "queue": ("queue.py", "threading.py", "multiprocessing/", "concurrent/futures/"),
    "waits": (
        "socket.py",
        "ssl.py",
        "http/",
        "urllib/",
        "urllib3/",
        "requests/",
    ),
    "coroutines": ("asyncio/", "aiohttp/"),
    "native": ("keras/", "tf_keras/", "jax/_src/array.py"),
}
"""What the line of a library holds in which a thread waits for each of these: its module, or its function."""


_WORKS_INSIDE: Final = {
    "reading_files": lazy_pattern(
        r"(?:(?:h5py|zarr|tables|netCDF4|pandas/io/parsers)/|pyarrow/(?:parquet|feather)|numpy/lib/(?:_npyio|_?format)"
        r"|(?:zipfile|gzip|bz2|lzma|tarfile)[./]).* in (?!\w*(?:write|save|dump|set|create|add|flush|close|copy))",
        re.DOTALL,
    ),
    "decoding_pictures": lazy_pattern(
        r"(?:PIL|cv2|imageio|skimage/io)/.* in (?!\w*save)", re.DOTALL
    ),
    "class_weights": lazy_pattern(r"(?:tf_)?keras/.* in class_weight_to_sample_weights", re.DOTALL),
    "lists_of_rows": lazy_pattern(r"datasets/formatting/formatting\.py:\d+ in extract_"),
    "reports": lazy_pattern(
        r"(?:logging|pandas/io/formats|matplotlib)/|numpy/_?core/arrayprint|json/(?!decoder|scanner).*:\d+ in (?!load)|csv\.py:\d+ in (?:write|_dict_to)"
    ),
}
"""The line of a library that runs Python: of what reads files, makes Python objects of rows (datasets 5.2), or writes down what others read later, by its module or function."""

_CALLS: Final = {
    "autograph": lazy_pattern(r"tensorflow/python/autograph/impl/api\.py"),
    "copies": lazy_pattern(
        r"numpy/.*:\d+ in (?:append|delete|insert)\Z|pandas/.*:\d+ in concat\Z", re.DOTALL
    ),
    "whole_objects": lazy_pattern(r"copy\.py:\d+ in deepcopy\Z"),
    "writing_files": lazy_pattern(
        r"(?:h5py|zarr|tables|netCDF4)/.*:\d+ in __setitem__\Z|numpy/lib/_?npyio.*:\d+ in save"
        r"|(?:joblib|PIL|cv2|scipy/io|pandas)/.*:\d+ in (?:dump|save|write|to_(?:csv|feather|hdf|json|parquet|pickle))\Z",
        re.DOTALL,
    ),
    "reading_files": lazy_pattern(r"pandas/io/(?!formats/).*:\d+ in read_", re.DOTALL),
    "modules": lazy_pattern(r"flax/nnx/(?!.* in cache_args_wrapper\Z)", re.DOTALL),
    "own_code": lazy_pattern(
        r"numpy/lib/_?function_base(?:_impl)?\.py:\d+ in (?:__call__|_?vectorize\w*)"
    ),
}
"""What the user's line calls: what makes the calls of converted code (TensorFlow 2.21), copies arrays, or objects with all that they hold, writes or reads files, takes
modules apart (Flax 0.12), or is `np.vectorize`, which calls a function of the script for each number (NumPy 1.26 and 2.4).
"""
CONVERTED: Final = (
    "Define what `tf.py_function` or `tf.numpy_function` calls outside of mapped and compiled functions: inside of these AutoGraph converts it.",
    "Each call in it then goes through AutoGraph: a step took 25 ms instead of 10, or 24 instead of 14 (TensorFlow 2.21).",
)
"""What helps Python that AutoGraph slows down."""
WORKS_ON: Final = (*_CALLS, *_WORKS_INSIDE)
"""What is known of what a line calls."""

_FRAMEWORKS: Final = ("jax", "keras/", "tensorflow/", "tf_keras/")
_NAMED: Final = lazy_pattern(
    r"(?:tf_)?keras/src/(?:models/cloning|saving|utils)|tensorflow/python/(?:saved_model|summary|training)/"
)
"""Modules of frameworks whose functions do work of their own: a call of one says what a line does (Keras 3.15, TensorFlow 2.21)."""


class PythonShare(Record, frozen=True):
    """The Python that a thread was in for most of some time, from samples of its stack.

    Attributes:
        line: The innermost line of the user's code.
        inner: The line of a library, called from there, that ran; null where the user's own line did.
        ratio: Share of the sampled time that was in the function of that line; a sample stands for the time since the
            one before it.
        called: What the user's line calls of that library, a public function where there is one.
        frees_lock: Whether the thread mostly ran there without Python's lock, as in much of NumPy; null where that was not
            recorded, or where it did both.
        line_ratio: Share of the sampled time that was at that line.
        others: Numbers of other lines of the function with at least half as much, the longest first.
        state: runs: the thread ran Python there; waits: it waited for another thread, a process or a file; native: it was
            in native code of TensorFlow.
    """

    line: SourceLine
    inner: SourceLine | None
    ratio: Share
    state: PythonState = "runs"
    called: SourceLine | None = None
    frees_lock: bool | None = None
    line_ratio: Share = 0.0
    others: tuple[Count, ...] = ()

    @property
    def awaits(self) -> str:
        """What the line waits for, a key of `_AWAITED_IN`; "" where no module shows that, and where other Python runs."""
        lines = (self.called or "", self.inner or "")
        found = (
            key
            for key, at in _AWAITED_IN.items()
            if any(line.startswith(at) or line.endswith(at) for line in lines)
        )
        return next(found, "") if self.state != "runs" else ""

    @property
    def works_on(self) -> str:
        """What the library works on that runs there, a key of `WORKS_ON`; "" where that is not known."""
        for patterns, line in ((_CALLS, self.called), (_WORKS_INSIDE, self.inner)):
            for key, pattern in patterns.items():
                if self.state == "runs" and pattern.match(line or ""):
                    return key
        return ""

    @property
    def argument(self) -> Line:
        """The line as a title names it, with what of a library takes the time there, unless that is a framework or what is awaited."""
        called = None if self.awaits else self.called
        is_of_framework = called and called.startswith(_FRAMEWORKS) and not self.calls_named
        return Line(self.line, None if is_of_framework else called, self.others)

    @property
    def calls_named(self) -> bool:
        """Whether the line calls a function of a framework that does work of its own."""
        return _NAMED.match(self.called or "") is not None

    @property
    def evidence(self) -> Iterator[Evidence]:
        """The line, and how sure it is; what of a library ran there."""
        own, whole = numbers.share(self.line_ratio), numbers.share(self.ratio)
        of_time = f"{own} of the sampled time" + (f", its function {whole}" if whole != own else "")
        yield Evidence(PYTHON_LINE, self.line, None, "", of_time, value_is="line")
        if self.inner:
            yield Evidence("library_line", self.inner, None, "", value_is="line")


class HostPython(Struct, frozen=True, eq=False):
    """The samples of one host. `caller`: the number of the thread that runs the steps, `NONE` if it was not sampled.

    `is_sampled`: they are samples of stacks, not recorded frames, which show the thread of the steps alone.
    """

    lines: PythonLines
    caller: int
    is_sampled: bool = True

    def in_each(
        self, state: State, start_ps: Int64Array, end_ps: Int64Array, group: Int64Array, count: int
    ) -> list[PythonLine | None]:
        """The line that ran in each of `count` groups of spans, in which a device was idle in a state; None without samples.

        `start_ps`, `end_ps`, `group`: int64 `[n]`, in time order and apart.
        """
        if state in _BY_NO_THREAD:
            return [None] * count
        spans = start_ps, end_ps, group, count
        if state in _BY_OTHER_THREADS:
            # Input waits for what loads it, even where that waits for a disk; an op waits for what computes.
            return self.lines.of_others(self.caller, *spans, may_wait=state == State.INPUT)
        return self.lines.in_each(self.caller, *spans)

    def of_others(self, window: Window) -> PythonLine | None:
        """The line of the user's code that the other threads ran in a window."""
        start, end = np.array([window.start_ps]), np.array([window.end_ps])
        return self.in_each(State.INPUT, start, end, np.zeros(1, dtype=np.int64), 1)[0]


def python_of_hosts(trace: Trace, states: Mapping[int, HostStates]) -> dict[int, HostPython]:
    """The samples by host index, of the hosts that have any."""
    python = {}
    for host, of_host in states.items():
        lines = python_lines(trace, host)
        if lines is not None:
            callers = np.flatnonzero(of_host.thread == of_host.caller).tolist()
            known = [thread for thread in map(lines.thread_of, callers) if thread != NONE]
            python[host] = HostPython(lines, known[0] if known else NONE)
        elif (recorded := _recorded_frames(trace, of_host, host)) is not None:
            python[host] = HostPython(recorded, 0, is_sampled=False)
    return python


_FRAME: Final = lazy_pattern(rb"\$([^:]+):(\d{1,9}) (.+)", re.DOTALL)
_OF_FRAMEWORKS: Final = lazy_pattern(
    r"(?:"
    # JAX 0.10
    "ad|ad_util|api|api_util|array|array_constructors|array_creation|array_methods|basearray|batching|callback|compiler|"
    "config|core|custom_derivatives|dispatch|dtypes|einsum|indexing|lax|lax_numpy|layout|linear_util|literals|mlir|"
    "monitoring|named_sharding|op_shardings|ops|partial_eval|partition_spec|path|pjit|pmap|prng|profiler|pxla|reductions|"
    "shard_map|sharding|sharding_impls|sharding_specs|source_info_util|stages|tensor_contractions|traceback_util|"
    "tree_util|ufunc_api|ufuncs|util|xla|xla_bridge|"
    # Keras 3
    "array_data_adapter|callback_list|compile_utils|data_adapter|data_adapter_utils|epoch_iterator|"
    "generator_data_adapter|global_state|io_utils|keras_tensor|progbar|py_dataset_adapter|python_utils|stateless_scope|"
    r"optree_impl|traceback_utils|variable_mapping)\.py|<.*",
    re.DOTALL,
)
_OF_NUMPY: Final = lazy_pattern(
    r"(?:_methods|einsumfunc|fromnumeric|function_base|numeric|overrides|shape_base|stride_tricks|"
    r"_\w+_impl|__init__)\.py"
)
"""Files of JAX and Keras, and of NumPy, that are open while a step is called: without a path a name is all that is known."""
_OF_KERAS: Final = "epoch_iterator.py"
_TRAINER: Final = "trainer.py"
"""A file of Keras, where another one of it is, and else one of the script."""
_FRAME_INTERVAL_PS: Final = 100 * PS_PER_US
_MOST_ROUNDS: Final = 1 << 20


def _recorded_frames(trace: Trace, states: HostStates, host: int) -> PythonLines | None:
    """What frames of Python show of the thread that runs the steps, read as samples of its stack; None without frames."""
    columns, rows = trace.host_columns, states.rows_of_thread(states.caller)
    rows = rows[trace.names.where(columns.name[rows], is_python_frame)]
    if not rows.size:
        return None
    start, end = columns.start_ps[rows], columns.end_ps[rows]
    names, name = unique_inverse(columns.name[rows])
    frames = [_frame(trace.names[each]) for each in names.tolist()]
    is_keras = any(frame.file == _OF_KERAS for frame in frames)
    is_outside = np.array(
        [
            frame.line > 0
            and _OF_FRAMEWORKS.fullmatch(frame.file) is None
            and not (is_keras and frame.file == _TRAINER)
            for frame in frames
        ],
        dtype=np.bool_,
    )
    is_user = is_outside & np.array([_is_of_script(frame.file) for frame in frames], dtype=np.bool_)
    if not is_outside.any():
        return None
    first, last = int(start.min()), int(end.max())
    time = np.arange(first, last, max(_FRAME_INTERVAL_PS, (last - first) // _MOST_ROUNDS))
    user, outside, innermost = (
        np.append(name[of], NONE)[nesting(start[of], end[of]).innermost(time)]
        for of in map(np.flatnonzero, (is_user[name], is_outside[name], name != NONE))
    )
    # Below a function of the script that was called before the recording, the library that it calls is all that is known.
    innermost = np.where(user == NONE, outside, innermost)
    user = np.where(user == NONE, outside, user)
    pairs, stack = unique_inverse((innermost + 1) * (names.size + 1) + user + 1)
    count = np.int64(names.size + 1)
    stacks = [
        tuple(dict.fromkeys((inner - 1, outer - 1))) if outer else ()
        for inner, outer in zip((pairs // count).tolist(), (pairs % count).tolist(), strict=True)
    ]
    t_ns = (time - trace.hosts[host].start_ps) // PS_PER_NS
    samples = PythonSamples(
        t_ns=t_ns,
        thread=np.zeros(time.size, dtype=np.int32),
        stack=stack.astype(np.int32),
        around=np.zeros(time.size, dtype=np.int32),
        cpu_us=np.full(time.size, -1, dtype=np.int64),
        # Each stands for the time since the one before it: nothing changed in between.
        late_ns=np.full(time.size, -1, dtype=np.int64),
        threads=(PythonThread(None, None, None),),
        frames=tuple(
            PythonFrame(frame.file, frame.function, frame.line, bool(own))
            for frame, own in zip(frames, is_user, strict=True)
        ),
        stacks=tuple(stacks),
        callers=((),),
        collected_ns=np.empty((0, 2), dtype=np.int64),
    )
    return PythonLines(trace, host, samples, 0)


def _is_of_script(file: str) -> bool:
    """Whether a file outside of frameworks is of the script, by its name: of no library."""
    is_known = file.partition(".")[0] in sys.stdlib_module_names
    return not is_known and _OF_NUMPY.fullmatch(file) is None


def _frame(name: bytes) -> PythonFrame:
    """The frame of a recorded event, `$file.py:12 function`; of a function that is not in Python `$module function`."""
    parts = _FRAME.fullmatch(name)
    file, line, function = parts.groups() if parts else (*name[1:].partition(b" ")[:1], b"0", name)
    return PythonFrame(
        file.decode("utf-8", "replace"), function.decode("utf-8", "replace"), int(line), False
    )


def shared(line: PythonLine) -> PythonShare:
    """A line as a record."""
    inner, called = (str(each) if each else None for each in (line.inner, line.called))
    lines = line.line_ratio, line.others
    return PythonShare(str(line), inner, line.ratio, line.state, called, line.frees_lock, *lines)


def python_of_rows(
    python_of_host: Mapping[int, HostPython], ledger: Ledger, rows: BoolArray, state: State
) -> PythonShare | None:
    """The line that ran in rows of the ledger, on the host that loses most in them; None if none was sampled there."""
    host_of, lost = ledger.trace.host_of_device, Counter[int]()
    for device, ps in ledger.by_device(rows).items():
        lost[int(host_of[device])] += ps
    host = max(lost, key=lambda host: lost[host], default=NONE)
    if host not in python_of_host:
        return None
    columns, python = ledger.columns, python_of_host[host]
    of_host = [device for device in ledger.devices if host_of[device] == host]
    # Ops that are slower beside a line do not show when it ran.
    slowed = rows & (columns.activity != IDLE) & (columns.by_kind == By.PYTHON)
    slowed_ps, whole_ps = (int(columns.duration_ps[each].sum()) for each in (slowed, rows))
    if 2 * slowed_ps > whole_ps:
        named = (ledger.python[by] for by in unique_ids(columns.by[slowed]).tolist())
        line = python.lines.calling(python.caller, named)
    else:
        spans = ledger.spans_of(of_host, with_taken(columns, rows & ~slowed))
        whole = np.zeros(spans.start.size, dtype=np.int64)
        line = python.in_each(state, spans.start, spans.end, whole, 1)[0]
    return shared(line) if line else None


def python_of_steps(
    ledger: Ledger, steps: Mapping[int, Sequence[Step]], python: Mapping[int, HostPython]
) -> dict[int, list[PythonShare | None]]:
    """By host index, for each of its steps: what the thread that runs them was in while it kept a device waiting."""
    late: BoolArray = ledger.columns.activity == IDLE
    late &= is_in(ledger.columns.state, sorted(BY_CALLER))
    by_host = {}
    for host, of_host in python.items():
        own = [d for d in ledger.devices if ledger.trace.device_list[d].host == host]
        waits = ledger.spans_of(own, late)
        first, last = step_bounds(steps[host])
        bounds = sorted_unique(np.concatenate((first, last)))
        start, end, _, _ = SWEEPS.cut(waits.start, waits.end, bounds)
        step = nesting(first, last).innermost(start)
        inside, count = step != NONE, len(steps[host])
        spans = start[inside], end[inside], step[inside]
        lines = of_host.lines.in_each(of_host.caller, *spans, count)
        by_host[host] = [shared(line) if line else None for line in lines]
    return by_host

"""Sums the compute of each device by label (an op, a kernel and an instruction), and says what its products would take at the peak.

What an op is has to be asked once for each label, and not for each event. XLA programs say the floating-point operations of
their instructions; captures say those of the ops of TensorFlow's graphs. An op may run several kernels: it ran as often as
that which took longest.

Planes of TPUs say their peak; a table has those of GPUs: dense rates of tensor or matrix cores where a precision has them, at the
highest clock, as their makers state, of GeForce cards with accumulation in float32. Sources: data sheets of NVIDIA V100, P100, T4,
A100, A30, A10, A40, L4, L40, L40S, H100, H200, HGX B200, RTX A6000, RTX 6000 Ada; white papers of Ampere GA102 and Ada; data sheets
and CDNA white papers of AMD MI100, MI210, MI250X (per die, which is a device), MI300X and MI325X.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import dropwhile
from operator import itemgetter
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from traceview.analysis.facts.devices import model_of
from traceview.analysis.facts.functions import functions_called
from traceview.analysis.facts.graph_ops import named_in_graphs
from traceview.analysis.facts.layers import jitted_functions, label_kernels, label_places
from traceview.analysis.facts.selection import step_bounds
from traceview.analysis.measures.context import Context
from traceview.analysis.rules.words import Argument, Line, Names
from traceview.base.ids import unique_ids
from traceview.base.intervals import BoolArray, Int32Array, Int64Array, union
from traceview.base.sweeping import SWEEPS
from traceview.base.text import lazy_pattern
from traceview.base.units import PS_PER_US
from traceview.ledger.states import State
from traceview.ledger.table import totals
from traceview.trace.columns import NONE
from traceview.trace.device.kernel_names import NumberFormat
from traceview.trace.device.op_names import label_callers, label_lines, of_instructions, op_labels
from traceview.trace.model import Recording, Trace
from traceview.xplane.planes import ActivityClass

FloatArray: TypeAlias = npt.NDArray[np.float64]


class ByLabel(Struct, frozen=True, eq=False):
    """Whole numbers by label (`op_labels`), `count` of them; 0 where a device did not run what the label names, as most do not.

    The others: int32 `label`, ascending, and int64 `value`.
    """

    label: Int32Array
    value: Int64Array
    count: int

    @classmethod
    def of(cls, every: Int64Array) -> ByLabel:
        """The same numbers, of all labels."""
        label = np.flatnonzero(every)
        return cls(label.astype(np.int32), every[label], every.size)

    @property
    def every(self) -> Int64Array:
        """The numbers of all labels, int64 `[labels]`; made anew each time."""
        every = np.zeros(self.count, dtype=np.int64)
        every[self.label] = self.value
        return every

    @property
    def total(self) -> int:
        """Their sum."""
        return int(self.value.sum())

    def where(self, is_wanted: BoolArray) -> ByLabel:
        """The same with 0 for all labels but those that are wanted, bool `[labels]`."""
        chosen = is_wanted[self.label]
        return ByLabel(self.label[chosen], self.value[chosen], self.count)


def time_by_label(context: Context) -> dict[int, ByLabel]:
    """By device how long it computes what each label names, picoseconds; of the rows that take part in sums."""
    ledger, labels = context.ledger, context.trace.once(op_labels)
    columns = ledger.columns
    is_compute = ledger.rows(states=(State.COMPUTE,)).view(np.uint8)
    slices = {device: ledger.rows_of(device) for device in ledger.devices}
    return {
        device: ByLabel.of(
            SWEEPS.totals(
                labels.of_row[columns.event[own]],
                columns.duration_ps[own],
                labels.row.size,
                is_compute[own],
            )
        )
        for device, own in slices.items()
    }


def rows_of_labels(
    context: Context,
    is_wanted: BoolArray,
    devices: Collection[int] | None = None,
    states: Sequence[State] = (State.COMPUTE,),
) -> BoolArray:
    """The rows of the ledger in which some devices, by default all, compute what these labels name, bool `[n]`."""
    ledger, of_row = context.ledger, context.trace.once(op_labels).of_row
    computing = np.flatnonzero(ledger.rows(states=states, devices=devices))
    rows = np.zeros(ledger.count, dtype=np.bool_)
    rows[computing[is_wanted[of_row[ledger.columns.event[computing]]]]] = True
    return rows


DISPATCH: Final = (State.HOST_OPS, State.LAUNCH)
"""What devices wait for while the host hands them ops."""

LEFT_OUT_RATIO: Final = 0.12
"""Of the GPU time in ops that a step could be without, from which on these are a finding."""

_LONGEST_DISPATCH_PS: Final = 200 * PS_PER_US
"""Before an op; what is longer waits for more than its dispatch. A choice of ours: a hundred ops take 20 µs each."""


def dispatch_of_labels(
    context: Context, is_wanted: BoolArray, devices: Collection[int] | None = None
) -> BoolArray:
    """The rows of the ledger in which some devices, by default all, wait for the dispatch of what these labels name, bool `[n]`."""
    rows = rows_of_labels(context, is_wanted, devices, DISPATCH)
    rows &= context.ledger.columns.duration_ps <= _LONGEST_DISPATCH_PS
    return rows


def dispatch_left_out(context: Context) -> BoolArray:
    """The rows of the ledger in which ops are handed over that a step could be without, as graphs of the capture say, bool `[n]`."""
    ledger, named = context.ledger, context.trace.once(named_in_graphs)
    found = np.zeros(ledger.count, dtype=np.bool_)
    for field in ("constant_ops", "batch_ops", "untrained_ops"):
        dispatch = dispatch_of_labels(context, named[field])
        if ledger.loss(dispatch | rows_of_labels(context, named[field])).share >= LEFT_OUT_RATIO:
            found |= dispatch
    return found


def needless(
    context: Context,
    is_wanted: BoolArray,
    states: Sequence[State] = (State.COMPUTE, State.COMMUNICATION),
) -> tuple[BoolArray, float]:
    """The rows of the ledger of what these labels name, also where it is exchanged, and how much of that programs do not need."""
    rows = rows_of_labels(context, is_wanted, states=states)
    part = of_instructions(context.trace, lambda each: each.part, 0.0)
    of_row = part[context.trace.once(op_labels).of_row[context.ledger.columns.event[rows]]]
    whole_ps = context.ledger.columns.duration_ps[rows]
    return rows, 1 - float((of_row * whole_ps).sum()) / max(int(whole_ps.sum()), 1)


def program_of(context: Context, rows: BoolArray) -> dict[str, Argument]:
    """The compiled function that most of some rows are of, where there are several."""
    ledger, functions = context.ledger, context.trace.once(functions_called)
    of_rows = functions.of_event[ledger.columns.event[rows]]
    known = of_rows != NONE
    if len(functions.names) < 2 or not known.any():
        return {}
    ps = SWEEPS.totals(
        of_rows[known], ledger.columns.duration_ps[rows][known], len(functions.names)
    )
    return {"program": Names((functions.names[int(ps.argmax())],), "function")}


_TINY_PS: Final = 5 * PS_PER_US
"""Recording an op of XLA on the CPU takes 0.7 µs: a step of 9,700 ops took 11.3 instead of 4.9 ms. Without those that drew numbers, a
third of it, it took no less (JAX 0.10, two cores). A choice of ours."""


def are_tiny(context: Context, rows: BoolArray) -> bool:
    """Whether ops of CPU devices take hardly longer than recording them."""
    ledger, devices = context.ledger, context.trace.device_list
    is_cpu = np.array([each.kind == "replica" for each in devices], dtype=np.bool_)
    rows = rows & is_cpu[ledger.device]
    events = unique_ids(ledger.columns.event[rows])
    return 0 < int(ledger.columns.duration_ps[rows].sum()) < _TINY_PS * events.size


def line_of(context: Context, by_label: Int64Array) -> dict[str, Argument]:
    """The line of Python that made most of what takes some time, int64 by label: more than half of it, or most of the function that did.

    It is the argument `line` of a sentence; nothing without one.
    """
    lines, callers = context.trace.once(label_lines), context.trace.once(label_callers)
    ps_of, of_function, called_in = Counter[str](), Counter[str](), dict[str, Counter[str]]()
    for label in np.flatnonzero(by_label).tolist():
        function, ps = function_of(lines[label]), int(by_label[label])
        ps_of[lines[label]] += ps
        of_function[function] += ps
        called_in.setdefault(function, Counter())[callers[label]] += ps
    for line, ps in ps_of.most_common():
        function = function_of(line)
        if line and 2 * (of_function[function] if function else ps) > ps_of.total():
            (caller, from_ps), whole_ps = (
                called_in[function].most_common(1)[0],
                of_function[function],
            )
            # Who asks for most of it, where several do.
            is_asked = (
                caller and 2 * from_ps > whole_ps and context.trace.once(_callers)[function] > 1
            )
            return {"line": Line(caller, line) if is_asked else Line(line)}
    return {}


def asked_for_most(context: Context, labels: BoolArray, ps: Int64Array) -> BoolArray:
    """Of labels of one function those that one line of the script asks for, if most; else all. `ps`: how long each takes."""
    callers = np.array(context.trace.once(label_callers), dtype=np.object_)
    ps_of = Counter[str]()
    for label in np.flatnonzero(labels).tolist():
        ps_of[callers[label]] += int(ps[label])
    caller, from_ps = max(ps_of.items(), key=itemgetter(1), default=("", 0))
    if not caller or 2 * from_ps <= ps_of.total():
        return labels
    asked: BoolArray = labels & (callers == caller)
    return asked


def _callers(trace: Recording) -> Mapping[str, int]:
    """By function of the script how many lines call it."""
    called = {
        *zip(map(function_of, trace.once(label_lines)), trace.once(label_callers), strict=True)
    }
    return Counter(function for function, caller in called if function and caller)


def function_of(line: str) -> str:
    """`model.py in call`; "" of a line without a function."""
    place, _, function = line.partition(" in ")
    return f"{place.rpartition(':')[0]} in {function}" if function else ""


def layer_of(context: Context, by_label: Int64Array) -> dict[str, Argument]:
    """The layer of most of what takes some time, int64 by label, which may stand for a line where none is known, as in layers of Keras."""
    made, functions = context.trace.once(label_places), context.trace.once(jitted_functions)
    whole, ps_of = totals(made.place, by_label, len(made.places)), Counter[str]()
    for place, ps in zip(made.places, whole.tolist(), strict=True):
        ps_of["/".join(dropwhile(functions.__contains__, place.scopes))] += ps
    layer, ps = max(ps_of.items(), key=itemgetter(1), default=("", 0))
    return {"line": Names((layer,), "op")} if layer and 2 * ps > ps_of.total() else {}


def line_of_rows(context: Context, rows: BoolArray) -> dict[str, Argument]:
    """The same of the ops that run in these rows of the ledger, or begin after them."""
    return line_of(context, label_ps(context, rows))


def label_ps(context: Context, rows: BoolArray) -> Int64Array:
    """How long these rows of the ledger are in which each label runs, or begins after them, int64 picoseconds `[labels]`."""
    columns, labels = context.ledger.columns, context.trace.once(op_labels)
    known = rows & (columns.event != NONE)
    of_row = labels.of_row[columns.event[known]]
    return totals(of_row, columns.duration_ps[known], labels.row.size)


def counted_events(context: Context, device: int) -> Int64Array:
    """The compute of a device that begins in a used step, or without steps in the window; rows of the device columns."""
    trace, ledger = context.trace, context.ledger
    columns, own = trace.device_columns, trace.device_columns.rows_of(device)
    begin, window = columns.start_ps[own], context.selection.window_of_device(trace, device)
    starts, ends = step_bounds(context.selection.used_of(trace.device_list[device].host))
    if not ledger.has_steps and window is not None:
        starts, ends = np.array([[window.start_ps], [window.end_ps]], dtype=np.int64)
    is_counted = columns.class_[own] == ActivityClass.COMPUTE
    place = np.searchsorted(starts, begin, side="right") - 1
    inside = (place >= 0) & (begin < np.append(ends, 0)[place])
    rows: Int64Array = np.flatnonzero(is_counted & inside) + own.start
    return rows


# Operations

_PRODUCT: Final = lazy_pattern(r"MatMul|Conv[23]D|Conv[23]d|Einsum|Attention|RNN")
_OTHER_WORK: Final = lazy_pattern(
    r"Xla|[Pp]y_?[Ff]unc|LSTM|GRU|TRTEngine|TPUExecute|Banded|Call$|^_?(?:Stateless)?(?:While|If|Case)$|Cholesky|Svd|Qr$|Eig|FFT|^Lu$|Matrix(?:Inverse|Solve|Tri|Det|Exp|Log)"
)
"""Types of ops that multiply, or run what does, without saying how much."""

_MOST_SCOPES: Final = 32


def label_flops(trace: Recording) -> FloatArray:
    """By label (`op_labels`) the operations of one run, float64: 0 for what is no product, NaN where they are not known."""
    columns, rows = trace.device_columns, trace.once(op_labels).row
    instruction, op = columns.instruction[rows], columns.op[rows]
    flops: FloatArray = of_instructions(
        trace, lambda each: np.nan if each.flops is None else float(each.flops), np.nan
    )
    recorded: dict[str, int | None] = {}
    for host in trace.hosts:
        for name, known in host.captured.graphs.flops.items():
            # None where hosts differ.
            recorded[name] = known if recorded.setdefault(name, known) == known else None
    for label in np.flatnonzero((instruction == NONE) & (op != NONE)).tolist():
        flops[label] = _of_op(trace.names.text(int(op[label])) or "", recorded)
    return flops


def _of_op(text: str, recorded: Mapping[str, int | None]) -> float:
    """The operations of an op by its text, `scope/name:Type`; the runtime may put the names of calls before its own."""
    name, _, type_ = text.rpartition(":")
    if not name or _OTHER_WORK.search(type_):
        return np.nan
    if not _PRODUCT.search(type_):
        return 0.0
    for _ in range(_MOST_SCOPES):
        if name in recorded:
            flops = recorded[name]
            return np.nan if flops is None else float(flops)
        _, slash, name = name.partition("/")
        if not slash:
            break
    return np.nan


class DeviceFlops(Struct, frozen=True, eq=False):
    """The ops of one device that begin in its used steps, by label: how many events, how long they took, and how often the op ran.

    `of_run`: the operations of one run, as of `label_flops`. `ran_ps`: how long at least one of them ran. On the CPU it is longer than the compute
    of the ledger, in which short ops are a part of dispatch.
    """

    of_run: FloatArray
    runs: ByLabel
    count: ByLabel
    duration_ps: ByLabel
    ran_ps: int

    @property
    def known_flops(self) -> FloatArray:
        """The operations by label, 0 where not known."""
        return np.nan_to_num(self.runs.every * self.of_run)


def flops_by_device(context: Context) -> dict[int, DeviceFlops]:
    """The operations of each device that ran any op in its used steps."""
    trace, ledger = context.trace, context.ledger
    columns, labels = trace.device_columns, trace.once(op_labels)
    of_run = trace.once(label_flops)
    # An instruction of a program, else an op; a kernel without a name is by itself.
    instruction, op = columns.instruction[labels.row], columns.op[labels.row].astype(np.int64)
    group = np.where(instruction != NONE, -2 - instruction.astype(np.int64), op)
    result = {}
    for device in ledger.devices:
        rows = counted_events(context, device)
        if not rows.size:
            continue
        label = labels.of_row[rows]
        time = SWEEPS.totals(label, columns.duration_ps[rows], group.size)
        count = ByLabel.of(np.bincount(label, minlength=group.size))
        own = group[count.label]
        order = np.lexsort((time[count.label], own))
        is_longest = np.zeros(group.size, dtype=np.bool_)
        is_longest[count.label[order[np.append(np.diff(own[order]) != 0, True)]]] = True
        result[device] = DeviceFlops(
            of_run,
            count.where(is_longest),
            count,
            ByLabel.of(time),
            int(union(columns.start_ps[rows], columns.end_ps[rows]).length),
        )
    return result


# Peaks


_FORMATS: Final[Mapping[int | None, NumberFormat]] = {
    2: NumberFormat.INT8,
    10: NumberFormat.FP16,
    12: NumberFormat.FP64,
    16: NumberFormat.BF16,
    **dict.fromkeys((19, 20, 23, 24, 25, 28, 29), NumberFormat.FP8),
}
"""The precision of a product by the type of what it multiplies in a program (`PrimitiveType`); float32 may become TF32."""


def label_precisions(trace: Recording) -> npt.NDArray[np.uint8]:
    """By label (`op_labels`) the `NumberFormat` that its kernel shows, else that of its instruction, uint8."""
    precision, unknown = trace.once(label_kernels).precision, NumberFormat.UNKNOWN
    multiplied = of_instructions(
        trace, lambda each: _FORMATS.get(each.operand_type, unknown), unknown
    )
    return np.where(precision == unknown, multiplied.astype(np.uint8), precision)


class _Peak(Struct, frozen=True):
    """Rates of a model in teraFLOP/s: fp64, fp32, tf32, bf16, fp16 and 8 bits, None where it does not have that precision.

    `model`: a pattern of its name. `chip`: major and minor capability and number of cores, where no GPU of another rate has
    the same: planes of AMD GPUs have no name.
    """

    model: str
    rates: tuple[float | None, ...]
    chip: tuple[int, int, int] | None = None


_PEAKS: Final = (
    _Peak(r"P100-SXM2", (5.3, 10.6, None, None, 21.2)),
    _Peak(r"P100-PCI", (4.7, 9.3, None, None, 18.7)),
    _Peak(r"V100-SXM2", (7.8, 15.7, None, None, 125)),
    _Peak(r"V100-PCI", (7.0, 14.0, None, None, 112)),
    _Peak(r"\bT4\b", (0.25, 8.1, None, None, 65, 130)),
    _Peak(r"\bA100\b", (19.5, 19.5, 156, 312, 312, 624), (8, 0, 108)),
    _Peak(r"\bA30\b", (10.3, 10.3, 82, 165, 165, 330)),
    _Peak(r"\bA10\b", (0.49, 31.2, 62.5, 125, 125, 250)),
    _Peak(r"\bA40\b", (0.58, 37.4, 74.8, 149.7, 149.7, 299.3)),
    _Peak(r"RTX A6000", (0.6, 38.7, 77.4, 154.8, 154.8, 309.7)),
    _Peak(r"RTX 6000 Ada", (1.4, 91.1, 182.1, 364.2, 364.2, 728.5)),
    _Peak(r"\bL4\b", (0.47, 30.3, 60, 121, 121, 242)),
    _Peak(r"\bL40S\b", (1.4, 91.6, 183, 362, 362, 733)),
    _Peak(r"\bL40\b", (1.4, 90.5, 90.5, 181, 181, 362)),
    _Peak(r"RTX 3090$", (0.56, 35.6, 35.6, 71, 71, 284)),
    _Peak(r"RTX 4090$", (1.3, 82.6, 82.6, 165.2, 165.2)),
    _Peak(r"H100 PCIe", (51, 51, 378, 756, 756, 1513), (9, 0, 114)),
    _Peak(r"H[12]00 NVL", (60, 60, 417.5, 835.5, 835.5, 1671)),
    _Peak(r"H100 80GB HBM3|H200|GH200", (67, 67, 494.7, 989.4, 989.4, 1978.9)),
    _Peak(r"\bB200\b", (37, 75, 1125, 2250, 2250, 4500)),
    _Peak(r"MI100\b", (11.5, 46.1, None, 92.3, 184.6, 184.6)),
    _Peak(r"MI210\b", (45.3, 45.3, None, 181, 181, 181)),
    _Peak(r"MI250X\b", (47.9, 47.9, None, 191.5, 191.5, 191.5)),
    _Peak(r"MI3(?:00|25)X\b", (163.4, 163.4, 653.7, 1307.4, 1307.4, 2614.9), (9, 4, 304)),
)


_RATED: Final = (
    *(NumberFormat.FP64, NumberFormat.FP32, NumberFormat.TF32, NumberFormat.BF16),
    *(NumberFormat.FP16, NumberFormat.INT8, NumberFormat.FP8),
)
_TERA: Final = 10**12
_LARGEST: Final = 1e6
"""No device does as many teraFLOP/s."""

_PART: Final = lazy_pattern(r"MIG|-\d{1,4}[QCAB]$")
"""In names of parts of GPUs: `A100-SXM4-40GB MIG 1g.5gb`, `GRID T4-4Q`."""


def peak_flops(trace: Trace, device: int) -> dict[NumberFormat, int]:
    """The most FLOP/s of a device by precision; none of a part of a GPU, of which model and plane say less than they should."""
    entry, model = trace.device_list[device], model_of(trace, device)
    if entry.kind == "tpu":
        stated = entry.stats.get("peak_teraflops_per_second")
        if not isinstance(stated, int | float) or not 0 < stated <= _LARGEST:
            return {}
        return {NumberFormat.BF16: round(stated * _TERA)}
    if entry.kind != "gpu" or _PART.search(model or ""):
        return {}
    chip = tuple(
        entry.count(key) for key in ("compute_cap_major", "compute_cap_minor", "core_count")
    )
    for peak in _PEAKS:
        if re.search(peak.model, model) if model else peak.chip == chip:
            rates = zip(_RATED, (*peak.rates, *peak.rates[5:]), strict=False)
            return {each: round(rate * _TERA) for each, rate in rates if rate}
    return {}

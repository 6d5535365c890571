"""Lists the topics of a report: a field of `Results` per topic, in the order of the report, and nothing else."""

from typing import Annotated, Any, Final, get_args

from traceview.analysis import (
    balance,
    between_steps,
    capture,
    collectives,
    device_time,
    environment,
    idle,
    input,
    lanes,
    launches,
    nvml,
    ops,
    placement,
    precision,
    scaling,
    steps,
    transfers,
    utilization,
)
from traceview.analysis.balance.compute import Balance
from traceview.analysis.base import Rule
from traceview.analysis.between_steps import BetweenAllSteps
from traceview.analysis.collectives.compute import CollectiveResult
from traceview.analysis.context import Analysis
from traceview.analysis.device_time.compute import DeviceTime
from traceview.analysis.environment import Environment
from traceview.analysis.idle.compute import Idle
from traceview.analysis.input.compute import Input
from traceview.analysis.launches.compute import Launches
from traceview.analysis.nvml.compute import OutsideView
from traceview.analysis.ops import Ops
from traceview.analysis.placement import Placement
from traceview.analysis.precision import Precision
from traceview.analysis.scaling import Scaling
from traceview.analysis.steps.compute import Steps
from traceview.analysis.transfers.compute import Transfers
from traceview.document.chart import Lanes, UtilizationStrips
from traceview.record import Record


class Results(Record, frozen=True):
    """Results by topic; null where there is none, with the reason in `skipped`.

    Attributes:
        device_time: How busy each device was, and with what.
        timeline: What each device did when, in equal slices.
        lanes: What a timeline draws: the events of each device and thread, merged where they are short.
        idle: What each device waited for.
        steps: How long each step took, and how the steps were found.
        between_steps: What the host did between steps.
        input: Whether the model waits for data, and which stage of the pipeline is slow.
        transfers: What copies between host and GPUs cost.
        collectives: What collectives cost, and who waits for whom.
        balance: How evenly the devices worked, and what an even share would gain.
        scaling: The run beside one on a single device.
        launches: How the host starts the kernels of each GPU.
        precision: With which precision each GPU computes.
        ops: The ops and kernels that take most time.
        environment: Versions, strategy, batch size and settings of the job.
        placement: Where variables and ops were placed, as the capture found them.
        outside_view: What NVML says of the GPUs while the trace was recorded.
    """

    device_time: Annotated[DeviceTime | None, device_time.ANALYSIS] = None
    timeline: Annotated[UtilizationStrips | None, utilization.ANALYSIS] = None
    lanes: Annotated[Lanes | None, lanes.ANALYSIS] = None
    idle: Annotated[Idle | None, idle.ANALYSIS] = None
    steps: Annotated[Steps | None, steps.ANALYSIS] = None
    between_steps: Annotated[BetweenAllSteps | None, between_steps.ANALYSIS] = None
    input: Annotated[Input | None, input.ANALYSIS] = None
    transfers: Annotated[Transfers | None, transfers.ANALYSIS] = None
    collectives: Annotated[CollectiveResult | None, collectives.ANALYSIS] = None
    balance: Annotated[Balance | None, balance.ANALYSIS] = None
    scaling: Annotated[Scaling | None, scaling.ANALYSIS] = None
    launches: Annotated[Launches | None, launches.ANALYSIS] = None
    precision: Annotated[Precision | None, precision.ANALYSIS] = None
    ops: Annotated[Ops | None, ops.ANALYSIS] = None
    environment: Annotated[Environment | None, environment.ANALYSIS] = None
    placement: Annotated[Placement | None, placement.ANALYSIS] = None
    outside_view: Annotated[OutsideView | None, nvml.ANALYSIS] = None


ANALYSES: Final[tuple[Analysis[Any], ...]] = tuple(
    get_args(annotation)[1] for annotation in Results.__annotations__.values()
)
"""The topics with a field of their own among the results, in the order of the report."""

TOPICS: Final[tuple[Analysis[Any], ...]] = (capture.ANALYSIS, *ANALYSES)
"""Every topic; the result of `capture` stands at the top of a report."""

RULES: Final[dict[str, Rule]] = {rule.code: rule for topic in TOPICS for rule in topic.rules}
"""Every rule by its code, in the order of the topics."""

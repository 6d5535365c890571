"""Lists the topics of a report: a field of `Results` per topic, in the order of the report, and nothing else."""

from typing import Annotated, Any, Final, get_args

from traceview.analysis.exchange.balance import ANALYSIS as BALANCE
from traceview.analysis.exchange.balance import Balance
from traceview.analysis.exchange.collective_sums import CollectiveResult
from traceview.analysis.exchange.collectives import ANALYSIS as COLLECTIVES
from traceview.analysis.exchange.transfers import ANALYSIS as TRANSFERS
from traceview.analysis.exchange.transfers import Transfers
from traceview.analysis.gpu_time.device_states import ANALYSIS as LEDGER
from traceview.analysis.gpu_time.device_states import LedgerSums
from traceview.analysis.gpu_time.device_time import ANALYSIS as DEVICE_TIME
from traceview.analysis.gpu_time.idle import ANALYSIS as IDLE
from traceview.analysis.gpu_time.input import ANALYSIS as INPUT
from traceview.analysis.gpu_time.input import Input
from traceview.analysis.gpu_time.lanes import ANALYSIS as LANES
from traceview.analysis.gpu_time.lanes import STRIPS
from traceview.analysis.gpu_time.op_steps import ANALYSIS as OP_STEPS
from traceview.analysis.gpu_time.op_steps import OpSteps
from traceview.analysis.gpu_time.steps import ANALYSIS as STEPS
from traceview.analysis.machine.capture import ANALYSIS as CAPTURE
from traceview.analysis.machine.environment import ANALYSIS as ENVIRONMENT
from traceview.analysis.machine.hang import ANALYSIS as HANG
from traceview.analysis.machine.hang import Hangs
from traceview.analysis.machine.load import ANALYSIS as NVML
from traceview.analysis.machine.load import Nvml
from traceview.analysis.measures.context import Analysis
from traceview.analysis.measures.device_report import DeviceTime, Environment
from traceview.analysis.measures.idle_report import Idle
from traceview.analysis.measures.step_report import Steps
from traceview.analysis.rules.rule import Rule
from traceview.analysis.workload.compute import ANALYSIS as COMPUTE
from traceview.analysis.workload.compute import Compute
from traceview.analysis.workload.efficiency import ANALYSIS as EFFICIENCY
from traceview.analysis.workload.efficiency import PRECISION, Efficiency, Precision
from traceview.analysis.workload.layers import ANALYSIS as LAYERS
from traceview.analysis.workload.layers import Layers
from traceview.analysis.workload.memory import ANALYSIS as MEMORY
from traceview.analysis.workload.memory import Memory
from traceview.analysis.workload.ops import ANALYSIS as OPS
from traceview.analysis.workload.ops import TopOps
from traceview.base.record import Record
from traceview.document.figures import Lanes, UtilizationStrips


class Results(Record, frozen=True):
    """Results by topic; null where there is none, with the reason in `skipped`.

    Attributes:
        device_time: How busy each device was, and with what.
        timeline: What each device did when, in equal slices.
        lanes: What a timeline draws: the events of each device and thread, merged where they are short.
        ledger: Where the GPU time went: the mean step of each device by state.
        idle: What each device waited for.
        steps: How long each step took, and how the steps were found.
        input: Whether the model waits for data, and which stage of the pipeline is slow.
        transfers: What copies between host and GPUs cost.
        collectives: What collectives cost, and who waits for whom.
        balance: How evenly the devices worked, and which one the others wait for.
        precision: With which precision each GPU computes, and how much of it its kernels can fill.
        efficiency: How many FLOP/s the compute does, and how far it is from the peak of the device.
        layers: Which layers of the model take the compute, by phase of the step and line of Python.
        memory: What fills the memory of the GPUs at its peak, and how it changes from step to step.
        ops: The ops and kernels that take most time.
        op_steps: What each op takes of the used steps and of the critical path, to compare it with another run.
        compute: What devices compute: types of ops, what is in float64 or the same in every step, and how much goes to
            Python, printing and summaries inside the step, and to the optimizer.
        environment: Versions, strategy, batch size and settings of the job.
        outside_view: What NVML says of the GPUs while the trace was recorded.
        hangs: Times in which no training step ended, as the capture reported them.
    """

    device_time: Annotated[DeviceTime | None, DEVICE_TIME] = None
    timeline: Annotated[UtilizationStrips | None, STRIPS] = None
    lanes: Annotated[Lanes | None, LANES] = None
    ledger: Annotated[LedgerSums | None, LEDGER] = None
    idle: Annotated[Idle | None, IDLE] = None
    steps: Annotated[Steps | None, STEPS] = None
    input: Annotated[Input | None, INPUT] = None
    transfers: Annotated[Transfers | None, TRANSFERS] = None
    collectives: Annotated[CollectiveResult | None, COLLECTIVES] = None
    balance: Annotated[Balance | None, BALANCE] = None
    precision: Annotated[Precision | None, PRECISION] = None
    efficiency: Annotated[Efficiency | None, EFFICIENCY] = None
    layers: Annotated[Layers | None, LAYERS] = None
    memory: Annotated[Memory | None, MEMORY] = None
    ops: Annotated[TopOps | None, OPS] = None
    op_steps: Annotated[OpSteps | None, OP_STEPS] = None
    compute: Annotated[Compute | None, COMPUTE] = None
    environment: Annotated[Environment | None, ENVIRONMENT] = None
    outside_view: Annotated[Nvml | None, NVML] = None
    hangs: Annotated[Hangs | None, HANG] = None


ANALYSES: Final[tuple[Analysis[Any], ...]] = tuple(
    get_args(annotation)[1] for annotation in Results.__annotations__.values()
)
"""The topics with a field of their own among the results, in the order of the report."""

TOPICS: Final[tuple[Analysis[Any], ...]] = (CAPTURE, *ANALYSES)
"""Every topic; the result of `capture` is at the top of a report."""

RULES: Final[dict[str, Rule]] = {rule.code: rule for topic in TOPICS for rule in topic.rules}
"""Every rule by its code, in the order of the topics."""

"""Environment: versions, strategy, batch size and settings of the job, as the capture recorded them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Final

from traceview.analysis.machine.load import FEW_CORES, NATIVE_THREADS, OTHER_PROCESSES, without_core
from traceview.analysis.measures.context import Analysis, View
from traceview.analysis.measures.device_report import Environment, HostEnvironment, environment_of
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.sanitize import shortened

LONGEST_FACT: Final = 60
"""Characters of a fact; the middle of a longer one is left out."""

SHOWN_VARIABLES: Final = 4
"""Environment variables that are shown: one line; the JSON report has all."""
_SHOWN_VALUES: Final = 3
"""Different values of one fact that are shown with their hosts."""
_SHOWN_HOSTS: Final = 3
"""Hosts that are named; more of them are counted."""
_SEVERAL: Final = 2

SOFTWARE: Final = {
    "Keras": "keras",
    "tf_keras": "tf_keras",
    "CUDA": "cuda",
    "cuDNN": "cudnn",
    "NCCL": "nccl",
    "driver": "driver",
    "Python": "python",
}
"""Versions that are shown, by display name the field."""

PUBLIC_NAMES: Final = {"CollectiveAllReduceStrategy": "MultiWorkerMirroredStrategy"}
"""Classes by the name that scripts use for them."""


def environment_section(view: View, result: Environment) -> doc.Section | None:
    """What is known of the job beyond `job_facts`, which a document begins with."""
    del view
    details = job_details(result)
    return doc.Section("environment", "Environment", doc.facts(*details)) if details else None


def job_facts(environment: Environment) -> list[str]:
    """Strategy, mesh, batch, size of the model, precision and framework, a few words each."""
    return list(_facts(environment.hosts, _job))


def job_details(environment: Environment) -> list[str]:
    """Command, software, settings and variables, and the hosts without a sidecar."""
    details = [*_facts(environment.hosts, _details), *_variables(environment.hosts)]
    if environment.unknown:
        details.append(f"no sidecar of {numbers.listed(environment.unknown, most=_SHOWN_HOSTS)}")
    return details


def _facts(
    hosts: Sequence[HostEnvironment], facts_of: Callable[[HostEnvironment], Iterable[str | None]]
) -> Iterator[str]:
    """The facts of the hosts, each once. `facts_of`: those of one host, in an order; None where one is not known."""
    for texts in zip(*map(facts_of, hosts), strict=True):
        hosts_by_text: dict[str, list[str]] = {}
        for host, text in zip(hosts, texts, strict=True):
            if text:
                hosts_by_text.setdefault(text, []).append(host.host)
        for text, names in list(hosts_by_text.items())[:_SHOWN_VALUES]:
            is_everywhere = len(names) == len(hosts)
            where = "" if is_everywhere else f" on {numbers.listed(names, most=_SHOWN_HOSTS)}"
            yield f"{shortened(text, LONGEST_FACT)}{where}"
        if len(hosts_by_text) > _SHOWN_VALUES:
            yield f"{len(hosts_by_text) - _SHOWN_VALUES} other values on other hosts"


def _job(host: HostEnvironment) -> Iterator[str | None]:
    """Strategy, mesh, batch, size of the model, precision and framework."""
    yield _strategy(host)
    yield _mesh(host)
    batch = host.batch
    is_split = batch.per_replica not in (None, batch.global_)
    each = f" ({numbers.count(batch.per_replica)} per replica)" if is_split else ""
    yield None if batch.global_ is None else f"batch {numbers.count(batch.global_)}{each}"
    parameters = host.training.parameters
    yield None if parameters is None else f"{numbers.short(parameters)} parameters"
    policies = host.precision.policy or {}
    is_one = len(set(policies.values())) == 1
    of_modules = ", ".join(f"{module} {policy}" for module, policy in policies.items())
    yield f"Keras policy {next(iter(policies.values()))}" if is_one else of_modules
    versions = host.versions
    tensorflow = None if versions.tensorflow is None else f"TensorFlow {versions.tensorflow}"
    yield tensorflow if versions.jax is None else f"JAX {versions.jax}{_jax_devices(host)}"


def _jax_devices(host: HostEnvironment) -> str:
    """` on 16 NVIDIA H100 in 2 processes`."""
    setup, several = host.jax, host.jax.process_count or 0
    processes = f" in {several} processes" if several >= _SEVERAL else ""
    is_known = setup.device_count is not None and setup.device_kind is not None
    return f" on {setup.device_count} {setup.device_kind}{processes}" if is_known else ""


def _mesh(host: HostEnvironment) -> str | None:
    """The mesh over which the arguments of the step are split."""
    meshes = [a.mesh for f in host.jax.functions if f.is_step for a in f.arguments if a.mesh]
    axes = [f"{axis} {size}" for axis, size in (meshes[0] if meshes else {}).items()]
    return f"mesh {' × '.join(axes)}" if axes else None


def _strategy(host: HostEnvironment) -> str | None:
    strategy = host.strategy
    if strategy.class_ is None:
        return strategy.missing.get("class")
    name = PUBLIC_NAMES.get(strategy.class_, strategy.class_)
    if not strategy.is_used:
        return f"{name} in the script, not used by the step"
    if strategy.replicas is None:
        return name
    return f"{name} on {numbers.plural(strategy.replicas, 'replica')}"


def _details(host: HostEnvironment) -> Iterator[str | None]:
    """Command, software, how gradients are summed, and XLA."""
    script, *arguments = host.command.script or ("",)
    yield shlex.join([PurePath(script).name, *arguments]) if script else None
    versions = {name: getattr(host.versions, field) for name, field in SOFTWARE.items()}
    yield ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    strategy = host.strategy
    sums = strategy.is_used and (strategy.replicas or 0) >= _SEVERAL and strategy.cross_device_ops
    yield f"gradients summed by {strategy.cross_device_ops}" if sums else None
    level = host.xla.auto_jit
    yield None if level in (None, "off") else f"XLA auto-clustering on ({level})"


def _variables(hosts: Sequence[HostEnvironment]) -> Iterator[str]:
    names = sorted({name for host in hosts for name in host.variables or ()})

    def shown(host: HostEnvironment) -> Iterator[str | None]:
        for name in names[:SHOWN_VARIABLES]:
            value = (host.variables or {}).get(name)
            yield None if value is None else f"{name}={value}"

    yield from _facts(hosts, shown)
    if len(names) > SHOWN_VARIABLES:
        yield numbers.plural(len(names) - SHOWN_VARIABLES, "more environment variable")


ANALYSIS: Final = Analysis[Environment](
    "environment",
    compute=lambda context: environment_of(context.trace),
    rules=(OTHER_PROCESSES, FEW_CORES, NATIVE_THREADS),
    diagnose=lambda context, _: without_core(context),
    sections=(environment_section,),
)

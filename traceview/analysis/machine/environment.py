"""Environment: versions, strategy, batch size and settings of the job, as the capture recorded them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import PurePath
from typing import Final, TypeAlias

from traceview.analysis.measures.context import Analysis, View
from traceview.analysis.measures.environment import Environment, HostEnvironment, compute
from traceview.document import model as doc
from traceview.document import numbers
from traceview.document.sanitize import shortened

__all__ = ["ANALYSIS", "Environment"]


LONGEST_FACT: Final = 60
"""Characters of a fact; the middle of a longer one is left out."""

SHOWN_VARIABLES: Final = 4
"""Environment variables that are shown: one line; the JSON report has all."""
_SHOWN_VALUES: Final = 3
"""Different values of one fact that are shown with their hosts."""
_SHOWN_HOSTS: Final = 3
"""Hosts that are named; more of them are counted."""
_SEVERAL: Final = 2

PUBLIC_NAMES: Final = {"CollectiveAllReduceStrategy": "MultiWorkerMirroredStrategy"}
"""Classes by the name that scripts use for them."""

_Fact: TypeAlias = Callable[[HostEnvironment], str | None]


def environment_section(view: View, result: Environment) -> doc.Section | None:
    """What is known of the job beyond `job_facts`, which a document begins with."""
    del view
    details = job_details(result)
    return doc.Section("environment", "Environment", doc.facts(*details)) if details else None


def job_facts(environment: Environment) -> list[str]:
    """Strategy, mesh, batch, size of the model, precision and framework, a few words each."""
    wanted = (_strategy, _mesh, _batch, _parameters, _precision, _framework)
    return list(_facts(environment.hosts, wanted))


def job_details(environment: Environment) -> list[str]:
    """Command, task, software, settings and variables, and the hosts without a sidecar."""
    wanted = (_command, _task, _software, _reduction, _xla, _memory, _links)
    details = [*_facts(environment.hosts, wanted), *_variables(environment.hosts)]
    if environment.unknown:
        details.append(f"no sidecar of {numbers.listed(environment.unknown, most=_SHOWN_HOSTS)}")
    return details


def _facts(hosts: Sequence[HostEnvironment], wanted: Iterable[_Fact]) -> Iterator[str]:
    for fact in wanted:
        hosts_by_text: dict[str, list[str]] = {}
        for host in hosts:
            text = fact(host)
            if text is not None:
                hosts_by_text.setdefault(text, []).append(host.host)
        yield from _by_host(hosts_by_text, len(hosts))


def _by_host(hosts_by_text: dict[str, list[str]], host_count: int) -> Iterator[str]:
    if len(hosts_by_text) == 1 and len(next(iter(hosts_by_text.values()))) == host_count:
        yield shortened(next(iter(hosts_by_text)), LONGEST_FACT)
        return
    for text, names in list(hosts_by_text.items())[:_SHOWN_VALUES]:
        yield f"{shortened(text, LONGEST_FACT)} on {numbers.listed(names, most=_SHOWN_HOSTS)}"
    if len(hosts_by_text) > _SHOWN_VALUES:
        yield f"{len(hosts_by_text) - _SHOWN_VALUES} other values on other hosts"


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


def _batch(host: HostEnvironment) -> str | None:
    batch = host.batch
    if batch.global_ is None:
        return None
    each = ""
    if batch.per_replica not in (None, batch.global_):
        each = f" ({numbers.count(batch.per_replica)} per replica)"
    return f"batch {numbers.count(batch.global_)}{each}"


def _parameters(host: HostEnvironment) -> str | None:
    count = host.training.parameters
    return None if count is None else f"{_short(count)} parameters"


def _short(count: int) -> str:
    """`641`, `12.3 k`, `1.2 M`, `175.0 G`."""
    for factor, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        # 999,950 would be rounded to 1000.0 k: it is 1.0 M.
        if count >= factor * 0.99995:
            return f"{count / factor:,.1f} {letter}"
    return str(count)


def _precision(host: HostEnvironment) -> str | None:
    policies = host.precision.policy or {}
    if len(set(policies.values())) == 1:
        return f"Keras policy {next(iter(policies.values()))}"
    return ", ".join(f"{module} {policy}" for module, policy in policies.items()) or None


def _framework(host: HostEnvironment) -> str | None:
    versions = host.versions
    if versions.jax is not None:
        return f"JAX {versions.jax}"
    return None if versions.tensorflow is None else f"TensorFlow {versions.tensorflow}"


def _mesh(host: HostEnvironment) -> str | None:
    """The mesh over which the arguments of the step are split."""
    meshes = [a.mesh for f in host.jax.functions if f.is_step for a in f.arguments if a.mesh]
    axes = [f"{axis} {size}" for axis, size in (meshes[0] if meshes else {}).items()]
    return f"mesh {' × '.join(axes)}" if axes else None


def _command(host: HostEnvironment) -> str | None:
    if not host.command.script:
        return None
    script, *arguments = host.command.script
    return shlex.join([PurePath(script).name, *arguments])


def _task(host: HostEnvironment) -> str | None:
    task = host.cluster
    if task.role is None or task.index is None:
        return None
    count = (task.sizes or {}).get(task.role)
    return f"{task.role} {task.index}" + ("" if count is None else f" of {count}")


def _software(host: HostEnvironment) -> str | None:
    versions = host.versions
    parts = {
        "Keras": versions.keras,
        "tf_keras": versions.tf_keras,
        "CUDA": versions.cuda,
        "cuDNN": versions.cudnn,
        "NCCL": versions.nccl,
        "driver": versions.driver,
        "Python": versions.python,
    }
    return ", ".join(f"{name} {version}" for name, version in parts.items() if version) or None


def _reduction(host: HostEnvironment) -> str | None:
    strategy = host.strategy
    if not strategy.is_used or (strategy.replicas or 0) < _SEVERAL:
        return None
    packs = "" if strategy.packs is None else f" in {numbers.plural(strategy.packs, 'pack')}"
    if strategy.cross_device_ops is None:
        return None
    return f"gradients summed by {strategy.cross_device_ops}{packs}"


def _xla(host: HostEnvironment) -> str | None:
    level = host.xla.auto_jit
    return None if level in (None, "off") else f"XLA auto-clustering on ({level})"


def _memory(host: HostEnvironment) -> str | None:
    growth = {gpu.memory_growth for gpu in host.devices.physical or () if gpu.type == "GPU"}
    return "memory growth on" if growth == {True} else None


def _links(host: HostEnvironment) -> str | None:
    links = {
        f"PCIe {gpu.pcie_generation_max} x{gpu.pcie_width_max}"
        + (f" and {gpu.nvlinks.active} NVLinks" if gpu.nvlinks and gpu.nvlinks.active else "")
        for gpu in host.links.gpus or ()
        if gpu.pcie_generation_max is not None and gpu.pcie_width_max is not None
    }
    return " or ".join(sorted(links)) or None


def _variable(name: str, host: HostEnvironment) -> str | None:
    value = (host.variables or {}).get(name)
    return None if value is None else f"{name}={value}"


def _variables(hosts: Sequence[HostEnvironment]) -> Iterator[str]:
    names = sorted({name for host in hosts for name in host.variables or ()})

    yield from _facts(hosts, (partial(_variable, name) for name in names[:SHOWN_VARIABLES]))
    if len(names) > SHOWN_VARIABLES:
        yield numbers.plural(len(names) - SHOWN_VARIABLES, "more environment variable")


ANALYSIS: Final = Analysis[Environment](
    "environment", compute=lambda context: compute(context.trace), sections=(environment_section,)
)

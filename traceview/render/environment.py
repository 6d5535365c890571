"""Which job was it? A few lines from the sidecars; all that they hold is in the JSON.

What all hosts agree on is said once, what they do not with the hosts' names.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Final, TypeAlias

from traceview.analysis.environment import Environment, HostEnvironment
from traceview.document import numbers
from traceview.document.page import Page
from traceview.render import numbers
from traceview.report.model import Report

WIDEST_FACT: Final = 60
SHOWN_VARIABLES: Final = 4
_SHOWN_VALUES: Final = 3
_SHOWN_HOSTS: Final = 3
_SEVERAL: Final = 2

PUBLIC_NAMES: Final = {"CollectiveAllReduceStrategy": "MultiWorkerMirroredStrategy"}
"""Classes that scripts know by the name under which tf.distribute has them."""

_Fact: TypeAlias = Callable[[HostEnvironment], str | None]


def add_job(page: Page, report: Report) -> None:
    """Strategy, batch, size, precision and TensorFlow, before the verdict; nothing without a sidecar."""
    if report.results.environment is not None:
        page.facts(job_facts(page, report.results.environment))


def add_environment(page: Page, report: Report) -> None:
    """What else is known of the job, as a section of its own; nothing without a sidecar."""
    environment = report.results.environment
    details = job_details(page, environment) if environment is not None else []
    if details:
        page.heading("Environment")
        page.facts(details)


def job_facts(page: Page, environment: Environment) -> list[str]:
    """What a job is, in a few words each: strategy, batch, size, precision, TensorFlow."""
    facts = (_strategy, _batch, _parameters, _precision, _tensorflow)
    return list(_facts(page, environment.hosts, facts))


def job_details(page: Page, environment: Environment) -> list[str]:
    """Command, task, software, settings and variables, and the hosts of which nothing is known."""
    facts = (_command, _task, _software, _reduction, _xla, _memory, _links)
    details = [*_facts(page, environment.hosts, facts), *_variables(page, environment.hosts)]
    if environment.unknown:
        details.append(f"no sidecar of {numbers.listed(environment.unknown, most=_SHOWN_HOSTS)}")
    return details


def _facts(page: Page, hosts: Sequence[HostEnvironment], facts: Iterable[_Fact]) -> Iterator[str]:
    for fact in facts:
        told: dict[str, list[str]] = {}
        for host in hosts:
            text = fact(host)
            if text is not None:
                told.setdefault(text, []).append(host.host)
        yield from _by_host(told, len(hosts), page)


def _by_host(told: dict[str, list[str]], host_count: int, page: Page) -> Iterator[str]:
    if len(told) == 1 and len(next(iter(told.values()))) == host_count:
        yield page.middle(next(iter(told)), WIDEST_FACT)
        return
    for text, names in list(told.items())[:_SHOWN_VALUES]:
        yield f"{page.middle(text, WIDEST_FACT)} on {numbers.listed(names, most=_SHOWN_HOSTS)}"
    if len(told) > _SHOWN_VALUES:
        yield f"{len(told) - _SHOWN_VALUES} other values on other hosts{page.ellipsis}"


def _strategy(host: HostEnvironment) -> str | None:
    strategy = host.strategy
    if strategy.class_ is None:
        return strategy.missing.get("class")
    name = PUBLIC_NAMES.get(strategy.class_, strategy.class_)
    if not strategy.is_used:
        return f"{name} in the script, not seen in the step"
    if strategy.replicas is None:
        return name
    return f"{name} on {numbers.plural(strategy.replicas, 'replica')}"


def _batch(host: HostEnvironment) -> str | None:
    batch = host.batch
    if batch.global_ is None:
        return None
    each = "" if batch.per_replica is None else f" ({numbers.count(batch.per_replica)} per replica)"
    return f"batch {numbers.count(batch.global_)}{each}"


def _parameters(host: HostEnvironment) -> str | None:
    count = host.training.parameters
    return None if count is None else f"{_short(count)} parameters"


def _short(count: int) -> str:
    """`641`, `12.3 k`, `1.2 M`, `175.0 G`."""
    for factor, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        # What would be rounded up to 1000 of a letter is one of the next.
        if count >= factor * 0.99995:
            return f"{count / factor:,.1f} {letter}"
    return str(count)


def _precision(host: HostEnvironment) -> str | None:
    policies = host.precision.policy or {}
    if len(set(policies.values())) == 1:
        return next(iter(policies.values()))
    return ", ".join(f"{module} {policy}" for module, policy in policies.items()) or None


def _tensorflow(host: HostEnvironment) -> str | None:
    version = host.versions.tensorflow
    return None if version is None else f"TensorFlow {version}"


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
    return None if strategy.cross_device_ops is None else f"{strategy.cross_device_ops}{packs}"


def _xla(host: HostEnvironment) -> str | None:
    level = host.xla.auto_jit
    return None if level in (None, "off") else f"XLA compiles by itself ({level})"


def _memory(host: HostEnvironment) -> str | None:
    growth = {one.memory_growth for one in host.devices.physical or () if one.type == "GPU"}
    return "memory growth on" if growth == {True} else None


def _links(host: HostEnvironment) -> str | None:
    told = {
        f"PCIe {gpu.pcie_generation_max} x{gpu.pcie_width_max}"
        + (f" and {gpu.nvlinks.active} NVLinks" if gpu.nvlinks and gpu.nvlinks.active else "")
        for gpu in host.links.gpus or ()
        if gpu.pcie_generation_max is not None and gpu.pcie_width_max is not None
    }
    return " or ".join(sorted(told)) or None


def _variables(page: Page, hosts: Sequence[HostEnvironment]) -> Iterator[str]:
    names = sorted({name for host in hosts for name in host.variables or ()})

    def of(name: str) -> _Fact:
        def told(host: HostEnvironment) -> str | None:
            value = (host.variables or {}).get(name)
            return None if value is None else f"{name}={value}"

        return told

    yield from _facts(page, hosts, map(of, names[:SHOWN_VARIABLES]))
    if len(names) > SHOWN_VARIABLES:
        yield numbers.plural(len(names) - SHOWN_VARIABLES, "more variable")

"""Defines rules: when a finding is made, the rows of the ledger that are its loss, its sentences, and what it explains."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from traceview.analysis.rules.finding import (
    EXPLAINS,
    OF_A_DISTURBANCE,
    SEVERITIES,
    Confidence,
    Evidence,
    Finding,
    FindingLoss,
    OfDevice,
    Severity,
)
from traceview.analysis.rules.words import Argument, Devices, Lost, Quantity, filled
from traceview.base.ids import unique_ids
from traceview.base.intervals import BoolArray
from traceview.base.text import lazy_pattern
from traceview.document import numbers
from traceview.document.phrase import Phrase, plain
from traceview.ledger.states import State
from traceview.ledger.table import Ledger, Loss
from traceview.trace.model import Recording, Trace, damaged_hosts
from traceview.trace.strategy.replicas import CPU

if TYPE_CHECKING:
    from typing_extensions import Unpack

CAPTURE_ALL: Final = (
    "Capture on all of them at the same steps, into one folder: `traceview capture --output DIR`."
)
"""What to do where processes of a run have no file."""

LIMIT: Final = 0.05
"""Share of the GPU time from which on a loss is a problem; less is noise or not worth a change."""

CRITICAL_LIMIT: Final = 0.20
"""Share of the GPU time from which on a loss is critical."""


AWAITED_RATIO: Final = 0.10
"""Part of a loss from which on a sentence says that devices wait so long for others; below it no bar looks wrong."""

Advised: TypeAlias = str | tuple[str, str]
"""An action, alone or with further advice."""


class _Selected(Protocol):
    @property
    def has_few_steps(self) -> bool: ...


class _Analysed(Protocol):
    """What a loss is made from: a ledger, and whether its steps are too few."""

    @property
    def ledger(self) -> Ledger: ...

    @property
    def selection(self) -> _Selected: ...


class Words(TypedDict, total=False):
    """What a finding says beside its loss, as of `Rule.finding`."""

    title: str
    action: str
    notes: Sequence[str]
    severity: Severity | None


class Rule(Struct, frozen=True, kw_only=True):
    """When a finding is made, what it means, and what to do about it.

    All texts are templates (`words`). `title`: who, what, how much of what, where in the code, in 20 words;
    `titles`: others, by a key that a finding names. `meaning`: why that costs time. `action`: the one thing to do
    first, in one sentence of at most 140 characters; `advice`: what else helps, and how to see it; `actions`: other
    actions, with their advice if there is any, by key, of which `jax` is for traces that JAX wrote. `notes`: sentences that a finding may add
    to the meaning; `reasons`: why it is as sure as it is. `metrics`: words for the metrics of its evidence. `at_least`: keys of
    titles whose loss costs more than its rows.

    `limit`: the share of the GPU time from which on it is made; `limits`: what else has to hold. `starts_at`: when it
    is made, in one sentence, with `{limit}` and the names of `limits` in braces. `states`: of its rows; empty where it
    has no loss, and `severity` is fixed, unless the rule says when it has one of `other_severities`. `explains`: findings that are a consequence of this one, of some only those with one title, `code/title`. `is_of_absence`: it
    concludes from what the trace lacks. `example`: a title.
    """

    code: str
    title: str
    meaning: str
    action: str
    starts_at: str
    example: str
    advice: str = ""
    titles: Mapping[str, str] = {}
    actions: Mapping[str, Advised] = {}
    notes: Mapping[str, str] = {}
    reasons: Mapping[str, str] = {}
    metrics: Mapping[str, str] = {}
    at_least: tuple[str, ...] = ()
    limit: float = LIMIT
    limits: Mapping[str, float] = {}
    states: tuple[State, ...] = ()
    severity: Severity | None = None
    other_severities: tuple[Severity, ...] = ()
    explains: tuple[str, ...] = ()
    is_of_absence: bool = False

    def finding(
        self,
        *,
        arguments: Mapping[str, Argument] | None = None,
        loss: FindingLoss | None = None,
        confidence: tuple[Confidence, str] = ("high", ""),
        evidence: Sequence[Evidence] = (),
        devices: Sequence[str] = (),
        steps: Sequence[int] = (),
        title: str = "",
        action: str = "",
        notes: Sequence[str] = (),
        severity: Severity | None = None,
    ) -> Finding:
        """A finding by this rule. `title`, `action`, `notes`, and the second of `confidence`: keys of its sentences."""
        sure, reason = confidence
        made = Finding(
            code=self.code,
            severity="info",
            confidence=sure,
            arguments=dict(arguments or {}),
            loss=loss,
            evidence=tuple(evidence),
            devices=tuple(devices),
            steps=tuple(steps),
            sentences=(title, action, reason, *notes),
        )
        return rendered(
            replace(made, severity=severity or self.severity or severity_of(made)), self
        )

    def about(
        self,
        context: _Analysed,
        rows: Sequence[OfDevice],
        arguments: Mapping[str, Argument],
        metric: str = "",
        threshold: float | None = None,
        *,
        evidence: Sequence[Evidence] = (),
        loss: FindingLoss | None = None,
        confidence: tuple[Confidence, str] = ("high", ""),
        **words: Unpack[Words],
    ) -> Finding | None:
        """The finding about the devices of these rows, which the argument `who` names; None without any.

        `metric`: the field of each row that is evidence, with the `threshold` of all. `words`: as of `finding`.
        """
        if not rows:
            return None
        keys = tuple(dict.fromkeys(row.device for row in rows))
        shown = [
            Evidence(metric, getattr(row, metric), threshold, row.device) for row in rows if metric
        ]
        return self.finding(
            arguments={"who": devices_argument(context, keys), **arguments},
            evidence=[*shown, *evidence],
            loss=loss,
            confidence=confidence,
            devices=keys,
            **words,
        )

    def of_rows(
        self,
        context: _Analysed,
        rows: BoolArray,
        *,
        arguments: Mapping[str, Argument] | None = None,
        named: Collection[int] | None = None,
        confidence: tuple[Confidence, str] = ("high", ""),
        evidence: Sequence[Evidence] = (),
        steps: Sequence[int] = (),
        keeps_waiting: bool = False,
        shares_cores: bool = False,
        takes_cores: bool = False,
        is_divided: bool = False,
        saved_ratio: float = 1.0,
        **words: Unpack[Words],
    ) -> Finding | None:
        """The finding whose loss these rows of the ledger are; None where they are less than the limit.

        `named`: devices that the title names, numbers of the device list; by default those that lose at least half as
        much as the one that loses most. The arguments `who` and `loss` are made here. With few steps the
        confidence is low. `keeps_waiting`: the loss holds what other devices wait meanwhile for these, which the title then names, too; `shares_cores`: of replicas on
        CPUs no more than they take of the cores. `takes_cores`: the rows
        are parts of what lasted longer without a core, and say how much and not when, so no path holds them. `is_divided`: the work that is
        waited for remains, divided evenly over all devices. `saved_ratio`: the
        loss is this part of it, for the rest remains. `words`: as of `finding`.
        """
        ledger, trace = context.ledger, context.ledger.trace
        numbers_of = {trace.device_key(device): device for device in ledger.devices}
        waiting: tuple[str, ...] = ()
        if keeps_waiting and named is None:
            # Who waits for them is no cause.
            named = [numbers_of[key] for key in ledger.loss(rows).devices]
            of_all = ledger.loss(rows, keeps_waiting=True).devices
            waiting = tuple(key for key in of_all if numbers_of[key] not in named)
        lost, awaited_ps = ledger.loss(rows, named), 0
        if keeps_waiting:
            whole = ledger.loss(rows, named, keeps_waiting=True)
            if shares_cores:
                whole = _on_shared_cores(ledger, rows, whole)
            more_ps = whole.mean_ps - lost.mean_ps
            if more_ps >= AWAITED_RATIO * whole.mean_ps:
                awaited_ps = int(more_ps * saved_ratio)
            if waiting or awaited_ps:
                lost = whole
        lost = lost.times(saved_ratio)
        if not lost.ps or lost.share < self.limit:
            return None
        # What did nothing in the whole recording did nothing, however few steps it holds.
        few = context.selection.has_few_steps and not self.is_of_absence
        hosts = (trace.hosts[trace.device_list[numbers_of[key]].host] for key in lost.devices)
        cut = not damaged_hosts(trace).isdisjoint(host.name for host in hosts)
        # Work that a device was not given is on no path: to give it some shortens the step, by what is not known. What a
        # thread does beside other processes also waits for their cores, which its own rows do not hold.
        is_bound = not takes_cores and State.NO_WORK not in self.states
        # Of what costs more than its rows the rows are no bound.
        is_bound &= words.get("title", "") not in self.at_least
        is_bound &= (
            not {State.NO_CORE, State.DEVICE_WAIT}.isdisjoint(self.states)
            or ledger.without_core_ratio < LIMIT
        )
        bound_ps = ledger.bound_ps(rows) if is_bound else None
        if bound_ps is not None and is_divided:
            bound_ps = int(lost.share * lost.of_ps)
        if bound_ps is not None and saved_ratio < 1:
            bound_ps = int(bound_ps * saved_ratio)
        if bound_ps is not None:
            # The path runs through the device that loses most, and holds waits that remain.
            bound_ps = min(bound_ps, lost.mean_ps)
        until_input_ps = int(lost.of_ps * (1 - min(ledger.input_ratio, 1.0)))
        then_input = bound_ps is not None and bound_ps > until_input_ps
        then_input &= _INPUT_GOES_ON.issuperset(self.states)
        if then_input:
            bound_ps = until_input_ps
        loss = replace(finding_loss(lost, bound_ps, self.states), then_input=then_input)
        return self.finding(
            arguments={
                "who": devices_argument(context, lost.devices),
                "loss": replace(lost_argument(loss), awaited_ps=awaited_ps),
                **_who_waits(context, rows, waiting),
                **(arguments or {}),
            },
            loss=loss,
            confidence=("low", FEW_STEPS if few else _CUT) if few or cut else confidence,
            evidence=evidence,
            devices=(*lost.devices, *waiting),
            steps=steps,
            **words,
        )

    def advised(self, key: str) -> tuple[str, str]:
        """The action of this key, or that of the rule, and the advice."""
        texts = self.actions.get(key, (self.action, self.advice))
        return (texts, "") if isinstance(texts, str) else texts

    @property
    def start(self) -> str:
        """When the finding is made, with the numbers."""
        limits = {name: numbers.chosen(name, limit) for name, limit in self.limits.items()}
        limits["limit"] = numbers.chosen("limit_ratio", self.limit)
        return self.starts_at.format(**limits)

    @property
    def severities(self) -> tuple[Severity, ...]:
        """Those that its findings can have; where one is usual, that first."""
        return (self.severity, *self.other_severities) if self.severity else SEVERITIES


_INPUT_GOES_ON: Final = frozenset(
    (
        *(State.PYTHON, State.BETWEEN, State.BETWEEN_CALLS, State.SYNC, State.CHECKPOINT),
        *(State.EVALUATION, State.COMPILE, State.GARBAGE_COLLECTION),
    )
)
"""Meanwhile the host asks for no input, and the pipeline makes what the steps would wait for without."""

FEW_STEPS: Final = "few-steps"
HOOKS: Final = "hooks"
WITH_LOCK: Final = "sampled-with-lock"
TINY_OPS: Final = "tiny"
"""The key of a finding about ops that take hardly longer than recording them; it has no sentence."""
_CUT: Final = "cut"

_REASONS: Final[Mapping[str, str]] = {
    "": "the trace shows it",
    HOOKS: "how much of it is due to {hooks} is not recorded",
    WITH_LOCK: "stacks were sampled with the GIL, so mostly at lines that release it",
    FEW_STEPS: "fewer than two steps were recorded",
    _CUT: "the damaged file may have held what the devices did meanwhile",
}
"""Why a finding of any rule is as sure as it is."""


def severity_of(finding: Finding) -> Severity:
    """By what a change would save, of a disturbance half of it, and how sure the cause is; a guess is one level lower."""
    cost = finding.loss.saved if finding.loss else 0.0
    cost *= OF_A_DISTURBANCE if finding.is_disturbance else 1
    level = (cost >= LIMIT) + (cost >= CRITICAL_LIMIT) - (finding.confidence == "low")
    return SEVERITIES[::-1][max(level, 0)]


def finding_loss(lost: Loss, bound_ps: int | None, states: Sequence[State]) -> FindingLoss:
    """The record of a loss. `bound_ps`: by how much the mean step would be shorter without it."""
    return FindingLoss(
        ps_per_step=lost.mean_ps,
        step_ps=lost.of_ps,
        ratio=lost.named_share,
        gpu_time_ratio=lost.share,
        gpu_time_ps=lost.ps,
        gain_ps_per_step=bound_ps,
        states=tuple(state.key for state in states),
        has_steps=lost.named_steps > 0,
    )


def loss_of_host(lost_ps: int, whole_ps: int, step_count: int, state: State) -> FindingLoss:
    """What the thread of the steps waits, of its steps, or without any of its window: there is no GPU time to be a share of."""
    ratio, count = lost_ps / whole_ps if whole_ps else 0.0, step_count or 1
    return FindingLoss(
        ps_per_step=lost_ps // count,
        step_ps=whole_ps // count,
        ratio=ratio,
        gpu_time_ratio=ratio,
        gpu_time_ps=lost_ps,
        gain_ps_per_step=None,
        states=(state.key,),
        has_steps=step_count > 0,
    )


def _on_shared_cores(ledger: Ledger, rows: BoolArray, whole: Loss) -> Loss:
    """What ops cost with the waits for them, `whole`; of replicas that share cores no more than all of these ops take of the cores.

    Such replicas run in turns, and while one waits for the op of another its own has run before, or runs next.
    """
    trace, of_host = ledger.trace, dict[int, list[int]]()
    for device, ps in ledger.per_step(rows).items():
        entry = trace.device_list[device]
        of_host.setdefault(entry.host, []).append(ps or 0)
        if entry.kind != "replica" or not trace.hosts[entry.host].usable_cores or ps is None:
            return whole
    most_ps = max(
        max(max(of), sum(of) // (trace.hosts[host].usable_cores or 1))
        for host, of in of_host.items()
    )
    return whole.times(min(most_ps / whole.mean_ps, 1.0)) if whole.mean_ps else whole


def lost_argument(loss: FindingLoss) -> Lost:
    """A loss as sentences state it."""
    return Lost(loss.ps_per_step, loss.step_ps, loss.ratio)


def _who_waits(context: _Analysed, rows: BoolArray, waiting: Sequence[str]) -> dict[str, Argument]:
    """The devices that wait for those that lose the time, and how long a step; empty without any."""
    if not waiting:
        return {}
    ledger = context.ledger
    named = [d for d in ledger.devices if ledger.trace.device_key(d) in waiting]
    own, whole = (ledger.loss(rows, named, keeps_waiting=of) for of in (False, True))
    waited = Quantity(whole.mean_ps - own.mean_ps, "ps")
    return {WAITING: devices_argument(context, waiting), "waited": waited}


def devices_argument(context: _Analysed, keys: Sequence[str]) -> Devices:
    """Devices as a sentence names them."""
    ledger = context.ledger
    trace = ledger.trace
    entries = {trace.device_key(device): trace.device_list[device] for device in ledger.devices}
    kinds = {
        key: "cpu" if entry.kind == "replica" and entry.model == CPU else entry.kind
        for key, entry in entries.items()
    }
    kind = kinds.get(keys[0], "") if keys else ""
    of_count = sum(each == kind for each in kinds.values())
    return Devices(tuple(keys), of_count, _NOUNS.get(kind, "device"))


_NOUNS: Final = {"cpu": "CPU", "gpu": "GPU", "tpu": "TPU", "replica": "replica"}


def rendered(finding: Finding, rule: Rule) -> Finding:
    """The finding with the sentences that its rule makes of its arguments."""
    phrases = phrases_of(finding, rule)
    return replace(finding, **{name: plain(phrase) for name, phrase in phrases.items()})


WAITING: Final = "waiting"
"""The devices that wait for those that lose the time, an argument of a title."""
_AND_WHO_WAITS: Final = f"[; meanwhile {{{WAITING}:waits/wait}} {{waited}}]"


def phrases_of(finding: Finding, rule: Rule) -> dict[str, Phrase]:
    """The sentences of a finding, as phrases, by the name of the field that holds them as text.

    Raises `KeyError` for an argument that a sentence has and the finding has not.
    """
    title, action, reason, *notes = (*finding.sentences, "", "", "")[
        : max(3, len(finding.sentences))
    ]
    first, rest = rule.advised(action)
    reasons = {**_REASONS, **rule.reasons}
    explained = " ".join(
        [rule.meaning, *(rule.notes[note] for note in notes if note in rule.notes)]
    )
    texts = {
        "title": rule.titles.get(title, rule.title).removesuffix(".") + _AND_WHO_WAITS,
        "explanation": explained,
        "action": first,
        "advice": rest,
    }
    return {
        **{name: filled(text, finding.arguments) for name, text in texts.items()},
        "confidence_reason": filled(
            reasons.get(reason, reasons[""]), finding.arguments, is_sentence=False
        ),
    }


# What findings say of each other, and to users of JAX


def with_explained_inside(findings: Sequence[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """The findings without those that another about the same device explains by its rule, and names in its evidence.

    `rules`: by code. A finding that is explained itself explains nothing: its cause does.
    """
    causes = [_first_cause(place, findings, rules) for place in range(len(findings))]
    explained = [
        [
            Evidence(EXPLAINS, findings[other].code, None, "", value_is="words")
            for other, cause in enumerate(causes)
            if cause == place != other
        ]
        for place in range(len(findings))
    ]
    return [
        replace(finding, evidence=(*finding.evidence, *explained[place]))
        for place, finding in enumerate(findings)
        if causes[place] == place
    ]


def _first_cause(place: int, findings: Sequence[Finding], rules: Mapping[str, Rule]) -> int:
    """The place of the finding that explains the one at `place`, and is not explained itself; `place` without any."""
    for other, cause in enumerate(findings):
        is_explained = _is_named(findings[place], rules[cause.code].explains)
        if _keeps_late(cause, findings[place]) or (
            is_explained and _share_a_device(cause, findings[place])
        ):
            return _first_cause(other, findings, rules)
    return place


def _keeps_late(cause: Finding, consequence: Finding) -> bool:
    """Whether a finding holds what others wait for a device that starts late, which is one of those that it is about."""
    late = {row.where for row in consequence.evidence}
    return (
        WAITING in cause.arguments
        and _is_named(consequence, ("straggler-gpu/start",))
        and not late.isdisjoint(cause.devices)
    )


def _is_named(finding: Finding, explained: Collection[str]) -> bool:
    """Whether a finding is among these codes, of which some have the key of a title: `straggler-gpu/input`."""
    title = finding.sentences[0] if finding.sentences else ""
    return finding.code in explained or f"{finding.code}/{title}" in explained


def _share_a_device(cause: Finding, consequence: Finding) -> bool:
    """Whether both are about one device; a finding that names none is about all."""
    return (
        not cause.devices
        or not consequence.devices
        or not set(cause.devices).isdisjoint(consequence.devices)
    )


JITTED_CALL: Final = lazy_pattern(rb"PjitFunction\(")
"""How JAX records a call of a function that it compiled; TensorFlow records no such call."""


def is_of_jax(trace: Trace) -> bool:
    """Whether the host called functions that JAX compiled."""
    return trace.once(_has_jitted_calls)


def _has_jitted_calls(recording: Recording) -> bool:
    names = unique_ids(recording.host_columns.name)
    return any(recording.names.read(names, JITTED_CALL.match))


def with_jax_advice(finding: Finding, rule: Rule) -> Finding:
    """The finding with the action and the advice for JAX where its rule has them."""
    title, action, *others = finding.sentences
    key = f"jax-{action}" if f"jax-{action}" in rule.actions else "jax"
    if key not in rule.actions:
        return finding
    return rendered(replace(finding, sentences=(title, key, *others)), rule)

"""Writes docs/findings.md: the meaning of each finding, from when on it is made, and what to do, from its rule."""

from __future__ import annotations

from traceview.analysis.registry import RULES
from traceview.analysis.rules.rule import Rule
from traceview.document.markdown import prose
from traceview.report.explain import entry, severities

_HEAD = """\
# Findings

A finding names one cause: what it costs, the evidence, and what to change. One that costs
[GPU time](method.md#findings-and-their-loss) is critical from 20% of it on and a warning from 5% on; low confidence makes it one
level lower. Confidence is high if the trace records the cause, medium if the cause is inferred, low if there is little evidence.

Each entry has a title as an example, what the finding means, from when on it is reported, and the usual advice. A report gives
the advice for the case at hand, also for JAX; `traceview explain CODE` prints all of it. A finding that another one explains is
not reported on its own. `--select` and `--ignore` choose findings by code.
"""
_END = "This page is made from the rules in the code by `python -m scripts.docs`."


def page() -> str:
    """The whole page: the codes, then an entry for each."""
    blocks = [_HEAD, ", ".join(f"[{code}](#{code})" for code in RULES)]
    blocks += [*map(_entry, RULES.values()), _END]
    return "\n\n".join(block.strip() for block in blocks) + "\n"


def _entry(rule: Rule) -> str:
    said = {label: prose(text) for label, text in entry(rule)}
    fixed = f" ({severities(rule)})" if rule.severity else ""
    facts = [f"- **From**{fixed}: {said['Reported from']}", f"- **Do**: {said['Advice']}"]
    if rule.explains:
        links = ", ".join(f"[{code}](#{code})" for code in rule.explains)
        facts.append(f"- **Explains**: {links}")
    return "\n\n".join(
        [f"## {rule.code}", f"*{said['Example']}.* {said['Meaning']}", "\n".join(facts)]
    )

"""Lists the known reasons for differences: where XProf counts by another rule than traceview."""

from __future__ import annotations

from typing import Final

REASONS: Final = {
    "merges-devices": "XProf merges all GPUs of a host into one; traceview has a number for each",
    "device-span": "XProf's step lasts from the first to the last device event; traceview's lasts until the next step",
    "copies-by-name": "XProf recognizes copies by names that CUDA no longer uses, and counts the others as compute",
    "fills-as-compute": "XProf counts memory fills as compute",
    "collectives-by-name": "XProf recognizes collectives by names that begin with nccl, and counts the others as compute",
    "other-order": "where classes overlap, XProf assigns the time to a different class",
    "no-host-waits": "XProf looks for waits on the host only where there is no GPU",
    "one-input-number": "XProf has a single number for copies to the device and waiting for input",
    "rest-of-span": "XProf's rest is the time in its span in which no GPU ran, not the idle time of a GPU in the step",
    "sums-streams": "XProf subtracts the summed times of kernels from the span of a device, so parallel streams count twice",
    "only-named-kernels": "XProf counts a device as idle unless a kernel with the name of an op runs",
    "only-spans": "XProf's idle time lies inside the span of device events; before, after and unused GPUs add nothing",
    "only-linked-events": "XProf counts only device events that it can link to a launch and to a step",
    "counts-files-twice": "XProf counts a host again for every copy of its file",
    "drops-end-steps": "XProf leaves out the first and the last of more than five steps",
    "needs-markers": "XProf needs step markers with _r; traceview recognized these steps in another way",
    "several-hosts": "XProf keeps the steps that all hosts have, and sums over the hosts",
    "no-replicas": "XProf has no replicas on a host; the work of the host is a single number",
    "marker-length": "without a GPU, XProf's step ends with its marker; traceview's lasts until the next step",
    "any-thread-waits": "XProf counts a wait for input on any thread of the host, even while others work",
    "names-of-shapes": "XProf counts compute as 16-bit if its recorded shapes say half; bfloat16 shapes do not",
    "only-details": "XProf's table holds the events with kernel_details, including copies that have them",
    "first-thousand": "XProf's table ends after 1,000 rows",
    "no-page": "XProf made no such page of this trace",
    "its-rules": "this trace, counted by XProf's rules, gives its number; no single rule stands out",
    "from-other-numbers": "it follows from the numbers above",
}
"""The sentence of each reason, by its code."""

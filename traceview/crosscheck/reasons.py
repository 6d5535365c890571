"""Why does XProf say something else? The ways of counting that are known to differ, each with its sentence."""

from __future__ import annotations

from typing import Final

REASONS: Final = {
    "merges-devices": "XProf lays all GPUs of a host on one another; here each has its own number",
    "device-span": "XProf's step lasts from the first to the last device event; here it lasts until the next step",
    "copies-by-name": "XProf knows copies by names that CUDA no longer uses, and takes these for compute",
    "fills-as-compute": "XProf takes memory fills for compute",
    "collectives-by-name": "XProf knows collectives by names that begin with nccl, and takes others for compute",
    "other-order": "where classes overlap, XProf gives the time to another one of them",
    "no-host-waits": "XProf looks for what the host did only where there is no GPU",
    "one-input-number": "XProf has one number for copies to the device and waiting for input",
    "rest-of-span": "XProf's rest is what no GPU did within its span, not what a GPU waited in the step",
    "sums-streams": "XProf takes the summed times of kernels off the span of a device, so streams count twice",
    "only-named-kernels": "XProf counts a device as idle unless a kernel with the name of an op runs",
    "only-spans": "XProf's idle time is inside the span of device events; before, after and unused GPUs add nothing",
    "only-linked-events": "XProf counts only device events that it can link to a launch and to a step",
    "counts-files-twice": "XProf counts a host again for every copy of its file",
    "drops-end-steps": "XProf leaves out the first and the last of more than five steps",
    "needs-markers": "XProf knows steps by markers with _r; here they were found in another way",
    "several-hosts": "XProf keeps the steps that all hosts have, and adds the hosts up",
    "no-replicas": "XProf knows no replicas on a host; the work of the host is one number",
    "marker-length": "without a GPU, XProf's step ends with its marker; here it lasts until the next step",
    "any-thread-waits": "XProf counts a wait for input on any thread of the host, also beside work",
    "names-of-shapes": "XProf takes for 16 bits what has half in its recorded shapes; bfloat16 has not",
    "only-details": "XProf's table holds the events with kernel_details, also copies that have them",
    "first-thousand": "XProf's table ends after 1,000 rows",
    "no-page": "XProf made no such page of this trace",
    "its-rules": "counted as XProf counts, the trace gives its number; no single rule stands out",
    "from-other-numbers": "it follows from the numbers above",
}
"""By code."""

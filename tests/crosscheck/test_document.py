"""The comparison says what differs and why, on any page, with any name."""

from __future__ import annotations

from scripts.crosscheck.comparison import Compared
from scripts.crosscheck.document import (
    crosscheck_section,
)
from scripts.crosscheck.reasons import REASONS
from scripts.xprof_answers import PINNED
from traceview.base.version import VERSION
from traceview.document.terminal import render_section

MS = 1_000_000_000
ROWS = [
    Compared("device_count", "", 2, 2, 2, 2, "same", ()),
    Compared("step_ps", "", 50 * MS, 50 * MS, 38 * MS, 38 * MS, "reproduced", ("device-span",)),
    Compared(
        "compute_ps",
        "",
        5 * MS,
        40 * MS,
        40 * MS,
        40 * MS,
        "reproduced",
        ("merges-devices", "device-span"),
    ),
    Compared("d2h_ps", "", 0, 0, 0, 0, "same", ()),
    Compared("half_ratio", "", 1.0, 1.0, 0.0, None, "known", ("names-of-shapes",)),
    Compared("input_verdict", "", "high", "high", "none", "high", "unexplained", ()),
    Compared("kernel_count", "gemm", 8, 8, 8, 8, "same", ()),
    Compared("kernel_ps", "gemm", 80 * MS, 80 * MS, 81 * MS, 80 * MS, "unexplained", ()),
    Compared("kernel_count", "copy", None, None, 3, 3, "reproduced", ("only-details",)),
    Compared("kernel_ps", "copy", None, None, MS, MS, "reproduced", ("only-details",)),
]

PAGE = """\
traceview VERSION and XProf 2.24.2, run run1
mean per step, and totals           traceview    XProf  difference
devices                                     2        2  same
step time                             50.0 ms  38.0 ms  explained (1)
compute                    5.00 ms to 40.0 ms  40.0 ms  explained (2, 1)
compute in 16 bits                       100%       0%  known (3)
input-bound                              high     none  not explained
Zero in both: DtoH copies.

Kernels  by name, over all devices and the whole profile
kernel  traceview  count    XProf  count  difference
gemm      80.0 ms      8  81.0 ms      8  not explained
copy            –      –  1.00 ms      3  explained (4)

Reasons
"""


def rendered(
    rows: list[Compared],
    *,
    run: str = "run1",
    version: str = PINNED,
    width: int = 110,
    unicode: bool = True,
) -> str:
    section = crosscheck_section(run, version, rows)
    return render_section(section, width=width, color=False, unicode=unicode)


def test_the_page() -> None:
    page = rendered(ROWS)
    assert page.startswith(PAGE.replace("VERSION", VERSION))
    words = " ".join(page.split())
    codes = ["device-span", "merges-devices", "names-of-shapes", "only-details"]
    places = [words.index(f"({number}) {REASONS[code]}.") for number, code in enumerate(codes, 1)]
    assert places == sorted(places)
    assert "Explained: this trace, counted by XProf's rules" in words

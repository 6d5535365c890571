"""Events of XLA programs find their instruction by program and name, and a damaged program takes nothing else with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.cuda_trace import MS, CudaTrace
from tests.analysis.made import in_program
from tests.xplane.hlo_messages import ModuleWriter, add_programs
from traceview.base.errors import TraceFormatError
from traceview.trace.columns import NONE
from traceview.trace.model import Trace
from traceview.trace.reading.load import load


def written(folder: Path, events: list[tuple[str | None, str | None, int | None]]) -> Path:
    """A GPU with a kernel of 1 ms per event: its instruction, the module and the number of its program."""
    trace = CudaTrace()
    for place, (op, module, program) in enumerate(events):
        every = in_program(op or "", module or "", program or 0)
        known = zip(every.items(), (op, module, program), strict=True)
        stats = dict(item for item, value in known if value is not None)
        trace.kernel(0, place * MS, (place + 1) * MS, op="XlaModule:", stats=stats)
    return trace.write(folder)


def module_of(*scopes: str) -> ModuleWriter:
    """A program with an instruction `fusion` per scope, the first called that, and the others by number."""
    module = ModuleWriter()
    for number, scope in enumerate(scopes):
        module.add(f"fusion.{number}" if number else "fusion", "fusion", scope=scope)
    return module


def scopes(trace: Trace) -> list[str | None]:
    numbers = trace.device_columns.instruction.tolist()
    return [None if number == NONE else trace.instructions[number].scope for number in numbers]


def test_two_programs_with_the_same_names_are_told_apart(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        [
            ("fusion", "jit_f", 1),
            ("fusion", "jit_f", 2),
            ("fusion", "jit_f", 1),
            ("fusion.1", "jit_f", 2),
            ("absent", "jit_f", 2),
            ("fusion", "jit_f", 3),
            ("fusion", None, None),
            (None, None, None),
        ],
    )
    add_programs(
        path,
        {"jit_f(1)": module_of("jit(f)/one/dot"), "jit_f(2)": module_of("jit(f)/two/a", "x/b")},
    )
    trace = load(tmp_path)
    assert scopes(trace) == ["jit(f)/one/dot", "jit(f)/two/a", "jit(f)/one/dot", "x/b", "", "", "", None]  # fmt: skip
    assert [each.program for each in trace.instructions] == [
        b"jit_f(1)", b"jit_f(2)", b"jit_f(2)", b"jit_f(2)", b"jit_f(3)", b"",
    ]  # fmt: skip


def test_hosts_with_the_same_program_share_its_instructions(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "profile" / "run1"
    for host, names in (("a", ["fusion", "fusion.1"]), ("b", ["fusion.1", "fusion"])):
        trace = CudaTrace(host)
        for place, name in enumerate(names):
            stats = in_program(name, "jit_f", 1)
            trace.kernel(0, place * MS, (place + 1) * MS, op=None, stats=stats)
        add_programs(
            trace.write(tmp_path, "run1", file_host=host), {"jit_f(1)": module_of("a/b", "c/d")}
        )
    assert len(list(folder.iterdir())) == 2
    trace_ = load(tmp_path)
    assert scopes(trace_) == ["a/b", "c/d", "c/d", "a/b"]
    assert len(trace_.instructions) == 2


def test_a_damaged_program_takes_nothing_else_with_it(tmp_path: Path) -> None:
    path = written(tmp_path, [("fusion", "jit_f", 1), ("fusion", "jit_g", 2)])
    module = module_of("jit(g)/dense/dot").message.SerializeToString()
    broken = module.replace(b"jit(g)/dense/dot", b"jit(g)/dense/dot"[:-1])
    proto = b"\x0a" + bytes((len(broken),)) + broken
    add_programs(path, {"jit_g(2)": proto, "jit_f(1)": module_of("jit(f)/dense/dot")})
    with pytest.raises(TraceFormatError, match="damaged program") as caught:
        load(tmp_path)
    assert caught.value.hint == f"what is readable of it: traceview analyze {path} --salvage"
    begin = path.read_bytes().index(broken)
    assert caught.value.offset is not None
    assert begin <= caught.value.offset <= begin + len(broken)
    trace = load(tmp_path, salvage=True)
    assert scopes(trace) == ["jit(f)/dense/dot", ""]
    (problem,) = trace.problems
    assert problem.code == "damaged-file"
    # No name of the file in what is said of it: redaction leaves such texts.
    assert problem.text == f"damaged program at byte {caught.value.offset}"

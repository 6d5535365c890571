"""The stages of the input pipeline are rebuilt as recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from scripts.cuda_trace import U64, CudaTrace
from scripts.scenarios.model import Step, ms, new_trace
from tests.input_stages import recorded_stages
from tests.trace.recordings import loaded
from traceview.trace.host.pipeline import InputStage, find_input_waits, iterator_calls

WAIT = "IteratorGetNextOp::DoCompute"
Build = Callable[[CudaTrace, Step], None]


def stages(folder: Path, build: Build) -> dict[str, InputStage]:
    trace = new_trace()
    build(trace, Step(trace, 0))
    found = recorded_stages(loaded(folder, trace))
    return {one.name.removeprefix("Iterator::"): one for one in found}


def test_ids_agree_modulo_two_to_the_64_and_only_on_other_threads_is_waiting(
    tmp_path: Path,
) -> None:
    def build(trace: CudaTrace, step: Step) -> None:
        one, two = (trace.thread("tf_data_iterator_resource", n) for n in (40, 41))
        step.host("Iterator::Root::Prefetch", 0, 10, {"id": U64(2**64 - 7)})
        step.host("Iterator::Root::Prefetch::Map", 4, 20, {"id": 5, "parent_id": -7}, thread=one)
        # Of another iterator: nobody here waits for it.
        step.host("Iterator::Root::Range", 0, 10, {"id": 6, "parent_id": 99}, thread=two)

    found = stages(tmp_path, build)
    assert (found["Root::Prefetch"].self_ps, found["Root::Prefetch"].waiting_ps) == (ms(10), ms(6))
    assert found["Root::Prefetch"].own_ps == ms(4)
    assert found["Root::Prefetch::Map"].waiting_ps == 0


def test_stages_of_one_kind_in_each_other_are_one(tmp_path: Path) -> None:
    """Their calls are those from outside; each takes some of the time by itself."""

    def build(_: CudaTrace, step: Step) -> None:
        step.host("Iterator::Root::Concatenate[0]", 0, 10, {"id": 1})
        step.host("Iterator::Root::Concatenate[0]::Concatenate[0]", 1, 9, {"id": 2, "parent_id": 1})
        name = "Iterator::Root::Concatenate[0]::Concatenate[1]::TFRecord"
        step.host(name, 2, 8, {"id": 3, "parent_id": 2})
        step.host("Iterator::Root::Concatenate[1]", 11, 13, {"id": 1})

    found = stages(tmp_path, build)
    assert [*found] == ["Root::Concatenate", "Root::Concatenate::TFRecord"]
    joined = found["Root::Concatenate"]
    assert (joined.calls, joined.total_ps, joined.self_ps) == (2, ms(12), ms(6))


def test_iterators_that_ask_each_other_in_a_circle_end(tmp_path: Path) -> None:
    def build(_: CudaTrace, step: Step) -> None:
        step.host("Iterator::A", 0, 1, {"id": 1, "parent_id": 3})
        step.host("Iterator::B", 2, 3, {"id": 2, "parent_id": 1})
        step.host("Iterator::C", 4, 5, {"id": 3, "parent_id": 2})

    assert {name: s.calls for name, s in stages(tmp_path, build).items()} == dict.fromkeys("ABC", 1)


def test_the_model_waits_on_the_thread_of_the_step_and_where_a_call_waits(tmp_path: Path) -> None:
    trace = new_trace()
    worker = trace.thread("tf_data_iterator_get_next", 40)
    other = trace.thread("loader", 41)
    trace.marker(0, 0, ms(50))
    step = Step(trace, 0)
    step.host("FunctionRun", 1, 2, {"id": 7})
    step.host(WAIT, 3, 4, {"id": 1})
    step.host(WAIT, 5, 6, {"id": 7}, thread=worker)
    step.host(WAIT, 7, 8, {"id": 8}, thread=worker)
    step.host(WAIT, 9, 10, {"id": 9}, thread=other)
    step.host("Iterator::Root", 3.5, 3.6, {"id": 20})
    step.host("Iterator::Root", 11, 12, {"id": 21})
    found = loaded(tmp_path, trace)
    calls = iterator_calls(found, 0)
    waits = find_input_waits(found, 0, calls)
    begin = waits.start_ps.min()
    assert (waits.start_ps - begin).tolist() == [0, ms(2)]
    assert waits.pipeline.tolist() == [calls.pipeline[0], -1]
    assert {one.blocking: one.calls for one in recorded_stages(found)} == {True: 1, False: 1}

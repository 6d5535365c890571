"""A redacted report is free of every name, and otherwise the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator
from msgspec import inspect

from scripts.cuda_trace import CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, new_trace
from tests.command import Command
from tests.hostile import HOSTILE, with_texts
from tests.reports import full_report
from tests.sidecars import graph, mirrored, write_sidecar
from traceview.base.record import (
    KEY,
    OpName,
    Record,
    TextKind,
    choices_of,
    fields_of,
    kind_of_text,
    records_of,
)
from traceview.document import screen as terminal
from traceview.report.build import analyze
from traceview.report.document import document_of
from traceview.report.formats import DOCUMENTS, notebook
from traceview.report.model import Report
from traceview.report.pseudonyms import SENTENCES, Pseudonyms
from traceview.report.redaction import redacted, redacted_record
from traceview.report.saved import schema_text, to_json
from traceview.trace.sidecar.hang import Hang

SECRETS = re.compile("acme|mallory|gandalf|zebra|bob\\b|hush", re.IGNORECASE)
ADDRESS = "10.20.30.40:8470"


def pages(report: Report) -> Iterator[str]:
    """The report in every form."""
    for document in DOCUMENTS:
        content: str | bytes = document.render(report)
        yield content if isinstance(content, str) else content.decode(errors="replace")
    yield terminal.render(document_of(report), width=200, color=False, most_lines=10**6)
    yield notebook(report)


def filled(type_: inspect.Type, place: str, numbers: Iterator[int], sources: dict[str, str]) -> Any:
    """A value of a type in which every text is a secret of its own; `sources` has the field of each."""
    if isinstance(type_, inspect.Metadata):
        return filled(type_.type, place, numbers, sources)
    if isinstance(type_, inspect.UnionType):
        texts = [member for member in type_.types if isinstance(member, inspect.StrType)]
        return filled((*texts, *type_.types)[0], place, numbers, sources)
    if isinstance(type_, inspect.LiteralType):
        return type_.values[0]
    if isinstance(type_, inspect.VarTupleType):
        return (filled(type_.item_type, place, numbers, sources),)
    if isinstance(type_, inspect.DictType):
        key = filled(type_.key_type, f"{place}{{}}", numbers, sources)
        return {key: filled(type_.value_type, place, numbers, sources)}
    if isinstance(type_, inspect.StructType):
        name = type_.cls.__name__
        return type_.cls(
            **{
                field.name: filled(field.type, f"{name}.{field.name}", numbers, sources)
                for field in type_.fields
            }
        )
    if isinstance(type_, inspect.StrType) and type_.pattern == KEY:
        return "key"
    if isinstance(type_, inspect.StrType):
        secret = f"zebra{next(numbers)}"
        sources[secret] = place
        return secret
    kinds = {inspect.IntType: 1, inspect.FloatType: 0.5, inspect.BoolType: True}
    return kinds.get(type(type_))


def test_nothing_is_left_of_any_field() -> None:
    sources: dict[str, str] = {}
    report = filled(inspect.type_info(Report), "", count(1), sources)
    left = set(re.findall(r"zebra\d+", to_json(redacted(report))))
    assert {sources[secret] for secret in left} == set()
    assert len(sources) > 200


def test_every_kind_of_text_has_its_pseudonym() -> None:
    for kind in get_args(TextKind):
        assert "zebra" not in Pseudonyms().shown(kind, "zebra 7")


def untyped_in(type_: inspect.Type, is_typed: bool = False) -> bool:
    """Whether a type has a text of which nothing says what it is."""
    if isinstance(type_, inspect.Metadata):
        return untyped_in(type_.type, kind_of_text(type_.extra) is not None)
    if isinstance(type_, inspect.StrType):
        return not is_typed and type_.pattern is None
    parts = (getattr(type_, name, None) for name in ("item_type", "key_type", "value_type"))
    return any(map(untyped_in, (*filter(None, parts), *getattr(type_, "types", ()))))


@pytest.mark.parametrize("root", [Report, Hang])
def test_every_text_says_what_it_is(root: type[Record]) -> None:
    """What does not is hidden as a whole, which is safe and says nothing."""
    untyped = [
        f"{record.__name__}.{field.name}"
        for record in records_of(root)
        for field in fields_of(record)
        if untyped_in(field.type)
    ]
    assert untyped == []


class Untyped(Record, frozen=True):
    """A record whose author forgot what its texts are.

    Attributes:
        text: Any text.
        texts: More of them.
        op: An op.
    """

    text: str
    texts: dict[str, tuple[str, ...]]
    op: OpName


def test_a_text_that_says_not_what_it_is_is_not_printed() -> None:
    """Though every word of it is a public one."""
    secret = "The device waits for input"
    assert Pseudonyms().text(secret) == secret
    hidden = redacted_record(Untyped(secret, {"idle": (secret, "input")}, "input/MatMul"))
    assert hidden == Untyped("text_1", {"text_2": ("text_1", "text_3")}, "op_1/MatMul")


@pytest.mark.parametrize("kind", sorted({*get_args(TextKind)} - SENTENCES))
def test_a_name_made_of_public_words_is_hidden_too(kind: TextKind) -> None:
    assert "waits for" not in Pseudonyms().shown(kind, "the device waits for input")


def secret_trace() -> CudaTrace:
    """Steps whose ops, kernels, threads, functions, files and host carry the names of people and firms."""
    trace = new_trace("gandalf-7.acme.example")
    for number in range(4):
        start_ms = number * 50.0
        trace.marker(number, round(start_ms * 1e9), round((start_ms + 49.9) * 1e9))
        step = Step(trace, start_ms)
        for ordinal in (0, 1):
            op = f"replica_{ordinal}/acme_tower/secret/MatMul:MatMul"
            own = f"hush_head/zebra_{ordinal}:AcmeSecretOp"
            name = "void acme::fused_zebra<float, AcmeTraits>(float*)"
            step.kernel(ordinal, 20, 30, name=name, op=op)
            step.kernel(ordinal, 31, 44, op=own)
            step.copy(ordinal, "h2d", 15, 19, size=40_000_000)
        step.host("IteratorGetNext:IteratorGetNext", 1, 12)
        step.host("$/home/mallory/acme/train.py:88 hush_loss", 12.1, 12.4)
        step.host("EagerLocalExecute: __inference_acme_step_88", 45, 49)
        step.host("Iterator::Root::Prefetch::AcmeMap", 1, 11)
    return trace


@pytest.fixture
def secret_logs(tmp_path: Path) -> Path:
    """A run in the home of somebody, with a sidecar that tells all."""
    logs = tmp_path / "home" / "mallory" / "acme"
    run = logs / "plugins" / "profile" / "bob_tries"
    run.mkdir(parents=True)
    path = run / "gandalf-7.acme.example.xplane.pb"
    path.write_bytes(secret_trace().space().SerializeToString())
    write_sidecar(
        path,
        {
            "state": "saved",
            "command": {
                "python": ["/home/mallory/bin/python3"],
                "script": ["acme.py", "--key=hush"],
            },
            "versions": {"tensorflow": "2.21.0+acme"},
            "strategy": mirrored("GPU:0", "GPU:1") | {"class": "AcmeStrategy"},
            "variables": {
                "CUDA_VISIBLE_DEVICES": "0,1",
                "TF_CONFIG": "gandalf-8:2222",
                "NCCL_COMM_ID": ADDRESS,
            },
            "xla": {"xla_flags": "--xla_dump_to=/home/mallory/dump"},
            "cluster": {"missing": {"is_configured": "no /home/mallory/tf_config of mallory"}},
            "placement": {"functions": [graph({"GPU:0": 5}, name="acme_step", alone=2)]},
        },
    )
    return logs


def test_no_form_of_a_report_holds_a_name(secret_logs: Path) -> None:
    report = analyze(secret_logs, top=None)
    assert len(set(SECRETS.findall(to_json(report)))) >= 5
    hidden = redacted(report)
    for page in pages(hidden):
        assert SECRETS.findall(page) == []
        assert ADDRESS not in page
    assert str(secret_logs.parent) not in to_json(hidden)


@pytest.mark.parametrize(
    "command_line",
    ["analyze", "screen", "screen of a saved report", "analyze-json", "report", "render"],
)
def test_commands_hide_every_name(
    command_line: str, command: Command, secret_logs: Path, tmp_path: Path
) -> None:
    logs, out = str(secret_logs), tmp_path / "out"
    if command_line == "analyze":
        done = command("analyze", logs, "--redact", "--full", "--width", "200")
    elif command_line == "screen":
        done = command("analyze", logs, "--redact")
    elif command_line == "screen of a saved report":
        saved = str(tmp_path / "saved.json")
        assert command("analyze", logs, "-o", saved).code == 0
        done = command("analyze", saved, "--redact")
        assert str(tmp_path) not in done.out
        (tmp_path / "saved.json").unlink()
    elif command_line == "analyze-json":
        done = command("analyze", logs, "--redact", "--format", "json")
    elif command_line == "report":
        done = command("report", logs, "--redact", "-o", str(out))
    else:
        assert command("report", logs, "-o", str(tmp_path / "whole")).code == 0
        saved = str(tmp_path / "whole" / "report.json")
        done = command("report", saved, "--redact", "--format", "markdown", "-o", str(out))
    assert done.code == 0
    files = [path for path in [out, *out.rglob("*")] if path.is_file()]
    texts = [done.out, *(path.read_bytes().decode(errors="replace") for path in files)]
    assert sum(map(len, texts)) > (500 if command_line.startswith("screen") else 1000)
    assert [SECRETS.findall(text) for text in texts] == [[]] * len(texts)


def numbers_of(value: Any) -> Any:
    """The data with every text taken out."""
    if isinstance(value, dict):
        return [numbers_of(item) for item in value.values()]
    if isinstance(value, list):
        return [numbers_of(item) for item in value]
    return None if isinstance(value, str) else value


@pytest.mark.parametrize("name", ["A", "B", "collectives_of_two_hosts", "data_parallel"])
def test_numbers_stay(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = analyze(tmp_path)
    before, after = (json.loads(to_json(whole)) for whole in (report, redacted(report)))
    assert numbers_of(after) == numbers_of(before)
    assert after["findings"][0]["code"] == before["findings"][0]["code"]


@pytest.mark.parametrize("name", ["A", "B", "data_parallel"])
def test_a_redacted_report_is_one_by_the_schema(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = redacted(analyze(tmp_path, top=None))
    Draft202012Validator(json.loads(schema_text())).validate(json.loads(to_json(report)))


@pytest.mark.parametrize("name", ["G", "launches_back_to_back", "throttled_gpu"])
def test_evidence_keeps_what_it_measures(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = analyze(tmp_path)
    before, after = (
        [item.metric for finding in whole.findings for item in finding.evidence]
        for whole in (report, redacted(report))
    )
    assert before
    assert after == before


def test_words_of_closed_lists_stay() -> None:
    names = Pseudonyms()
    words = {
        word
        for record in records_of(Report)
        for field in fields_of(record)
        for word in choices_of(field.type)
    }
    assert len(words) > 80
    assert [word for word in sorted(words) if names.text(word) != word] == []


def test_the_same_name_has_the_same_pseudonym_everywhere(tmp_path: Path) -> None:
    SCENARIOS["collectives_of_two_hosts"]().write(tmp_path)
    report = redacted(analyze(tmp_path))
    found = report.results.device_time
    assert found is not None
    hosts = {row.host for row in found.devices}
    assert hosts == {window.host for window in report.windows} == {"host_1", "host_2"}
    devices = {row.device for row in found.devices}
    assert all(set(finding.devices) <= devices for finding in report.findings)
    assert all(device.startswith(("host_1/GPU:", "host_2/GPU:")) for device in devices)
    assert redacted(analyze(tmp_path)) == report


def test_what_identifies_nothing_stays() -> None:
    report = redacted(full_report())
    before, ops = full_report().results.ops, report.results.ops
    assert before is not None
    assert ops is not None
    assert [row.kernel for row in ops.rows] == [row.kernel for row in before.rows]
    assert re.fullmatch(r"op_\d+/op_\d+/MatMul", ops.rows[1].op or "")
    assert ops.rows[1].op_type == "MatMul"
    assert report.verdict == full_report().verdict
    assert report.findings == full_report().findings
    assert report.source.run == "2026_01_02"
    assert report.command == (
        ("traceview", "report", "path_1", "--run", "2026_01_02", "-o", "report")
    )


@pytest.mark.parametrize(
    "name",
    [
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_nn",
        "volta_sgemm_128x64_nn",
        "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
        "void cutlass::Kernel<cutlass_80_tensorop_bf16_s16816gemm_256x128>(Params)",
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32.kd",
        "void Eigen::internal::EigenMetaKernel<Eigen::TensorMap<Eigen::Tensor<Eigen::half, 1, 1, int>, 16>, int>()",
        "void cutlass::epilogue::thread::LinearCombinationRelu<float, 4>()",
        "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT",
        "loop_add_fusion_3",
        "MemcpyH2D",
    ],
)
def test_kernels_of_libraries_stay(name: str) -> None:
    assert Pseudonyms().kernel(name) == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("acme_kernel<float, 4>", "kernel_1<float, 4>"),
        ("sgemm_acme_v2", "kernel_1"),
        ("acme_secret_fusion_3", "kernel_1"),
        (
            "void Eigen::internal::Meta<Acme::F<float>>()",
            "void Eigen::internal::Meta<kernel_1<float>>()",
        ),
        ("tensorflow::functor::Acme", "kernel_1"),
        ("_ZN4acme6kernelEv", "kernel_1"),
        ("знак", "kernel_1"),
        ("cutlass::acme::SecretKernel", "kernel_1"),
        ("cutlass::AcMeKernel", "kernel_1"),
        ("Eigen::BoB", "kernel_1"),
        ("void cutlass_acme::Kernel<Params>()", "void kernel_1<Params>()"),
        ("Eigen::internal::AcmeMetaKernel", "kernel_1"),
        ("std::acme", "kernel_1"),
        ("gemm_bob_nn", "kernel_1"),
        ("gemm_знак_nn", "kernel_1"),
        ("ampere_acme2_nn", "kernel_1"),
        ("Cijk_Ailk_Bljk_HHS_BH_acme", "kernel_1"),
    ],
)
def test_other_kernels_are_hidden(name: str, shown: str) -> None:
    assert Pseudonyms().kernel(name) == shown


@pytest.mark.parametrize(
    ("kind", "name", "shown"),
    [
        ("thread", "tf_data_iterator_get_next/8300", "tf_data_iterator_get_next/8300"),
        ("thread", "tf_gpu_private_0/7", "tf_gpu_private_0/7"),
        ("thread", "Host Threads/12", "Host Threads/12"),
        ("thread", "tf_data_acme_project", "thread_1"),
        ("thread", "tf_acme/7", "thread_1"),
        ("model", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("model", "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("model", "Tesla V100-SXM2-16GB", "Tesla V100-SXM2-16GB"),
        ("model", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        ("model", "AMD Instinct MI300X", "AMD Instinct MI300X"),
        ("model", "AMD Radeon RX 7900 XTX", "AMD Radeon RX 7900 XTX"),
        ("model", "NVIDIA GH200 480GB", "NVIDIA GH200 480GB"),
        ("model", "NVIDIA H200 141GB HBM3e", "NVIDIA H200 141GB HBM3e"),
        ("model", "NVIDIA TITAN V", "NVIDIA TITAN V"),
        ("model", "Acme Accelerator X1", "model_1"),
        ("model", "NVIDIA Bob2", "model_1"),
        ("model", "ACME9000", "model_1"),
        ("bus", "00000000:07:00.0", "00000000:07:00.0"),
        ("bus", "gandalf:07", "bus_1"),
        ("setting", "0,1,2,3", "0,1,2,3"),
        ("setting", "1", "1"),
        ("setting", "0.5", "0.5"),
        ("setting", "true", "true"),
        ("setting", ADDRESS, "value_1"),
        ("setting", "10.20.30.40", "value_1"),
        ("setting", "5551234567,5551234568", "value_1"),
        ("task", "worker 12", "worker 12"),
        ("task", "chief", "chief"),
        ("task", "worker of mallory", "task_1"),
        ("version", "2.21.0-rc1", "2.21.0-rc1"),
        ("version", "2.21.0+acme", "version_1"),
        ("metric", "idle_input_ratio", "idle_input_ratio"),
        ("metric", "acme_ratio", "name_1"),
    ],
)
def test_what_is_of_known_form_stays(kind: TextKind, name: str, shown: str) -> None:
    assert Pseudonyms().shown(kind, name) == shown


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("GPU:0 waits 12.3 ms (12%) for acme.", "GPU:0 waits 12.3 ms (12%) for name_1."),
        ("10.1.2.3 and gandalf:8080 record", "name_1 and name_2 record"),
        ("10-20-30-40 and 10:20:30:40", "name_1 and name_2"),
        ("2001:4860:4860::8888 and 7::1", "name_1 and name_2"),
        ("2026-01-02 at 12:30:45, steps 10:15", "2026-01-02 at 12:30:45, steps 10:15"),
        ("NCCL_COMM_ID=10.20.30.40:8470 and 8470:10.20.30.40", "name_1 and name_2"),
        ("cannot open /home/mallory/x of mallory@acme.example", "cannot open path_1 of name_1"),
        ("host 'gandalf' and gandalf/GPU:3", "host 'host_1' and host_1/GPU:3"),
        ("model/dense/MatMul:MatMul took 3 ms", "op_1/op_2/MatMul:MatMul took 3 ms"),
        ("Iterator::Root::Acme is slow", "Iterator::Root::stage_1 is slow"),
        ("use tf.distribute.MirroredStrategy()", "use tf.distribute.MirroredStrategy()"),
        ("GPU:0 ran replica_12 and tower_12", "GPU:0 ran replica_12 and name_1"),
    ],
)
def test_words_of_others_are_hidden(sentence: str, shown: str) -> None:
    names = Pseudonyms()
    names.shown("host", "gandalf")
    assert names.text(sentence) == shown


def test_sentences_of_scenarios_stay_sentences(tmp_path: Path) -> None:
    for name in sorted(SCENARIOS):
        if name == "profiler_error":
            continue
        SCENARIOS[name]().write(tmp_path / name)
        report = redacted(analyze(tmp_path / name))
        for finding in report.findings:
            text = f"{finding.title} {finding.explanation} {finding.advice}"
            assert not re.search(r"\b(?:name|path)_\d", text), text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_hidden(text: str) -> None:
    def change(field: str, whole: str) -> str:
        return f"zebra{text}" if field in ("op", "kernel", "host", "thread", "run") else whole

    report = redacted(with_texts(full_report(), change))
    assert "zebra" not in to_json(report)


@pytest.mark.parametrize(
    "word",
    [
        "CUPTI_ERROR_ACME_SECRET",
        "ab" * 32,
        "123456789012",
        "Cijk_Ailk_Bljk_HHS_BH_MT64x64x32_ACMESECRET",
    ],
)
def test_what_has_only_the_form_of_a_public_word_is_hidden(word: str) -> None:
    names = Pseudonyms()
    assert word not in names.text(f"it failed with {word} here")
    assert "ACME" not in names.kernel(word)


def test_public_words_of_kernels_and_errors_stay() -> None:
    kernel = "Cijk_Ailk_Bljk_HHS_BH_MT64x64x32_MI16x16x4x1_SN_1LDSB0_ISA90a_WG16_16_1"
    sentence = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES failed"
    assert Pseudonyms().kernel(kernel) == kernel
    assert Pseudonyms().text(sentence) == sentence

"""Is a redacted report free of every name, and otherwise the same?"""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import traceview
from scripts.cuda_trace import CudaTrace
from scripts.scenarios import SCENARIOS
from scripts.scenarios.model import Step, new_trace
from tests.command import Command
from tests.hostile import HOSTILE, with_texts
from tests.reports import full_report
from tests.sidecars import graph, mirrored, write_sidecar
from traceview.render.formats import DOCUMENTS
from traceview.render.json import render as render_json
from traceview.render.terminal import render as render_terminal
from traceview.report.model import Report
from traceview.report.pseudonyms import Pseudonyms
from traceview.report.public_words import closed_words
from traceview.report.redaction import redacted
from traceview.report.saved import schema_text

SECRETS = re.compile("acme|mallory|gandalf|zebra|bob\\b|hush", re.IGNORECASE)
KEPT_FIELDS = {
    "DeviceDetails.device_name",
    "DeviceHardware.model",
    "DeviceTimeRow.model",
    "GpuLink.bus_id",
    "GpuLink.name",
    "HardwareGroup.model",
    "NvLinks.peers{}",
    "Report.traceview_version",
    "ReportFile.sha256",
}


def pages(report: Report) -> Iterator[str]:
    """The report in every form."""
    for document in DOCUMENTS:
        content = document.render(report)
        yield content if isinstance(content, str) else content.decode(errors="replace")
    yield render_terminal(report, width=200, color=False, top=50)
    yield render_json(report)
    yield report._repr_html_()


def filled(hint: Any, place: str, numbers: Iterator[int], sources: dict[str, str]) -> Any:
    """A value of a type in which every text is a secret of its own; `sources` says whose."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        chosen = next((one for one in arguments if one is str), arguments[0])
        return filled(chosen, place, numbers, sources)
    if origin is typing.Literal:
        return arguments[0]
    if origin is tuple:
        return (filled(arguments[0], place, numbers, sources),)
    if origin is dict:
        value = filled(arguments[1], place, numbers, sources)
        return {filled(str, f"{place}{{}}", numbers, sources): value}
    if is_dataclass(hint):
        kind = typing.cast("Any", hint)
        hints = typing.get_type_hints(kind)
        return kind(
            **{
                one.name: filled(hints[one.name], f"{kind.__name__}.{one.name}", numbers, sources)
                for one in fields(kind)
            }
        )
    if hint is str:
        secret = f"zebra{next(numbers)}"
        sources[secret] = place
        return secret
    return {int: 1, float: 0.5, bool: True}.get(hint)


def test_nothing_is_left_of_any_field() -> None:
    sources: dict[str, str] = {}
    report = filled(Report, "", count(1), sources)
    left = set(re.findall(r"zebra\d+", render_json(redacted(report))))
    assert {sources[secret] for secret in left} - KEPT_FIELDS == set()
    assert len(sources) > 200


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
            "variables": {"CUDA_VISIBLE_DEVICES": "0,1", "TF_CONFIG": "gandalf-8:2222"},
            "xla": {"xla_flags": "--xla_dump_to=/home/mallory/dump"},
            "cluster": {"missing": {"is_configured": "no /home/mallory/tf_config of mallory"}},
            "placement": {"functions": [graph({"GPU:0": 5}, {"GPU:0": (4, 2)}, name="acme_step")]},
        },
    )
    return logs


def test_no_form_of_a_report_holds_a_name(secret_logs: Path) -> None:
    report = traceview.analyze(secret_logs, top=None)
    assert len(set(SECRETS.findall(render_json(report)))) >= 5
    hidden = redacted(report)
    for page in pages(hidden):
        assert SECRETS.findall(page) == []
    assert str(secret_logs.parent) not in render_json(hidden)


@pytest.mark.parametrize("command_line", ["analyze", "analyze-json", "report", "render"])
def test_commands_hide_every_name(
    command_line: str, command: Command, secret_logs: Path, tmp_path: Path
) -> None:
    logs, out = str(secret_logs), tmp_path / "out"
    if command_line == "analyze":
        done = command("analyze", logs, "--redact", "--width", "200")
    elif command_line == "analyze-json":
        done = command("analyze", logs, "--redact", "--format", "json")
    elif command_line == "report":
        done = command("report", logs, "--redact", "-o", str(out))
    else:
        assert command("report", logs, "-o", str(tmp_path / "whole")).code == 0
        saved = str(tmp_path / "whole" / "report.json")
        done = command("render", saved, "--redact", "--format", "markdown", "-o", str(out))
    assert done.code == 0
    files = [path for path in [out, *out.rglob("*")] if path.is_file()]
    texts = [done.out, *(path.read_bytes().decode(errors="replace") for path in files)]
    assert sum(map(len, texts)) > 1000
    assert [SECRETS.findall(text) for text in texts] == [[]] * len(texts)


def test_data_of_a_redacted_report_is_refused(
    command: Command, secret_logs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = command("report", str(secret_logs), "--redact", "--with-data", "-o", str(out))
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert not out.exists()


def numbers_of(value: Any) -> Any:
    """The data with every text taken out."""
    if isinstance(value, dict):
        return [numbers_of(one) for one in value.values()]
    if isinstance(value, list):
        return [numbers_of(one) for one in value]
    return None if isinstance(value, str) else value


@pytest.mark.parametrize("name", ["A", "B", "collectives_of_two_hosts", "data_parallel"])
def test_numbers_stay(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    before, after = (json.loads(render_json(one)) for one in (report, redacted(report)))
    assert numbers_of(after) == numbers_of(before)
    assert after["findings"][0]["code"] == before["findings"][0]["code"]


@pytest.mark.parametrize("name", ["A", "B", "data_parallel"])
def test_a_redacted_report_is_one_by_the_schema(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = redacted(traceview.analyze(tmp_path, top=None))
    Draft202012Validator(json.loads(schema_text())).validate(json.loads(render_json(report)))


@pytest.mark.parametrize("name", ["G", "launches_back_to_back", "throttled_gpu"])
def test_evidence_keeps_what_it_measures(name: str, tmp_path: Path) -> None:
    SCENARIOS[name]().write(tmp_path)
    report = traceview.analyze(tmp_path)
    before, after = (
        [one.metric for finding in said.findings for one in finding.evidence]
        for said in (report, redacted(report))
    )
    assert before
    assert after == before


def test_words_of_closed_lists_stay() -> None:
    names = Pseudonyms()
    assert [word for word in sorted(closed_words()) if names.text(word) != word] == []


def test_the_same_name_has_the_same_pseudonym_everywhere(tmp_path: Path) -> None:
    SCENARIOS["collectives_of_two_hosts"]().write(tmp_path)
    report = redacted(traceview.analyze(tmp_path))
    found = report.results.device_time
    assert found is not None
    hosts = {row.host for row in found.devices}
    assert hosts == {window.host for window in report.windows} == {"host_1", "host_2"}
    devices = {row.device for row in found.devices}
    assert all(set(finding.devices) <= devices for finding in report.findings)
    assert all(device.startswith(("host_1/GPU:", "host_2/GPU:")) for device in devices)
    assert redacted(traceview.analyze(tmp_path)) == report


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
    ],
)
def test_other_kernels_are_hidden(name: str, shown: str) -> None:
    assert Pseudonyms().kernel(name) == shown


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("GPU:0 waits 12.3 ms (12%) for acme.", "GPU:0 waits 12.3 ms (12%) for name_1."),
        ("10.1.2.3 and gandalf:8080 record", "name_1 and name_2 record"),
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
    names.host("gandalf")
    assert names.text(sentence) == shown


def test_sentences_of_scenarios_stay_sentences(tmp_path: Path) -> None:
    for name in sorted(SCENARIOS):
        if name == "profiler_error":
            continue
        SCENARIOS[name]().write(tmp_path / name)
        report = redacted(traceview.analyze(tmp_path / name))
        for finding in report.findings:
            said = f"{finding.title} {finding.explanation} {finding.advice}"
            assert not re.search(r"\b(?:name|path)_\d", said), said


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_hidden(text: str) -> None:
    def change(field: str, whole: str) -> str:
        return f"zebra{text}" if field in ("op", "kernel", "host", "thread", "run") else whole

    report = redacted(with_texts(full_report(), change))
    assert "zebra" not in render_json(report)

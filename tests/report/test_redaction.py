"""A redacted report is free of every name, and otherwise the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect
from msgspec.structs import replace

from tests.command import Command
from tests.hostile import trace_of_names
from tests.reports import bare_report, finding, full_report, known, loss
from tests.sidecars import graph, mirrored, write_sidecar
from traceview.analysis.registry import RULES
from traceview.analysis.rules.finding import Evidence
from traceview.analysis.rules.words import Line
from traceview.base.record import KEY, TextKind, kind_of_text, parts_of
from traceview.capture.sidecar.environment import VARIABLES
from traceview.report.model import Report, Verdict, with_sentences
from traceview.report.redaction import Pseudonyms, redacted, redacted_record
from traceview.report.saved import to_json

SECRETS = re.compile("acme|mallory|gandalf|zebra|bob\\b|hush", re.IGNORECASE)
ADDRESS = "10.20.30.40:8470"


PUBLIC_BEGINNINGS = (
    *("", "2.21.0-", "CUDA_ERROR_", "Cijk_Ailk_Bljk_", "EagerLocalExecute: ", "GPU:0/"),
    *("Iterator::", "MatMul/", "NVIDIA ", "cu", "gemm_", "tf_", "worker "),
)


def filled(
    type_: inspect.Type,
    place: str,
    numbers: Iterator[int],
    beginnings: Iterator[str],
    sources: dict[str, str],
    kind: TextKind | None = None,
) -> Any:
    """A value of a type in which every text that is not ours is a secret of its own; `sources` has the field of each."""
    if isinstance(type_, inspect.Metadata):
        return filled(type_.type, place, numbers, beginnings, sources, kind_of_text(type_.extra))
    if isinstance(type_, inspect.UnionType):
        texts = [member for member in type_.types if inspect.StrType in map(type, parts_of(member))]
        return filled((*texts, *type_.types)[0], place, numbers, beginnings, sources)
    if isinstance(type_, inspect.LiteralType):
        return type_.values[0]
    if isinstance(type_, inspect.VarTupleType):
        return (filled(type_.item_type, place, numbers, beginnings, sources),)
    if isinstance(type_, inspect.DictType):
        key = filled(type_.key_type, f"{place}{{}}", numbers, beginnings, sources)
        return {key: filled(type_.value_type, place, numbers, beginnings, sources)}
    if isinstance(type_, inspect.StructType):
        name = type_.cls.__name__
        return type_.cls(
            **{
                field.name: filled(field.type, f"{name}.{field.name}", numbers, beginnings, sources)
                for field in type_.fields
            }
        )
    if isinstance(type_, inspect.StrType) and (kind == "words" or type_.pattern == KEY):
        return "key"
    if isinstance(type_, inspect.StrType):
        secret = f"{next(beginnings)}zebra{next(numbers)}"
        sources[secret] = place
        return secret
    kinds = {inspect.IntType: 1, inspect.FloatType: 0.5, inspect.BoolType: True}
    return kinds.get(type(type_))


_beginning = st.builds("{}{}".format, st.sampled_from(PUBLIC_BEGINNINGS), st.text())


@settings(max_examples=20, deadline=None)
@given(st.lists(_beginning, min_size=1, max_size=30))
def test_nothing_is_left_of_any_field(beginnings: list[str]) -> None:
    """However a name begins."""
    sources: dict[str, str] = {}
    report = filled(inspect.type_info(Report), "", count(1), cycle(beginnings), sources)
    left = set(re.findall(r"zebra\d+", to_json(redacted_record(report))))
    of_number = {secret[secret.rindex("zebra") :]: place for secret, place in sources.items()}
    assert {of_number[secret] for secret in left} == set()
    assert len(sources) >= 150


def test_a_name_that_another_field_says_the_kind_of() -> None:
    """What says none is hidden."""
    rows = (
        Evidence("op", "input/MatMul", None, "device/GPU:0", "step 3", value_is="op"),
        Evidence("method", "none", None, "device", value_is="words"),
        Evidence("op", "the step", None, "worker 3", where_is="task"),
    )
    assert [redacted_record(row) for row in rows] == [
        Evidence("op", "op_1/MatMul", None, "host_1/GPU:0", "step 3", value_is="op"),
        Evidence("method", "none", None, "host_1", value_is="words"),
        Evidence("op", "text_1", None, "worker 3", where_is="task"),
    ]


SECRET_NAMES = (
    *("replica_0/acme_tower/secret/MatMul:MatMul", "hush_head/zebra_0:AcmeSecretOp"),
    "void acme::fused_zebra<float, AcmeTraits>(float*)",
    *("$/home/mallory/acme/train.py:88 hush_loss", "EagerLocalExecute: __inference_acme_step_88"),
    *("Prefetch::AcmeMap", "mallory"),
)
"""Of people and firms: ops, kernels, functions, files and threads."""


@pytest.fixture
def secret_logs(tmp_path: Path) -> Path:
    """A run in the home of somebody, with a sidecar that tells all."""
    logs = tmp_path / "home" / "mallory" / "acme"
    run = logs / "plugins" / "profile" / "bob_tries"
    run.mkdir(parents=True)
    path = run / "gandalf-7.acme.example.xplane.pb"
    trace = trace_of_names(SECRET_NAMES, "gandalf-7.acme.example")
    path.write_bytes(trace.space().SerializeToString())
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


@pytest.mark.parametrize(
    "words",
    [
        "analyze {logs} --redact --full --width 200",
        "analyze {logs} --redact",
        "analyze {saved} --redact",
        "analyze {logs} --redact --format json",
        "report {logs} --redact -o {out}",
        "report {saved} --redact --format markdown -o {out}",
    ],
)
def test_commands_hide_every_name(
    words: str, command: Command, secret_logs: Path, tmp_path: Path
) -> None:
    saved, out = tmp_path / "saved.json", tmp_path / "out"
    assert command("analyze", str(secret_logs), "-o", str(saved)).code == 0
    done = command(*words.format(logs=secret_logs, saved=saved, out=out).split())
    assert done.code == 0
    files = [path for path in [out, *out.rglob("*")] if path.is_file()]
    texts = [done.out, *(path.read_bytes().decode(errors="replace") for path in files)]
    assert sum(map(len, texts)) > 500
    assert str(tmp_path) not in done.out
    assert [SECRETS.findall(text) for text in texts] == [[]] * len(texts)


def test_a_name_has_one_pseudonym_in_tables_and_sentences() -> None:
    names = Pseudonyms()
    layer = names.op("encoder/attention")
    assert (
        names.activity("encoder/attention")
        == names.event("encoder/attention:Mine").partition(":")[0]
        == layer
    )
    for show in (names.activity, names.kernel, names.slice, names.type, names.event):
        assert show("attention") == layer.rpartition("/")[2]
    assert names.op("decoder") != names.op("attention") != names.shown("host", "attention")


def test_what_identifies_nothing_stays() -> None:
    report = redacted(full_report())
    before, ops = known(full_report().results.ops), known(report.results.ops)
    assert [row.kernel for row in ops.rows] == [row.kernel for row in before.rows]
    assert re.fullmatch(r"op_\d+/op_\d+/MatMul", ops.rows[1].op or "")
    assert ops.rows[1].op_type == "MatMul"
    assert report.verdict == full_report().verdict
    pairs = zip(report.findings, full_report().findings, strict=True)
    assert all(hidden == whole for hidden, whole in pairs if whole.code in RULES)
    assert report.source.run == "2026_01_02"
    assert report.command == (
        ("traceview", "report", "path_1", "--run", "2026_01_02", "-o", "report")
    )


def test_a_headline_with_the_title_of_a_finding_that_does_not_lead_is_hidden() -> None:
    report = full_report()
    hosts = tuple(replace(host, overhead_ratio=1.5) for host in report.capture.hosts)
    launches = finding(
        code="host-bound",
        severity="info",
        loss=loss(0.2, "launch"),
        arguments={"line": Line("acme.py:7 in hush")},
    )
    unsure = with_sentences(
        replace(
            report,
            capture=replace(report.capture, hosts=hosts),
            findings=(launches,),
            verdict=Verdict("", "unreliable"),
        )
    )
    headlines = [made.verdict.headline for made in (unsure, redacted(unsure))]
    assert all(text.startswith("Nothing is certain: recorded steps are 2.5") for text in headlines)
    assert [bool(SECRETS.search(text)) for text in headlines] == [True, False]
    # The title is made before the headline that has it.
    other = with_sentences(replace(unsure, findings=(replace(launches, title="another"),)))
    assert other.verdict.headline == unsure.verdict.headline


def test_headlines_of_ours_are_kept() -> None:
    """Where no finding leads they are made again, for a part of the hosts with their number; without device times they stay."""
    report = full_report()
    capture = replace(report.capture, absent_host_count=2)
    healthy = replace(report, capture=capture, findings=(), verdict=Verdict("", "healthy"))
    assert redacted(healthy).verdict.headline.startswith("1 of 3 hosts: No problem found: ")
    bare = bare_report()
    assert redacted(bare).verdict.headline == bare.verdict.headline


PUBLIC: dict[TextKind, tuple[str, ...]] = {
    "kernel": (
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_nn",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
        "void cutlass::Kernel<cutlass_80_tensorop_bf16_s16816gemm_256x128>(Params)",
        "Cijk_Ailk_Bljk_HHS_BH_MT64x64x32_MI16x16x4x1_SN_1LDSB0_ISA90a_WG16_16_1",
        "void Eigen::internal::EigenMetaKernel<Eigen::TensorMap<Eigen::Tensor<Eigen::half, 1, 1, int>, 16>, int>()",
        "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT",
        "loop_add_fusion_3",
        "MemcpyH2D",
    ),
    "thread": ("tf_data_iterator_get_next/8300", "Host Threads/12"),
    "model": (
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "AMD Radeon RX 7900 XTX",
        "NVIDIA H200 141GB HBM3e",
    ),
    "bus": ("00000000:07:00.0",),
    "setting": ("0,1,2,3", "true", "CUDA_VISIBLE_DEVICES", "mixed_bfloat16"),
    "task": ("worker 12",),
    "version": ("2.21.0-rc1",),
    "event": ("FunctionRun > EagerLocalExecute: MatMul", "cuMemcpyHtoDAsync_v2", "sgemm_128x64"),
}


@pytest.mark.parametrize("kind", PUBLIC)
def test_what_is_of_known_form_stays(kind: TextKind) -> None:
    for name in PUBLIC[kind]:
        assert Pseudonyms().shown(kind, name) == name


@pytest.mark.parametrize(
    ("kind", "name", "shown"),
    [
        ("kernel", "acme_kernel<float, 4>", "kernel_1<float, 4>"),
        (
            "kernel",
            "void Eigen::internal::Meta<Acme::F<float>>()",
            "void Eigen::internal::Meta<kernel_1<float>>()",
        ),
        ("kernel", "знак", "kernel_1"),
        ("kernel", "cutlass::acme::SecretKernel", "kernel_1"),
        ("kernel", "gemm_знак_nn", "kernel_1"),
        ("kernel", "Cijk_Ailk_Bljk_HHS_BH_acme", "kernel_1"),
        ("kernel", "Cijk_Ailk_Bljk_HHS_BH_MT64x64x32_ACMESECRET", "kernel_1"),
        ("kernel", "gemm_5551234567_nn", "kernel_1"),
        ("thread", "tf_data_acme_project", "thread_1"),
        ("model", "NVIDIA Bob2", "model_1"),
        ("bus", "gandalf:07", "bus_1"),
        ("setting", ADDRESS, "value_1"),
        ("setting", "5551234567,5551234568", "value_1"),
        ("task", "worker of mallory", "task_1"),
        ("version", "2.21.0+acme", "version_1"),
        ("event", "model/MatMul:MatMul", "op_1/MatMul:MatMul"),
        ("event", "EagerLocalExecute: __inference_acme_1", "EagerLocalExecute: type_1"),
        ("event", "cuAcmeLaunch", "event_1"),
        ("event", "$train.py:88 hush", "event_1"),
    ],
)
def test_other_names_are_hidden(kind: TextKind, name: str, shown: str) -> None:
    assert Pseudonyms().shown(kind, name) == shown


def test_codes_of_errors_stay() -> None:
    names = Pseudonyms()
    failed = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES in acme, CUDA_ERROR_acme"
    assert names.message(failed) == "message_1 (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)"


def test_every_variable_that_a_capture_notes_is_public() -> None:
    assert [name for name in VARIABLES if Pseudonyms().setting(name) != name] == []

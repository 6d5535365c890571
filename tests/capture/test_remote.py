from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.capture.conftest import ROOT
from tests.capture.profiler_server import (
    Handler,
    ProfileRequest,
    ProfileResponse,
    busy,
    running,
    sending,
    serving,
)
from tests.command import Command
from traceview.base.errors import CaptureError, UsageError
from traceview.capture.remote import jobs as remote
from traceview.capture.remote.jobs import RemoteCapture, capture_remote
from traceview.capture.remote.profiler_service import Address, parse_addresses, request, trace_of
from traceview.capture.window.ranges import parse_duration
from traceview.cli import progress

NOWHERE = Address("127.0.0.1", 1)
"""Nothing listens on port 1, and it is no port that a test could be given."""


@pytest.fixture(scope="module")
def trace() -> bytes:
    (path,) = ROOT.glob("fixtures/custom-loop-2/plugins/profile/*/*.xplane.pb")
    return path.read_bytes()


def capture(out: Path, *addresses: Address, **changes: Any) -> RemoteCapture:
    settings: dict[str, Any] = {"duration_ms": 20, "timeout_ms": 100, "progress": lambda _: None}
    return capture_remote(addresses, out, say=lambda _: None, **(settings | changes))


def sidecar_of(run: Path, stem: str) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((run / f"{stem}.traceview.json").read_text("utf-8"))
    return fields


def test_what_a_server_sends_is_a_run(tmp_path: Path, trace: bytes) -> None:
    asked = []

    def answer(request: Any, context: Any) -> bytes:
        asked.append(request)
        return sending(trace)(request, context)

    with serving(answer) as address:
        done = capture(tmp_path / "logs", address, duration_ms=1500)
    stem = f"127.0.0.1_{address.port}"
    assert done.problem is None
    assert done.run.parent == tmp_path / "logs" / "plugins" / "profile"
    assert sorted(path.name for path in done.run.iterdir()) == [
        f"{stem}.traceview.json",
        f"{stem}.xplane.pb",
    ]
    assert (done.run / f"{stem}.xplane.pb").read_bytes() == trace
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["plugins"]
    assert [(r.duration_ms, r.host_name, r.emit_xspace) for r in asked] == [(1500, stem, True)]
    sidecar = sidecar_of(done.run, stem)
    assert sidecar["state"] == "saved"
    assert sidecar["remote"] == {
        "address": str(address),
        "is_sent": True,
        "asked": [str(address)],
        "missing": {},
        "duration_ms": 1500,
    }
    assert sidecar["file"]["sha256"] == hashlib.sha256(trace).hexdigest()
    assert not {"versions", "window", "process"} & set(sidecar)  # what nobody told is not there


def test_all_servers_record_at_once_into_one_run(tmp_path: Path, trace: bytes) -> None:
    all_there = threading.Barrier(2, timeout=10)

    def answer(request: Any, context: Any) -> bytes:
        all_there.wait()
        return sending(trace)(request, context)

    with running([answer, answer]) as addresses:
        done = capture(tmp_path, *addresses)
    assert done.problem is None
    assert {path.name for path in done.run.glob("*.xplane.pb")} == {
        f"{address.file_stem}.xplane.pb" for address in addresses
    }


def test_what_came_is_kept_and_who_sent_nothing_is_named(tmp_path: Path, trace: bytes) -> None:
    with running([sending(trace), busy]) as (good, other):
        done = capture(tmp_path, good, other, NOWHERE)
    reasons = {
        str(other): "another profile is running there, and only one can run at a time",
        str(NOWHERE): "connection refused: nothing listens on this port",
    }
    assert done.problem is not None
    assert done.problem.message == "2 of 3 servers sent no trace: " + "; ".join(
        f"{address}: {reason}" for address, reason in reasons.items()
    )
    assert done.problem.hint == "if the job is still starting, --timeout waits longer than 0.1 s"
    assert [path.name for path in done.run.glob("*.xplane.pb")] == [f"{good.file_stem}.xplane.pb"]
    assert sidecar_of(done.run, good.file_stem)["remote"]["missing"] == reasons


def test_a_busy_server_needs_no_longer_timeout(tmp_path: Path) -> None:
    with serving(busy) as address, pytest.raises(CaptureError, match="another profile") as error:
        capture(tmp_path / "logs", address)
    assert error.value.message.startswith(f"no trace: {address}: ")
    assert error.value.hint is None
    assert not (tmp_path / "logs").exists()


def writing(trace: bytes, root: Path | None = None) -> Handler:
    """A server of TensorFlow 2.20, which writes below the path it is given, or sees another disk there."""

    def answer(request: Any, _: Any) -> bytes:
        folder = (root or Path(request.repository_root)) / request.session_id
        folder.mkdir(parents=True)
        (folder / f"{request.host_name}.xplane.pb").write_bytes(trace)
        return b""

    return answer


def test_what_a_server_writes_on_a_shared_path_is_kept(tmp_path: Path, trace: bytes) -> None:
    with serving(writing(trace)) as address:
        done = capture(tmp_path / "logs", address)
    assert (done.run / f"{address.file_stem}.xplane.pb").read_bytes() == trace
    assert sidecar_of(done.run, address.file_stem)["remote"]["is_sent"] is False
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["plugins"]


def test_a_path_that_is_not_shared_is_said(
    tmp_path: Path, trace: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_SHARED_SECONDS", 0.1)
    with (
        serving(writing(trace, tmp_path / "elsewhere")) as address,
        pytest.raises(CaptureError, match="sent no trace") as error,
    ):
        capture(tmp_path / "logs", address)
    assert error.value.hint is not None
    assert "writes its trace on its own disk" in error.value.hint
    assert str(tmp_path / "logs" / ".traceview-") in error.value.hint
    assert not (tmp_path / "logs").exists()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_server_may_come_up_later(tmp_path: Path, trace: bytes) -> None:
    port = free_port()
    texts: list[str] = []
    is_over = threading.Event()

    def serve_later() -> None:
        time.sleep(0.5)
        with serving(sending(trace), port):
            is_over.wait(20)

    thread = threading.Thread(target=serve_later)
    thread.start()
    try:
        done = capture(
            tmp_path, Address("127.0.0.1", port), timeout_ms=15_000, progress=texts.append
        )
    finally:
        is_over.set()
        thread.join()
    assert done.problem is None
    assert texts[0] == f"waiting for 127.0.0.1:{port}, 15 s left…"


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGINT, 130, "traceview: interrupted\n"), (signal.SIGTERM, 143, "")],
)
def test_an_interruption_while_waiting_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int, said: str
) -> None:
    command = [sys.executable, "-m", "traceview", "capture", "--remote", str(NOWHERE)]
    process = subprocess.Popen(
        [*command, "--out", "logs"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 30
    while not any(tmp_path.glob("logs/.traceview-*")) and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.2)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (code, "", said)
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_ends_the_recording_too(tmp_path: Path) -> None:
    is_cancelled, is_recording = threading.Event(), threading.Event()

    def answer(_: Any, context: Any) -> bytes:
        context.add_callback(is_cancelled.set)
        is_recording.set()
        is_cancelled.wait(20)
        return b""

    def interrupt(_: str) -> None:
        if is_recording.is_set():
            raise KeyboardInterrupt

    with serving(answer) as address:
        with pytest.raises(KeyboardInterrupt):
            capture(tmp_path / "logs", address, duration_ms=60_000, progress=interrupt)
        assert is_cancelled.wait(10)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        pytest.param(b"\xff\xff", "not a profiler server", id="no message"),
        pytest.param(
            bytes(ProfileResponse(xspace=b"<html>").SerializeToString()),
            "it sent an invalid trace: ",
            id="no trace",
        ),
    ],
)
def test_an_odd_answer_is_named(tmp_path: Path, response: bytes, reason: str) -> None:
    with (
        serving(lambda *_: response) as address,
        pytest.raises(CaptureError, match=f"{address}: {reason}"),
    ):
        capture(tmp_path / "logs", address)
    assert list(tmp_path.iterdir()) == []


def test_another_service_is_named(tmp_path: Path) -> None:
    with (
        serving(lambda *_: b"", service="OtherService") as address,
        pytest.raises(CaptureError, match="not a profiler server"),
    ):
        capture(tmp_path, address)


@pytest.mark.parametrize(
    ("code", "details", "reason"),
    [
        # As TensorFlow 2.21 answers where TF_DISABLE_PROFILING is set, and when a job ends meanwhile.
        (
            grpc.StatusCode.INTERNAL,
            "TensorFlow Profiler is permanently disabled by env var TF_DISABLE_PROFILING.",
            "TensorFlow Profiler is permanently disabled by env var TF_DISABLE_PROFILING.",
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            "Stream removed (Socket closed)",
            "connection lost: the job ended before the recording did",
        ),
        (grpc.StatusCode.UNKNOWN, "who knows", "UNKNOWN: who knows"),
        (grpc.StatusCode.UNKNOWN, "", "UNKNOWN"),
    ],
)
def test_why_there_is_no_answer(
    tmp_path: Path, code: grpc.StatusCode, details: str, reason: str
) -> None:
    def refuse(_: Any, context: Any) -> bytes:
        context.abort(code, details)
        raise AssertionError

    with serving(refuse) as address, pytest.raises(CaptureError) as error:
        capture(tmp_path, address)
    assert error.value.message == f"no trace: {address}: {reason}"


def test_nothing_is_overwritten(tmp_path: Path, trace: bytes) -> None:
    asked = []

    def answer(request: Any, context: Any) -> bytes:
        asked.append(request)
        return sending(trace)(request, context)

    with serving(answer) as address:
        first = capture(tmp_path, address, run="base")
        with pytest.raises(CaptureError, match="already exists and is not replaced"):
            capture(tmp_path, address, run="base")
        again = capture(tmp_path, address), capture(tmp_path, address)
    assert first.run.name == "base"
    assert len(asked) == 3  # not for what could not have been kept
    assert len({first.run, again[0].run, again[1].run}) == 3


def test_a_trace_that_cannot_be_moved_stays(
    tmp_path: Path, trace: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_first(request: Any, context: Any) -> bytes:
        # Somebody else was faster.
        (tmp_path / "plugins" / "profile" / "base").mkdir(parents=True)
        name = f"{request.host_name}.xplane.pb"
        (tmp_path / "plugins" / "profile" / "base" / name).write_bytes(b"theirs")
        return sending(trace)(request, context)

    with serving(write_first) as address, pytest.raises(CaptureError) as error:
        capture(tmp_path, address, run="base")
    (left,) = tmp_path.glob(".traceview-*/remote/*.xplane.pb")
    assert left.read_bytes() == trace
    assert error.value.hint == f"the capture is kept in {left.parent.parent}"


def test_grpc_is_asked_for_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(CaptureError, match="--remote needs grpcio") as error:
        capture(tmp_path / "logs", NOWHERE)
    assert error.value.hint is not None
    assert "traceview[remote]" in error.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_request_is_what_the_protobuf_runtime_reads() -> None:
    asked = ProfileRequest.FromString(request(300, "/logs/é", "session", "host_1"))
    assert {field.name: value for field, value in asked.ListFields()} == {
        "duration_ms": 300,
        "repository_root": "/logs/é",
        "session_id": "session",
        "host_name": "host_1",
        "emit_xspace": True,
    }


def test_a_response_may_be_without_a_trace() -> None:
    assert trace_of(ProfileResponse(empty_trace=True).SerializeToString()) is None
    sent = trace_of(ProfileResponse(empty_trace=True, xspace=b"ab").SerializeToString())
    assert sent is not None
    assert bytes(sent) == b"ab"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2s", 2000),
        ("500ms", 500),
        ("1.5s", 1500),
        ("1m", 60_000),
        (" 3 s ", 3000),
        ("60m", 3600_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration("--duration", text) == milliseconds


@pytest.mark.parametrize("text", ["", "2", "s", "-1s", "0s", "0.1ms", "2h", "1e3s", "61m", "٢s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(UsageError, match=f"--timeout {text}: "):
        parse_duration("--timeout", text)


def test_addresses() -> None:
    found = parse_addresses(["grpc://a-1.net:6009, 10.0.0.2:1", "[::1]:65535"])
    assert [str(address) for address in found] == ["a-1.net:6009", "10.0.0.2:1", "[::1]:65535"]
    assert [address.file_stem for address in found] == ["a-1.net_6009", "10.0.0.2_1", "__1_65535"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (" , ", "no address"),
        ("host", "the port is missing"),
        ("[::1]", "the port is missing"),
        ("host:", "not a host:port"),
        ("::1:80", "not a host:port"),
        ("http://host:80", "not a host:port"),
        ("host:0", "the port must be"),
        ("host:65536", "the port must be"),
        ("a:1,b:2,a:1", "a:1 and a:1 are the same server"),
    ],
)
def test_no_addresses(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_addresses([text])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--remote", "a:1", "train.py"], "SCRIPT cannot be combined with --remote"),
        (["--remote", "a:1", "--steps", "10:15"], "--steps cannot be combined with --remote"),
        (["--remote", "a:1", "--without", "sync"], "--without cannot be combined with --remote"),
        (["--remote", "a:1", "--serve", "6009"], "--serve cannot be combined with --remote"),
        (["--remote", "a"], "--remote a: the port is missing"),
        (["--remote", "a:1", "--duration", "2"], "--duration 2: not a duration"),
        (["--remote", "a:1", "--timeout", "x"], "--timeout x: not a duration"),
        (["--remote", "a:1", "--run", "x/y"], "must not be a path"),
        (["--duration", "2s", "train.py"], "--duration needs --remote"),
        (["--timeout", "2s", "train.py"], "--timeout needs --remote"),
        (["--serve", "0", "train.py"], "0 is not in the range"),
        ([], "missing argument 'SCRIPT'"),
    ],
)
def test_wrong_usage(
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("capture", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("no_terminal")
def test_the_last_line_is_the_run(command: Command, tmp_path: Path, trace: bytes) -> None:
    with serving(sending(trace)) as good:
        options = ["--duration", "20ms", "--timeout", "100ms", "--out", str(tmp_path)]
        whole = command("capture", "--remote", str(good), *options, "--analyze")
        part = command("capture", "--remote", f"{good},{NOWHERE}", *options)
    (line,) = whole.err.splitlines()
    assert whole.code == 0
    assert "The step is small: host ops take 2.04 of 2.96 ms (69%)" in " ".join(whole.out.split())
    assert Path(line).is_dir()
    said, hint, line = part.err.splitlines()
    assert (part.code, part.out) == (5, "")
    assert said.startswith(f"traceview: 1 of 2 servers sent no trace: {NOWHERE}: ")
    assert hint.startswith("traceview: hint: if the job is still starting, --timeout ")
    assert Path(line).is_dir()


def test_no_server_at_all_is_one_line(command: Command, tmp_path: Path) -> None:
    done = command(
        "capture", "--remote", str(NOWHERE), "--timeout", "1ms", "--out", str(tmp_path / "logs")
    )
    assert (done.code, done.out) == (5, "")
    assert done.err.splitlines()[0] == (
        f"traceview: error: no trace: {NOWHERE}: connection refused: nothing listens on this port"
    )
    assert not (tmp_path / "logs").exists()


class Terminal(TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(BytesIO(), encoding="utf-8", newline="")

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    with progress.waiting() as show:
        show("waiting for a:1")
        show("waiting")
    shown.seek(0)
    assert shown.read() == "\rwaiting for a:1\rwaiting        \r       \r"

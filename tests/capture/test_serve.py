from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.capture.conftest import Capture
from tests.capture.fake_tensorflow import SCRIPT_START

LOOP = """
for batch in batches(12):
    train_step(batch)
"""
PORTS = """
print(tf.profiler.experimental.server.ports)
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on and would share, as gRPC's servers do."""
    with socket.socket(socket.AF_INET6) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(("", 0))
        listening.listen()
        yield listening.getsockname()[1]


def test_the_server_starts_once_when_tensorflow_runs_something(capture: Capture, port: int) -> None:
    script = f"{SCRIPT_START}{PORTS}{LOOP}{PORTS}"
    done = capture(script, "--serve", str(port), "--steps", "5:7")
    assert (done.code, done.out) == (0, f"[]\n[{port}]\n")
    assert done.numbers() == [4, 5, 6, 7]
    assert done.sidecar["server"] == {"port": port, "is_started": True}
    (line,) = [line for line in done.err.splitlines() if "profiler server" in line]
    host = socket.gethostname()
    assert line == (
        f"traceview: profiler server on port {port}; to record: traceview capture --remote {host}:{port} --duration 2s"
    )


def test_a_server_that_does_not_start_ends_nothing(capture: Capture, port: int) -> None:
    done = capture(
        SCRIPT_START + LOOP,
        *("--serve", str(port), "--steps", "5:7"),
        environment={"FAKE_SERVER_FAILS": "1"},
    )
    assert done.code == 0
    assert f"traceview: note: the profiler server did not start: no port {port}" in done.err
    assert done.sidecar["server"] == {"port": port, "is_started": False}
    assert done.numbers() == [4, 5, 6, 7]


def test_without_it_there_is_none(capture: Capture) -> None:
    done = capture(SCRIPT_START + LOOP + PORTS, "--steps", "5:7")
    assert done.out == "[]\n"
    assert "server" not in done.sidecar


def test_a_port_that_is_taken_is_said_before_the_run(capture: Capture, taken: int) -> None:
    done = capture("print('ran')", "--serve", str(taken))
    assert (done.code, done.out) == (5, "")
    assert done.err.startswith(f"traceview: error: --serve {taken}: the port is in use\n")
    assert not done.logdir.exists()

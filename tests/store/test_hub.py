"""`hf://` works for reading and writing, against a stand-in for the Hugging Face Hub on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.store.conftest import FIXTURE
from tests.store.hub import Hub, handler_of

pytestmark = pytest.mark.cloud

LOGS = "hf://datasets/ann/runs/logs"
TRACE = "logs/plugins/profile/2026_11_21_07_57_19/host-a.xplane.pb"
SIDECAR = TRACE.replace("xplane.pb", "traceview.json")
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hub(recorded: dict[str, bytes]) -> Hub:
    """A data set with the recorded log directory."""
    return Hub({f"logs/{name}": content for name, content in recorded.items()})


@pytest.fixture
def run(hub: Hub, tmp_path: Path) -> Iterator[Run]:
    """Runs traceview in a process of its own: the client reads the address of its Hub when it is imported."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(hub))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    environment = {
        **os.environ,
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(tmp_path / "hub"),
    }
    environment.pop("HF_TOKEN", None)

    def run(
        *words: str, token: str | None = None, code: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        program = ("-c", code) if code else ("-m", "traceview")
        return subprocess.run(
            [sys.executable, *program, *words],
            env={**environment, **({"HF_TOKEN": token} if token else {})},
            capture_output=True,
            text=True,
            check=False,
        )

    yield run
    server.shutdown()
    server.server_close()


def test_a_report_is_the_local_one_and_each_byte_is_read_once(
    run: Run, hub: Hub, fixtures: Path
) -> None:
    done = run("analyze", LOGS, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    local = json.loads(run("analyze", str(fixtures / FIXTURE), "--format", "json").stdout)
    assert report["results"] == local["results"]
    assert report["findings"] == local["findings"]
    assert report["source"]["logdir"] == LOGS
    assert hub.sent_bytes == {name: len(hub.files[name]) for name in (TRACE, SIDECAR)}


IN_RANGES = """
import sys
from traceview.store import ranges
ranges.BLOCK_BYTES, ranges.RANGE_BYTES = 1 << 14, 1 << 15
sys.argv = ["traceview", "analyze", sys.argv[1]]
from traceview.cli import main
main()
"""


def test_ranges_are_asked_for(run: Run, hub: Hub) -> None:
    done = run(LOGS, code=IN_RANGES)
    assert done.returncode == 0, done.stderr
    asked = [request for request in hub.requests if request.endswith(f"/resolve/main/{TRACE}")]
    assert len(asked) > 5
    assert hub.sent_bytes == {name: len(hub.files[name]) for name in (TRACE, SIDECAR)}


def test_a_private_repository_without_a_token(run: Run, hub: Hub) -> None:
    hub.token = "hf_right"
    for token in (None, "hf_wrong"):
        done = run("analyze", LOGS, token=token)
        assert (done.returncode, done.stdout) == (11, "")
        message, hint = done.stderr.splitlines()
        assert message.startswith(f"traceview: error: {LOGS}: access denied: HTTP 401")
        assert hint.startswith("hint: run hf auth login, or set HF_TOKEN")
        assert "hf_wrong" not in done.stderr
    assert run("show", "runs", LOGS, token="hf_right").returncode == 0


@pytest.mark.parametrize("place", ["datasets/ann/none/logs", "datasets/ann/runs/none"])
def test_nothing_there(run: Run, place: str) -> None:
    done = run("analyze", f"hf://{place}")
    assert (done.returncode, done.stderr) == (
        3,
        f"traceview: error: hf://{place}: no such file or directory\n",
    )


def test_tables_and_reports_are_written(run: Run, hub: Hub, fixtures: Path, tmp_path: Path) -> None:
    logs, out = str(fixtures / FIXTURE), "hf://datasets/ann/runs/out"
    hub.token = "hf_right"
    denied = run("show", "gaps", logs, "-o", f"{out}/gaps.csv")
    assert (denied.returncode, "access denied: HTTP 401" in denied.stderr) == (11, True)
    assert run("show", "gaps", logs, "-o", f"{out}/gaps.csv", token="hf_right").returncode == 0
    run("show", "gaps", logs, "-o", str(tmp_path / "gaps.csv"))
    assert hub.files["out/gaps.csv"] == (tmp_path / "gaps.csv").read_bytes()
    again = run("show", "gaps", logs, "-o", f"{out}/gaps.csv", token="hf_right")
    assert (again.returncode, "--force replaces it" in again.stderr) == (6, True)
    done = run("report", logs, "-o", f"{out}/report", token="hf_right")
    assert done.returncode == 0, done.stderr
    names = ("report.html", "report.json", "report.md", "timeline.svg")
    assert {f"out/report/{name}" for name in names} <= set(hub.files)


def test_a_commit_that_comes_in_between_is_seen(run: Run, hub: Hub) -> None:
    def newest() -> str:
        report = json.loads(run("analyze", LOGS, "--format", "json").stdout)
        return str(report["source"]["run"])

    assert newest() == "2026_11_21_07_57_19"
    later = TRACE.replace("2026_11_21", "2026_11_22")
    hub.files[later] = hub.files[TRACE]
    assert newest() == "2026_11_22_07_57_19"

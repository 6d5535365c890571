"""A log directory in a store is watched too, also while the store fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command import Command
from traceview.base.errors import StoreError
from traceview.cli.commands.watch import _Job, _Outputs
from traceview.store import ranges
from traceview.store.address import location_of
from traceview.watch.follow import Follower

pytestmark = [pytest.mark.cloud, pytest.mark.usefixtures("no_terminal")]


@pytest.fixture
def memory(fixtures: Path) -> Iterator[Any]:
    """The memory of the process as a store, with one run in `logs`."""
    import fsspec

    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]
    (trace,) = (fixtures / "slow-input-2").rglob("*.xplane.pb")
    filesystem.pipe_file("/logs/plugins/profile/one/host.xplane.pb", trace.read_bytes())
    yield filesystem
    filesystem.store.clear()
    ranges.forget()


def test_a_store_is_watched(command: Command, memory: Any) -> None:
    watch = (
        "watch",
        "memory://logs",
        "--once",
        "--every",
        "10ms",
        "--prometheus",
        "memory://run.prom",
    )
    done = command(*watch)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("one · median step 67.0 ms")
    assert b'run="one"' in memory.cat_file("/run.prom")
    assert not ranges._kept


def test_a_store_that_fails_does_not_end_the_watch(
    memory: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    follower = Follower(location_of("memory://logs"), 5)
    outputs = _Outputs([_Job("logs", follower)], None)
    follower.begin()

    def fail(*_: object) -> None:
        raise StoreError("memory://logs: no answer in time")

    with monkeypatch.context() as patch:
        patch.setattr("traceview.watch.follow.find_runs", fail)
        outputs.look()
        outputs.look()
        outputs.is_once = True
        with pytest.raises(StoreError):
            outputs.look()
    outputs.is_once = False
    outputs.look()
    out, err = capfd.readouterr()
    assert out.startswith("one · ")
    assert err.splitlines() == [
        "traceview: memory://logs: no answer in time; trying again",
        "traceview: the store answers again",
    ]

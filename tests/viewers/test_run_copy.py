"""A viewer gets all of a run in the layout that it expects, and nothing of the copy remains."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.viewers.snapshot import snapshot
from traceview.export.viewers import copied_run
from traceview.trace.reading.locate import find_runs


@pytest.mark.parametrize("name", ["two\nlines", "a b&c#d?", "ядро", "%2e%2e", "x" * 200, "..."])
def test_names_that_an_address_cannot_hold_become_plain(
    name: str, fixtures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "plugins" / "profile" / name
    folder.mkdir(parents=True)
    (source,) = (fixtures / "custom-loop-2").rglob("*.xplane.pb")
    for host in ("ho st", "ho\tst"):
        shutil.copy(source, folder / f"{host}.xplane.pb")
    (run,) = find_runs(tmp_path)
    with copied_run(run) as copy:
        assert copy.run.isascii()
        assert 0 < len(copy.run) <= 100
        assert not set(copy.run) & set(" \n&#?%/")
        assert not copy.run.startswith(".")
        assert len({path.name for path in copy.files}) == 2
        assert {path.read_bytes() for path in copy.files} == {source.read_bytes()}


@pytest.mark.parametrize("hosts", [("b#", "b#_2", "b_"), ("Host", "host"), ("a b", "a b_1", "a_b")])
def test_no_file_of_a_run_takes_the_name_of_another(
    hosts: tuple[str, ...], fixtures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "plugins" / "profile" / "run"
    folder.mkdir(parents=True)
    (source,) = (fixtures / "custom-loop-2").rglob("*.xplane.pb")
    for number, host in enumerate(hosts):
        (folder / f"{host}.xplane.pb").write_bytes(source.read_bytes() + bytes(2 * number))
    before = snapshot(tmp_path)
    (run,) = find_runs(tmp_path)
    with copied_run(run) as copy:
        assert len({path.name.casefold() for path in copy.files}) == len(run.paths)
        assert [path.read_bytes() for path in copy.files] == [p.read_bytes() for p in run.paths]
        copy.files[0].with_name("host.op_stats.pb").write_bytes(b"cache")
        folder = copy.logdir.parent
        assert copy.logdir not in copy.scratch.parents
    assert not folder.exists()
    assert snapshot(tmp_path) == before


def test_files_are_copied_where_there_are_no_links(
    fixtures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(Path, "symlink_to", refuse)
    (run,) = find_runs(fixtures / "custom-loop-2")
    with copied_run(run) as copy:
        assert not copy.files[0].is_symlink()
        assert copy.files[0].read_bytes() == run.paths[0].read_bytes()

"""Processes that a launcher starts without TF_CONFIG, and processes that only share `--output` and `--run`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.capture.conftest import CAPTURE, environment_with, run_together
from tests.capture.fake_tensorflow import SCRIPT_START
from traceview.capture.sidecar.environment import own_place, rank_of

CONFIG = (
    '{"cluster": {"worker": ["me:hunter2@a:1", "b:1"], "ps": {"0": "c:1"}}, '
    '"task": {"type": "worker", "index": "1"}}'
)
OF_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        (OF_MPI, (1, 2)),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, (3, 4)),
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "8"}, (2, 8)),
        ({"RANK": "2", "WORLD_SIZE": "8"}, (2, 8)),
        # mpirun inside a step of one task.
        ({**OF_MPI, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, (1, 2)),
        # The script of sbatch itself.
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),
        ({"PMI_RANK": "0", "PMI_SIZE": "1"}, None),
        ({"PMI_RANK": "4", "PMI_SIZE": "4"}, None),
        ({"PMI_RANK": "-1", "PMI_SIZE": "4"}, None),
        ({"PMI_RANK": "x", "PMI_SIZE": "4"}, None),
        ({"PMI_RANK": "1" * 5000, "PMI_SIZE": "9" * 5000}, None),
        ({"RANK": "general"}, None),
        ({}, None),
    ],
)
def test_ranks(environment: Mapping[str, str], rank: tuple[int, int] | None) -> None:
    assert rank_of(environment) == rank


@pytest.mark.parametrize(
    ("config", "group"),
    [
        (None, {"role": "rank", "index": 2}),
        (CONFIG, {"role": "worker", "index": 1, "sizes": {"worker": 2, "ps": 1}}),
    ],
)
def test_the_sidecar_has_the_place_without_addresses_and_tf_config_comes_first(
    config: str | None, group: dict[str, Any]
) -> None:
    rank = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "8"}
    place = own_place(rank if config is None else {**rank, "TF_CONFIG": config})
    assert place is not None
    assert place.as_json() == group


# Whole captures, with a TensorFlow that trains nothing

LOOP = SCRIPT_START + "for number in batches(30, 0.02): train_step(number)\n"


def captured_together(
    folder: Path, fake: Path, environments: Sequence[Mapping[str, str]], *options: str
) -> tuple[list[str], list[Path]]:
    """Messages, and the runs they end with, of captures of the same script at the same time."""
    (folder / "train.py").write_text(LOOP, encoding="utf-8")
    commands = [[*CAPTURE, *options, "train.py"]] * len(environments)
    done = run_together(folder, commands, [environment_with(fake, **e) for e in environments])
    assert [each.code for each in done] == [0] * len(done), done
    texts = [each.err for each in done]
    return texts, [Path(text.splitlines()[-1]) for text in texts]


def traces(run: Path) -> list[str]:
    """The traces of a run, each of which must have its own sidecar."""
    found = sorted(path.name for path in run.glob("*.xplane.pb"))
    pids = set()
    for name in found:
        sidecar = run / name.replace(".xplane.pb", ".traceview.json")
        groups: dict[str, Any] = json.loads(sidecar.read_text("utf-8"))
        pids.add(groups["process"]["pid"])
    assert len(pids) == len(found)
    assert len(list(run.iterdir())) == 2 * len(found)
    return found


RANKS = [{"SLURM_PROCID": str(number), "SLURM_STEP_NUM_TASKS": "2"} for number in range(2)]


@pytest.mark.parametrize(
    ("environments", "ends"), [([{}] * 3, ["", "_p2", "_p3"]), (RANKS, ["_r0", "_r1"])]
)
def test_processes_of_one_run_get_a_file_each(
    environments: list[dict[str, str]], ends: list[str], tmp_path: Path, fake: Path
) -> None:
    _, runs = captured_together(tmp_path, fake, environments, "--run", "mine")
    run = tmp_path / "logs" / "plugins" / "profile" / "mine"
    assert {*runs} == {run}
    assert traces(run) == [f"fake-host{end}.xplane.pb" for end in ends]
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["plugins"]


def test_ranks_that_may_be_independent_hear_of_the_run(tmp_path: Path, fake: Path) -> None:
    texts, runs = captured_together(tmp_path, fake, RANKS)
    assert len({*runs}) == 2
    hint = "note: each of the 2 ranks gets its own run; if they train together, --run NAME"
    assert [hint in text for text in texts] == [True, False]

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace

import traceview
from scripts.scenarios import SCENARIOS
from tests.export.perfetto_reading import read
from tests.hostile import HOSTILE
from traceview.analysis.facts.selection import select
from traceview.analysis.measures.context import Context
from traceview.document.sanitize import MOST
from traceview.export import perfetto
from traceview.export.draw import drawn
from traceview.report.tables import TABLES, csv_of, parquet_of, table_of
from traceview.trace.columns import NONE, HostColumns, HostStat, Names
from traceview.xplane.planes import TEXT_STATS

RAW = [
    *(name.encode("utf-8", "surrogateescape") for name in HOSTILE),
    b"\xff\xfe\x00",
    b"=cmd|' /C calc'!A0",
    b"-1+1",
    b"",
]


@pytest.fixture
def hostile(tmp_path: Path) -> tuple[Context, traceview.Report]:
    """A run in which every name of an event, a line, a device and a host tries to be something else."""
    SCENARIOS["B"]().write(tmp_path / "logs")
    trace = traceview.load(tmp_path / "logs")
    names = Names()
    indices = names.add_all(RAW)
    texts = [name.decode("utf-8", "replace") for name in RAW]
    device, host = trace.device_columns, trace.host_columns
    assert host.count > len(RAW), "each name stands somewhere"
    changed = replace(
        trace,
        names=names,
        device_columns=replace(
            device,
            name=np.resize(indices, device.count),
            op=np.resize(indices[::-1], device.count),
            instruction=np.full_like(device.instruction, NONE),
        ),
        host_columns=replace(host, name=np.resize(indices, host.count), stats=number_stats(host)),
        hosts=tuple(replace(one, name=texts[3]) for one in trace.hosts),
        lines=tuple(
            replace(one, name=texts[place % len(texts)]) for place, one in enumerate(trace.lines)
        ),
        device_list=tuple(
            replace(one, model=texts[place % len(texts)])
            for place, one in enumerate(trace.device_list)
        ),
    )
    return Context(changed, select(changed)), traceview.analyze(changed)


def number_stats(host: HostColumns) -> dict[str, HostStat]:
    """The stats that are no texts, which are names as well."""
    return {key: stat for key, stat in host.stats.items() if key not in TEXT_STATS}


def test_traces_are_valid_and_their_names_harmless(
    hostile: tuple[Context, traceview.Report],
) -> None:
    scene = drawn(*hostile)
    found = read(b"".join(perfetto.written(scene)))
    shown = [one.name for one in found.slices]
    texts = [
        text for one in found.slices for text in one.arguments.values() if isinstance(text, str)
    ]
    tracks = [found.track_name(one) for one in found.tracks]
    processes = [found.process_of(one.track) for one in found.slices[:1]]
    for text in {*shown, *texts, *tracks, *processes}:
        assert text.isprintable()
        # What is left of a longer one may stand there as escapes.
        assert len(text) <= len("\\U0010ffff") * (MOST + 20)
    assert max(map(len, [*shown, *texts, *tracks])) >= MOST
    assert any("\\u202e" in text for text in [*shown, *texts, *tracks])


def test_tables_keep_the_names_as_they_are(
    hostile: tuple[Context, traceview.Report],
) -> None:
    trace = hostile[0].trace
    for table in (table_of(hostile[0], name) for name in TABLES):
        frame = pd.read_parquet(io.BytesIO(parquet_of(table)))
        content = b"".join(csv_of(table)).decode()
        heads, *rows = csv.reader(io.StringIO(content, newline=""))
        assert heads == list(frame.columns)
        assert len(rows) == len(frame) == table.count
        assert all(len(row) == len(heads) for row in rows)
        assert not any(
            cell.startswith(("=", "+", "@")) or (cell.startswith("-") and not cell[1:].isdigit())
            for row in rows
            for cell in row
        )
        if table.name == "device_events":
            told = [trace.names.text(int(one)) for one in trace.device_columns.name[frame["row"]]]
            assert frame["name"].tolist() == told
            names = [row[heads.index("name")].replace("'", "") for row in rows]
            assert names == [text.replace("'", "") for text in told if text is not None]
            assert np.array(rows)[:, heads.index("start_ps")].astype(np.int64).tolist() == (
                frame["start_ps"].tolist()
            )

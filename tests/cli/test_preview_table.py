"""The counts of a dry run fit on a screen, whatever time they span."""

from __future__ import annotations

import datetime as dt

import pytest
from delayq.cli.pipeline.tables import tell_preview

from delayq.spark.jobs.preview import Preview

START = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("hours", "head", "first", "lines"),
    [
        (48, "hour", "2030-01-01 00:00", 48),
        (24 * 31, "day", "2030-01-01", 31),
        (24 * 365, "month", "2030-01", 12),
    ],
)
def test_dry_run_divides_its_span_into_few_lines(
    capsys: pytest.CaptureFixture[str], hours: int, head: str, first: str, lines: int
):
    counts = {START + dt.timedelta(hours=n): 1 for n in range(hours)}
    tell_preview(Preview(hours, 0, {}, START, max(counts), counts), as_json=False)
    _, _, top, *rows = capsys.readouterr().out.splitlines()
    assert top.startswith(f"{head} (UTC)")
    assert (rows[0].startswith(first), len(rows)) == (True, lines)
    assert sum(int(row.removeprefix(row[: row.index("  ")]).split()[0]) for row in rows) == hours

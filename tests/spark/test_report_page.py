"""The page shows the figures, is self-contained, and runs no code from a message."""

from __future__ import annotations

import datetime as dt
import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from delayq.spark.jobs.report import report, save
from delayq.spark.reporting.charts import LineChart
from delayq.spark.reporting.figures import Figures
from delayq.spark.reporting.page import Section
from tests.harness.spark.recorded import event, frame

EVIL = "<script>alert('x')</script> & \"more\""
SHARES = ("p50", "p90", "p99", "max")
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Elements(HTMLParser):
    """The elements of a page; each must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data.strip())


@pytest.fixture(scope="module")
def figures(spark: SparkSession) -> Figures:
    events = [
        event("sent", 0),
        event("delivered", 1, attempt=1, late=1.0),
        event("nacked", 3, attempt=1),
        event("delivered", 200, attempt=2, late=0.002),
        event("died", 200.5, attempt=2, reason=EVIL),
        event("sent", 10, queue=EVIL),
    ]
    return report(spark, frame(spark, events))


@pytest.fixture(scope="module")
def saved(figures: Figures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    save(figures, str(folder))
    return folder


@pytest.fixture(scope="module")
def html(saved: Path) -> str:
    return (saved / "report.html").read_text()


def test_page_is_complete_and_refers_to_nothing_outside(html: str):
    assert html.startswith("<!DOCTYPE html>")
    elements = Elements(html)
    assert elements.open == []
    assert {tag for tag, _ in elements.tags}.isdisjoint({"script", "link", "img", "iframe", "object", "base", "form"})
    referring = {"src", "href", "srcset", "action", "data", "xlink:href"}
    assert not [name for _, attributes in elements.tags for name in attributes if name in referring or name[:2] == "on"]
    assert not re.search(r"https?:|//[a-z]|url\(|@import", html)
    policy = [attributes["content"] for tag, attributes in elements.tags if "http-equiv" in attributes]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_text_of_a_message_stays_text(html: str):
    elements = Elements(html)
    assert elements.text.count(EVIL) >= 2  # a queue's name, and an error
    assert "<script" not in html


def test_each_chart_has_a_title_a_summary_and_a_table(html: str):
    charts = re.findall(r"<svg viewBox.*?</svg>\s*<details>.*?</details>", html, re.DOTALL)
    assert len(charts) == 5  # four for one queue, and one for the other, which only has sends
    for chart in charts:
        named = re.search(r'role="img" aria-labelledby="(\S+) (\S+)"', chart)
        assert named
        assert f'<title id="{named[1]}">' in chart
        assert f'<desc id="{named[2]}">' in chart
        assert chart.count("<tr>") > 1
    identifiers = re.findall(r'\bid="([^"]+)"', html)
    assert len(identifiers) == len(set(identifiers))


def test_page_shows_the_figures(html: str):
    text = Elements(html).text
    assert {"2026-11-21 12:00", "2ms", "1s", "Retried and dead, per minute"} <= set(text)
    assert "retried 1, died 1 in all. The same figures follow as a table." in text
    assert text.count("None in this time.") == 5


def test_chart_lines_differ_by_more_than_colour(html: str):
    dashes = dict(re.findall(r"\.s(\d) \{ stroke: [^;]+;(?: stroke-dasharray: ([^;]+);)?", html))
    assert len(dashes) == len(set(dashes.values())) == 4


def test_light_and_dark_themes_set_the_same_colours(html: str):
    light, dark = re.findall(r":root \{(.*?)\}", html, re.DOTALL)
    assert re.findall(r"--\w+", light) == re.findall(r"--\w+", dark)
    assert "@media (prefers-color-scheme: dark)" in html


def test_empty_report_says_so(spark: SparkSession, tmp_path: Path):
    save(report(spark, frame(spark, [event("sent")]).where("false")), str(tmp_path))
    assert "no events were found" in (tmp_path / "report.html").read_text()


def test_saved_report_is_a_page_and_one_file_per_table(saved: Path):
    names = ["attempts", "deaths", "lateness", "minutes", "queues"]
    assert sorted(path.stem for path in (saved / "figures").iterdir()) == names
    assert pq.read_table(saved / "figures" / "queues.parquet")["sent"].to_pylist() == [1, 1]


def shapes(minutes: int, late: float) -> list[list[str]]:
    """The chart lines of a queue that sent and delivered one message per minute."""
    start = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
    counts = dict.fromkeys(("sent", "delivered", "acked"), 1) | dict.fromkeys(("retried", "died"), 0)
    times = {f"late_{share}": late for share in SHARES} | {f"took_{share}": None for share in SHARES}
    spans = [counts | times | {"minute": start + dt.timedelta(minutes=i)} for i in range(minutes)]
    charts = Section(counts | times | {"queue": "q"}, 1, spans, [], []).charts
    return [[] if chart.is_empty else [path.shape for path in chart.paths] for chart in charts]


def test_single_minute_is_a_line_and_zero_lateness_is_drawn():
    left, right = LineChart.left, LineChart.right
    counts, failures, late, took = shapes(minutes=1, late=0.0)
    for shape in [*counts, *late]:
        assert re.fullmatch(rf"M{left:.1f} [\d.]+H{right:.1f}", shape)
    assert (len(counts), len(late), failures, took) == (3, 4, [], [])


def test_chart_points_are_at_the_middle_of_their_spans():
    (sent, *_), *_ = shapes(minutes=1440, late=0.5)
    assert (sent.count("M"), sent.count("L"), "H" in sent) == (1, 1439, False)

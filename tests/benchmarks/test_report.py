"""The tables and the chart show everything that was measured, and what failed."""

from __future__ import annotations

import io
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from benchmarks import plot, report

ABOUT = {
    "processor": "a processor",
    "cores": 2,
    "memory_gib": 8,
    "system": "Linux",
    "at": "2026-01-01T00:00:00+00:00",
    "redis": "7.0.15",
    "python": "3.11.7",
    "delayq": "0.1.0",
    "redis-py": "8.1.0",
    "hiredis": "3.5.0",
    "runs": 5,
    "longest_pause_ms": 0.5,
}


def about(name: str, language: str = "Python") -> dict[str, str]:
    fields = {"peer": name, "version": "1.2.3", "language": language, "note": "a note"}
    return fields | {"throughput": "concurrency 8", "latency": "concurrency 1"}


def rate(median: float, least: float, most: float) -> dict[str, Any]:
    return {"messages": 1000, "figures": {"per_second": {"median": median, "min": least, "max": most}}}


@pytest.fixture
def results() -> dict[str, Any]:
    pair = {"per_second": {"median": 90, "min": 80, "max": 100}, "bare_per_second": {"median": 100, "min": 1, "max": 2}}
    return {
        "about": ABOUT,
        "peers": {"delayq": about("delayq"), "huey": about("Huey"), "bull": about("Bull & Co", "TypeScript")},
        "failed": {"rq": "NoEnvironment: no | such package"},
        "reference": {"before": {"SET": 1000.0}, "after": {"SET": 2000.0}},
        "workloads": {
            "send_one": {
                "huey": rate(10, 9, 11),
                "delayq": rate(1234, 1200, 1300),
                "bull": {"failed": "PeerFailed: it\nended" + "x" * 500},
            },
            "send_bulk": {"delayq": rate(5, 5, 5), "huey": {"unsupported": "it has none"}, "bull": rate(20, 20, 20)},
        },
        "own": {
            "rates": {"send_bulk": pair | {"ratio": 0.9, "unrest": 0.01}},
            "awaited": {"send_tasks": pair | {"ratio": 2.5, "unrest": 0.01}},
            "topics": {"poll": pair | {"ratio": 0.8, "unrest": 0.01}},
            "functions": {"tasks": pair | {"ratio": 0.93, "unrest": 0.01}},
            "ledger": {"drain": pair | {"ratio": 0.8, "unrest": 0.01, "redis_us": {"with": 12.34, "without": 7.0}}},
            "metrics": {"drain": pair | {"ratio": 0.987, "unrest": 0.01, "scrapes": [2, 3]}},
            "cost": {"redis_cpu_us": 10.0, "commands": 0.1, "trips": 0.01, "lone_trips": 5},
        },
    }


def table(results: dict[str, Any], title: str) -> report.Table:
    (found,) = [each for each in report.tables(results) if each.title == title]
    return found


def test_peers_are_ordered_by_their_figures_with_failures_last(results: dict[str, Any]):
    rows = table(results, "Send one by one").rows
    assert rows[:2] == [["delayq", "1,234 (1,200–1,300)"], ["Huey", "10 (9–11)"]]
    name, why = rows[2]
    assert name == "Bull & Co"
    assert why.startswith("failed: PeerFailed: it endedxx")
    assert len(why) == report.EXCUSE


def test_peer_without_a_bulk_call_is_shown_as_such(results: dict[str, Any]):
    rows = table(results, "Send in bulk").rows
    assert rows == [["Bull & Co", "20"], ["delayq", "5"], ["Huey", "not supported: it has none"]]


def test_rates_of_the_async_api_have_their_own_table(results: dict[str, Any]):
    found = table(results, "delayq.aio compared with the bare scripts")
    assert found.rows == [["send from 100 tasks", "90 (80–100)", "100 (1–2)", "2.50", "1%"]]


def test_topics_are_compared_with_plain_redis_commands(results: dict[str, Any]):
    found = table(results, "Topics compared with plain Redis commands")
    assert found.columns[:3] == ["records/s", "delayq", "redis-py"]
    title = "poll by 500, compared with XREADGROUP COUNT 500"
    assert found.rows == [[title, "90 (80–100)", "100 (1–2)", "0.80", "1%"]]
    assert "| topics: poll, relative to redis-py's own commands | 0.8 | ≥ 0.7 | pass |" in report.markdown(results)


def test_tasks_are_compared_with_a_handler(results: dict[str, Any]):
    found = table(results, "Functions as tasks compared with a plain handler")
    assert found.columns[:3] == ["messages/s", "delayq", "handler"]
    assert found.rows == [["a task", "90 (80–100)", "100 (1–2)", "0.93", "1%"]]
    assert "| consume tasks, relative to a plain handler | 0.93 | ≥ 0.9 | pass |" in report.markdown(results)


def test_cost_of_a_ledger_has_a_table(results: dict[str, Any]):
    found = table(results, "With a ledger, and without")
    assert found.rows == [["consume", "90 (80–100)", "100 (1–2)", "20%", "12.3", "7.0", "1%"]]


def test_markdown_has_each_table_the_machine_and_the_settings(results: dict[str, Any]):
    text = report.markdown(results)
    for each in report.tables(results):
        assert f"### {each.title}\n\n| " in text
    assert "| rq | NoEnvironment: no \\| such package |" in text
    assert "| SET | 1,000/s | 2,000/s |" in text
    assert "a processor, 2 cores" in text
    assert "ready to run was 0.5 ms" in text
    assert "- **Huey 1.2.3** (Python).\n  Throughput: concurrency 8." in text
    assert "| send in bulk | 5 /s | ≥ 150,000 /s | MISS |" in text


def test_lines_of_a_markdown_table_have_equally_many_cells(results: dict[str, Any]):
    for part in report.markdown(results).split("### ")[1:]:
        lines = [line.replace("\\|", "") for line in part.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) <= 1


def test_terminal_shows_the_same_tables(results: dict[str, Any]):
    stream = io.StringIO()
    report.print_tables(results, Console(file=stream, width=160))
    for each in report.tables(results):
        assert each.title in stream.getvalue()


def test_picture_has_a_bar_for_each_comparison(results: dict[str, Any]):
    picture = ET.fromstring(plot.svg(results))
    space = "{http://www.w3.org/2000/svg}"
    colours = [each.get("fill") for each in picture.iter(f"{space}rect")]
    assert colours.count(plot.AHEAD) == 1  # Huey's sends
    assert colours.count(plot.BEHIND) == 1  # Bull's bulk sends
    texts = [each.text for each in picture.iter(f"{space}text")]
    assert {"Huey", "123×", "Bull & Co", "0.25×"} <= set(texts)


def test_picture_of_nothing_is_a_picture(results: dict[str, Any]):
    assert ET.fromstring(plot.svg(results | {"workloads": {}})).get("viewBox")


def test_longer_bar_is_the_greater_ratio_whether_more_is_better_or_less(results: dict[str, Any]):
    late = {key: {"figures": {"p99_ms": {"median": value}}} for key, value in {"delayq": 2.0, "huey": 500.0}.items()}
    assert plot.bars(results | {"workloads": {"lateness": late}}, "lateness", "p99_ms", more=False) == [("Huey", 250.0)]
    assert plot.bars(results, "send_one", "per_second", more=True) == [("Huey", 123.4)]

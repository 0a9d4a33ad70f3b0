"""The table of docs/compatibility.md is made from results of runs, with a row for all that delayq says it supports."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.harness.servers import KNOWN_VERSIONS
from tests.harness.tree import pyproject
from tools import compatibility

pytestmark = pytest.mark.same_on_all_servers

REPORT = """<testsuites><testsuite tests="4">
<testcase classname="tests.a" name="test_good"/>
<testcase classname="tests.a" name="test_left_out"><skipped message="no server"/></testcase>
<testcase classname="tests.a" name="test_bad"><failure message="no"/></testcase>
<testcase classname="tests.a" name="test_worse"><error message="no"/></testcase>
</testsuite></testsuites>"""


def test_page_shows_the_results():
    assert compatibility.table(compatibility.read()) in compatibility.PAGE.read_text("utf-8")


def test_each_server_of_the_tests_has_a_row():
    assert {server.version for server in compatibility.SERVERS.values()} >= set(KNOWN_VERSIONS)


def test_oldest_and_newest_major_version_of_redis_py_have_a_row():
    (required,) = [each for each in pyproject()["project"]["dependencies"] if each.startswith("redis[")]
    oldest = required.partition(">=")[2]
    assert oldest.startswith(f"{compatibility.CLIENTS[0]}.")
    majors = [int(each.partition(".")[0]) for each in compatibility.CLIENTS]
    assert majors == [*range(int(oldest.partition(".")[0]), majors[-1] + 1)]
    assert majors[-1] >= int(version("redis").partition(".")[0])


def test_each_python_of_the_package_has_a_row():
    declared = re.findall(r"Python :: (3\.\d+)", str(pyproject()["project"]["classifiers"]))
    assert [f"Python {each}" for each in declared] == [each for each in compatibility.rows() if "Python" in each]


def test_results_are_of_the_versions_in_their_rows():
    for result in compatibility.read():
        assert result.ran_on(result.row)
        assert result.passed > 0
        assert result.failed == len(result.failures)


def test_newest_result_of_each_row_is_kept_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compatibility, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(compatibility, "PAGE", tmp_path / "page.md")
    (tmp_path / "page.md").write_text(f"before\n{compatibility.BEGIN}old\n{compatibility.END}after\n")

    def result(row: str, date: str, failed: int = 0) -> compatibility.Result:
        where = "Redis 7.2.4", "8.1.0", "3.11.7"
        return compatibility.Result(row, *where, date, ["tests/lua", "tests/contract"], 1200, failed, 0)

    newer = result("Redis 7.2", "2026-12-02", failed=1)
    compatibility.write([newer, result("Redis 7.2", "2026-12-01"), result("Redis 1.0", "2026-12-01")])
    assert compatibility.read(tmp_path / "results.json") == [newer]
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    where = "Redis 7.2.4, redis-py 8.1.0, Python 3.11.7"
    assert f"| Redis 7.2 | {where} | 2026-12-02 | lua, contract | 1,200 passed, **1 failed** |\n" in page
    assert f"| Python 3.11 | {where} | 2026-12-02 |" in page
    assert "| Redis 7.4 | not tested | | | |\n" in page
    assert "old" not in page


def test_report_is_counted(tmp_path: Path):
    (tmp_path / "report.xml").write_text(REPORT)
    assert compatibility.counted(tmp_path / "report.xml") == {
        "passed": 1,
        "failed": 2,
        "skipped": 1,
        "failures": ["tests.a.test_bad", "tests.a.test_worse"],
    }
    (tmp_path / "report.xml").write_text("<testsuites/>")
    with pytest.raises(SystemExit, match="no test ran"):
        compatibility.counted(tmp_path / "report.xml")

"""Put each known fault back once: the suite catches it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import mutation
from tests.harness.mutation import FOLDER, RUN_SECONDS, Mutation, make_copy, mutations

ALL = mutations()

pytestmark = [pytest.mark.full, pytest.mark.timeout(RUN_SECONDS + 60)]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One copy for all tests, so that it is compiled only once: each fault is removed again."""
    folder = tmp_path_factory.mktemp("mutations")
    yield make_copy(folder / "copy")
    shutil.rmtree(folder)  # megabytes that pytest would keep


def test_each_known_fault_has_its_mutation() -> None:
    rows = re.findall(r"^\| (?!fault |---)(.+?) \| (.+?) \|$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert len(rows) == 14
    named = [name for _, names in rows for name in re.findall(r"`(\w+)`", names) or [""]]
    assert sorted(named) == [each.name for each in ALL]


def test_tests_that_catch_a_fault_pass_without_it(copy: Path) -> None:
    tests = sorted({test for each in ALL for test in each.caught_by})
    found = mutation.run(copy, tests)
    assert {
        test: found.get(test) for test in tests if {case.outcome for case in found.get(test, [])} != {"passed"}
    } == {}


@pytest.mark.by_lot(4)
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name)
def test_fault_that_is_put_back_is_caught(fault: Mutation, copy: Path) -> None:
    with fault.put_into(copy):
        found = mutation.run(copy, fault.caught_by)
    assert fault.caught_by
    assert [test for test in fault.caught_by if not any(case.is_assertion for case in found[test])] == [], found
    assert [case for cases in found.values() for case in cases if case.outcome == "error"] == []


def test_patch_that_no_longer_applies_says_so(copy: Path) -> None:
    fault = ALL[0]
    with (
        fault.put_into(copy),
        pytest.raises(ValueError, match=f"{fault.name}.patch does not fit"),
        fault.put_into(copy),
    ):
        pytest.fail("it was put in twice")

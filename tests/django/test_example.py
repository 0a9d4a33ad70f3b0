"""The example project for Django: its tests pass, and its page shows its code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.django_sites import environment, run
from tests.harness.pages import blocks
from tests.harness.tree import ROOT

EXAMPLE = ROOT / "examples/django_site"
PAGE = ROOT / "docs/django.md"
BOTH = """
import runpy, sys
for words in (["makemigrations", "--check", "--dry-run"], ["test", "orders"]):
    sys.argv = ["manage.py", *words]
    runpy.run_path("manage.py", run_name="__main__")
"""  # in one process, which takes a second to start


def test_code_of_the_page_is_that_of_the_example():
    code = [block for block in blocks(PAGE) if block.language == "python"]
    wrong = []
    for block in code:
        file, _, text = block.text.removeprefix("# ").partition("\n")
        if text.strip("\n") not in (EXAMPLE / file).read_text():
            wrong.append(block.line)
    assert len(code) > 5
    assert wrong == [], "lines of docs/django.md with other code than the files that they name"


@pytest.mark.full
@pytest.mark.parametrize("version", ["6.1", "5.2"])
def test_example_passes_its_own_tests(tmp_path: Path, version: str):
    env = {"PATH": "", "BOOKSHOP_FOLDER": str(tmp_path), "DELAYQ_HOME": str(tmp_path)}
    python = str(environment(version))
    output = run(python, "-W", "error::RuntimeWarning", "-c", BOTH, env=env, cwd=EXAMPLE)
    assert "No changes detected" in output
    assert "Ran 6 tests" in output
    assert "OK" in output

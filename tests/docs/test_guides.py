"""Each guide in docs/from says what its program carries, and a test of its own holds that."""

from __future__ import annotations

from tests.harness.guides import rows
from tests.harness.pages import GUIDES
from tests.harness.tree import ROOT


def test_each_guide_has_a_table_and_a_test_that_reads_it():
    for page in GUIDES.glob("*.md"):
        assert rows(page.name), page.name
        test = ROOT / "tests" / "docs" / f"test_from_{page.stem}.py"
        assert "rows(PAGE)" in test.read_text(), test.name
        assert "unpack(PAGE" in test.read_text(), test.name

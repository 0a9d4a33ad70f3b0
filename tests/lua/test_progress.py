from __future__ import annotations

import pytest

from delayq.errors import StaleReceipt
from tests.harness.lua.raw import NOW


@pytest.mark.same_on_all_servers
def test_report_changes_nothing_else(queue):
    queue.given(unack={"a": NOW + 0.25}, messages={"a": "{}"})
    before = queue.state()
    assert queue.progress("a", "0.0.0.0-250", b"[1]") == 1
    assert queue.state() == before | {"progress:a": {"receipt": "0.0.0.0-250", "progress": "[1]"}}
    assert queue.get("a").progress == b"[1]"


@pytest.mark.same_on_all_servers
def test_stale_receipt_changes_nothing(queue, stale):
    before = queue.state()
    with pytest.raises(StaleReceipt):
        queue.progress("a", stale, b"[1]")
    assert queue.state() == before
    assert queue.get("a").progress is None

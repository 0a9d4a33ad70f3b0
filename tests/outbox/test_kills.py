"""Relays, Redis and PostgreSQL are killed by turns: each committed row is one message, and no other row is."""

from __future__ import annotations

import pytest

from tests.harness.outbox_kills import faults, run_kills

pytestmark = [pytest.mark.full, pytest.mark.same_on_all_servers]


@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
def test_nothing_is_lost_or_doubled(appendfsync: str):
    figures = run_kills(1500, appendfsync, kill_every=0.7, consumes=True)
    assert figures["rows"] > 500, figures
    assert list(faults(figures)) == [], figures

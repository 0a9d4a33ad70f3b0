"""Relays, Redis and PostgreSQL are killed by turns: each committed row is one message, and no other row is."""

from __future__ import annotations

import pytest

from tests.harness.outbox_kills import faults, run_kills

pytestmark = [pytest.mark.full, pytest.mark.same_on_all_servers]


def test_nothing_is_lost_or_doubled():
    figures = run_kills(1000, kill_every=1)
    assert figures["rows"] > 300, figures
    assert list(faults(figures)) == [], figures

"""The server versions of a test that chooses them itself."""

from __future__ import annotations

import pytest

THIRD = (pytest.mark.full, pytest.mark.by_lot(3))
"""Marks of a case that repeats one of `make test` on another server or client: a run draws a third of them."""
OLDER = [pytest.param(version, marks=THIRD) for version in ("6.2", "7.0")]
VERSIONS = [*OLDER, "8.2"]
"""Of Redis: the newest one is tested in `make test`."""

each_version = pytest.mark.parametrize("version", [pytest.param("valkey-9.1", marks=THIRD), *VERSIONS])

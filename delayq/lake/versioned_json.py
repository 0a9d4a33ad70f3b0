"""Documents that change: each version is a file of its own, so that nothing is ever replaced.

    _manifest@3-1f9c04ab.json       name, number of the version, and some letters that no other writer has chosen

Not every file system can put a file in the place of another in one step, HDFS for one. So a new version is written
beside the old one, and then that is removed: the highest number counts. A kill leaves both, or the old one.
"""

from __future__ import annotations

import re
import secrets
from typing import Generic, TypeAlias, TypeVar

from delayq.lake.object_store import names, read_json, remove, write_json

T = TypeVar("T")
VersionKey: TypeAlias = tuple[int, str]

_FILE = re.compile(r"(.+?)(?:@(\d+)-([0-9a-f]{8}))?\.json", re.ASCII)


class VersionedJson(Generic[T]):
    """A JSON document, to be written anew again and again. Of two that write it at the same time, the last one counts.

    Args:
        folder: where it is.
        name: of its files.
        form: what it says.
    """

    def __init__(self, folder: str, name: str, form: type[T]) -> None:
        self._folder = folder
        self._name = name
        self._form = form

    def read(self) -> T | None:
        """Return what it says; None when there is no such document.

        Raises:
            LakeMismatch: it says something else.
        """
        while versions := self._versions():
            value = read_json(f"{self._folder}/{versions[max(versions)]}", self._form)
            if value is not None:  # else the next one has come, and this one was removed
                return value
        return None

    def write(self, value: T) -> None:
        """Let it say this from now on; once this has returned, it outlives a loss of power."""
        number = max(self._versions(), default=(0, ""))[0] + 1
        write_json(f"{self._folder}/{self._name}@{number}-{secrets.token_hex(4)}.json", value)
        versions = self._versions()
        for version in versions.keys() - {max(versions)}:
            remove(f"{self._folder}/{versions[version]}")

    def _versions(self) -> dict[VersionKey, str]:
        """Return the files of the versions."""
        # A long folder is not listed in one step: what is written meanwhile may be missed, and so what is removed then.
        found = self._listed() or self._listed()
        return {_version(match): match[0] for match in found}

    def _listed(self) -> list[re.Match[str]]:
        return [match for match in _files(self._folder) if match[1] == self._name]


def read_all(folder: str, form: type[T]) -> list[T]:
    """Return what all documents of a folder say, by their names: it is listed once, however many there are.

    Raises:
        LakeMismatch: one says something else.
    """
    last = {match[1]: match[0] for match in sorted(_files(folder), key=_version)}
    found = (
        read_json(f"{folder}/{file}", form) or VersionedJson(folder, name, form).read()  # written anew meanwhile
        for name, file in sorted(last.items())
    )
    return [value for value in found if value is not None]


def _files(folder: str) -> list[re.Match[str]]:
    return [match for match in map(_FILE.fullmatch, names(folder)) if match is not None]


def _version(match: re.Match[str]) -> VersionKey:
    return int(match[2] or 0), match[3] or ""


def name_of(file: str) -> str | None:
    """Return the name of the document of which a file is a version; None when it is no such file."""
    match = _FILE.fullmatch(file)
    return None if match is None else match[1]

"""Documents that change: each version is its own file, so that no file is ever replaced.

    _manifest@3-1f9c04ab.json       name, version number, and random letters that distinguish writers

Not every file system can replace a file in one step; HDFS cannot. So a new version is written beside the old one, which
is then removed: the highest number counts. A kill leaves both, or the old one.
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
    """A JSON document that is rewritten often. If two programs write it at the same time, the last one counts.

    Args:
        folder: that it is in.
        name: of its files.
        form: the type of its value.
    """

    def __init__(self, folder: str, name: str, form: type[T]) -> None:
        self._folder = folder
        self._name = name
        self._form = form

    def read(self) -> T | None:
        """Return its value; None if there is no such document.

        Raises:
            LakeMismatch: it does not have this form.
        """
        while versions := self._versions():
            value = read_json(f"{self._folder}/{versions[max(versions)]}", self._form)
            if value is not None:  # else a newer version was written, and this one removed
                return value
        return None

    def write(self, value: T) -> None:
        """Write a new value; once this returns, it survives a power failure."""
        number = max(self._versions(), default=(0, ""))[0] + 1
        write_json(f"{self._folder}/{self._name}@{number}-{secrets.token_hex(4)}.json", value)
        versions = self._versions()
        for version in versions.keys() - {max(versions)}:
            remove(f"{self._folder}/{versions[version]}")

    def _versions(self) -> dict[VersionKey, str]:
        """Return the files of the versions."""
        # A long folder is not listed in one step: a listing may miss a new version, and the old one removed after it.
        found = self._listed() or self._listed()
        return {_version(match): match[0] for match in found}

    def _listed(self) -> list[re.Match[str]]:
        return [match for match in _files(self._folder) if match[1] == self._name]


def read_all(folder: str, form: type[T]) -> list[T]:
    """Return the values of all documents of a folder, sorted by name; the folder is listed only once.

    Raises:
        LakeMismatch: one does not have this form.
    """
    last = {match[1]: match[0] for match in sorted(_files(folder), key=_version)}
    found = (
        read_json(f"{folder}/{file}", form) or VersionedJson(folder, name, form).read()  # rewritten meanwhile
        for name, file in sorted(last.items())
    )
    return [value for value in found if value is not None]


def _files(folder: str) -> list[re.Match[str]]:
    return [match for match in map(_FILE.fullmatch, names(folder)) if match is not None]


def _version(match: re.Match[str]) -> VersionKey:
    return int(match[2] or 0), match[3] or ""


def name_of(file: str) -> str | None:
    """Return the name of the document that a file is a version of; None for other files."""
    match = _FILE.fullmatch(file)
    return None if match is None else match[1]

"""A file system that, like HDFS, cannot replace a file in one step, and where a program can die at any step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from pyarrow import fs


class Killed(BaseException):
    """The program ended here."""


class Unreplacing(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Local files that are never replaced in one step: the old file is removed before the new one appears.

    Attributes:
        left: the number of changing steps until the program dies; None if it does not.
        replaced: the files that should have been replaced.
    """

    def __init__(self) -> None:
        self._files = fs.LocalFileSystem()
        self.left: int | None = None
        self.replaced: list[str] = []

    def begins(self) -> None:
        """Start a step, or die."""
        if self.left is not None:
            if not self.left:
                raise Killed
            self.left -= 1

    def move(self, source: str, target: str) -> None:
        self.begins()
        if self._files.get_file_info(target).type != fs.FileType.NotFound:
            self.replaced.append(target)
            self._files.delete_file(target)
            self.begins()
        self._files.move(source, target)

    def create_dir(self, path: str, recursive: bool) -> None:
        self._files.create_dir(path, recursive=recursive)

    def delete_file(self, path: str) -> None:
        self.begins()
        self._files.delete_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self.begins()
        return self._files.open_output_stream(path, metadata=metadata)

    def open_input_file(self, path: str) -> Any:
        return self._files.open_input_file(path)

    def get_file_info(self, paths: Sequence[str]) -> Any:
        return self._files.get_file_info(paths)

    def get_file_info_selector(self, selector: fs.FileSelector) -> Any:
        return self._files.get_file_info(selector)

    def get_type_name(self) -> str:
        return "unreplacing"

    def normalize_path(self, path: str) -> str:
        return path

    def _unused(self, *_: Any) -> NoReturn:
        raise NotImplementedError

    copy_file = delete_dir = delete_dir_contents = delete_root_dir_contents = _unused
    open_append_stream = open_input_stream = _unused

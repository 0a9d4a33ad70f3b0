"""Packages that the tests need for others, and that the extra ``spark`` does not bring: to be without them."""

from __future__ import annotations

from pathlib import Path

NAMES = ("grpc", "pandas")


def absent(folder: Path) -> Path:
    """Make a folder which, first on PYTHONPATH, hides these packages from Python."""
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f'raise ModuleNotFoundError("the extra spark does not bring {name}")\n')
    return folder

"""Hides packages that other tests need but that the extra ``spark`` does not install."""

from __future__ import annotations

from pathlib import Path

NAMES = ("grpc", "pandas")


def absent(folder: Path) -> Path:
    """Make a folder that hides these packages from Python when it is first on PYTHONPATH."""
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f'raise ModuleNotFoundError("the extra spark does not bring {name}")\n')
    return folder

"""The checkout as the house tests see it: its folders, and the modules in them."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE_FOLDERS = {"delayq": ROOT / "delayq", "delayq.cli": ROOT / "cli", "delayq.lua": ROOT / "lua"}


@cache
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@cache
def modules() -> dict[str, Path]:
    """The file of every module that ships, by its dotted name; a package is the name of its ``__init__``."""
    found = {}
    for package, folder in PACKAGE_FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


@cache
def lua_scripts() -> list[Path]:
    """The scripts; the prelude is no script of its own."""
    return [path for path in sorted((ROOT / "lua").glob("*.lua")) if path.stem != "prelude"]

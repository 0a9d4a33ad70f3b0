"""The checkout as the house tests see it: its folders and their contents."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE_FOLDERS = {"delayq": ROOT / "delayq", "delayq.cli": ROOT / "cli", "delayq.lua": ROOT / "lua"}
# The scripts' own tests also run against the wheel, where there is no checkout.
LUA = ROOT / "lua" if (ROOT / "lua").is_dir() else Path(str(files("delayq.lua")))


@cache
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@cache
def modules() -> dict[str, Path]:
    """The file of every shipped module, by its dotted name; a package has the file of its ``__init__``."""
    found = {}
    for package, folder in PACKAGE_FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


@cache
def syntax(module: str) -> ast.Module:
    """The syntax tree of a shipped module."""
    return ast.parse(modules()[module].read_text())


@cache
def lua_scripts() -> list[Path]:
    """The scripts of queues, without the prelude."""
    return [path for path in sorted(LUA.glob("*.lua")) if path.stem != "prelude"]


@cache
def topic_scripts() -> list[Path]:
    """The scripts of topics."""
    return [path for path in sorted((LUA / "topics").glob("*.lua")) if path.stem != "prelude"]

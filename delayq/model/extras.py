"""How to install an optional part of delayq, for errors about what is missing."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


def install(extra: str, checkout: Path = Path(__file__).parents[2]) -> str:
    """Return the command that adds an extra to delayq as it is installed here.

    The name alone finds delayq only on an index. From a checkout, a file or a repository, the command names that.
    """
    if (checkout / "pyproject.toml").is_file() and (checkout / "lua").is_dir():
        return f"pip install --editable {shlex.quote(f'{checkout}[{extra}]')}"
    try:
        origin = json.loads(distribution("delayq").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # such as from a folder on the path
        origin = {}
    address = origin.get("url", "")
    if vcs := origin.get("vcs_info"):
        address = f"{vcs['vcs']}+{address}@{vcs['commit_id']}"
    return f"pip install {shlex.quote(f'delayq[{extra}] @ {address}' if address else f'delayq[{extra}]')}"

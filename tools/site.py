"""The published site: a folder for each version, and main's in `dev`. A step of .github/workflows/site.yml.

`python -m tools.site PAGES MAIN RELEASES` makes the folder PAGES from MAIN, a built site, and from RELEASES, a folder
with the built site of each release, such as site-0.2.0.tar.gz. Of several patches, the newest is kept.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

DEVELOPMENT = "dev"
FORWARD = '<!doctype html>\n<meta http-equiv="refresh" content="0; url={0}/">\n<a href="{0}/">delayq</a>\n'


def assemble(pages: Path, main: Path, releases: Path) -> list[str]:
    """Fill the folder `pages`, which must not exist; return the versions, the newest first.

    docs/site/versions.js reads these from versions.json.
    """
    archives: dict[tuple[int, int], tuple[int, Path]] = {}
    for archive in releases.glob("site-*.tar.gz"):
        if found := re.fullmatch(r"site-(\d+)\.(\d+)\.(\d+)\.tar\.gz", archive.name):
            major, minor, patch = map(int, found.groups())
            known = archives.get((major, minor))
            if known is None or known[0] < patch:
                archives[major, minor] = patch, archive
    shutil.copytree(main, pages / DEVELOPMENT)
    for (major, minor), (_, archive) in archives.items():
        shutil.unpack_archive(archive, pages / f"{major}.{minor}", filter="data")
    versions = [f"{major}.{minor}" for major, minor in sorted(archives, reverse=True)] + [DEVELOPMENT]
    (pages / "versions.json").write_text(json.dumps(versions), "utf-8")
    (pages / "index.html").write_text(FORWARD.format(versions[0]), "utf-8")
    return versions


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    print(*assemble(*map(Path, sys.argv[1:])))

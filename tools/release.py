"""Releases: `make release VERSION=0.2.0` commits and tags one; its tag starts .github/workflows/release.yml.

`python -m tools.release check v0.2.0` and `… notes v0.2.0` are steps of that workflow; see docs/releasing.md.
"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION_FILE, CHANGELOG = "delayq/__init__.py", "CHANGELOG.md"
_HEADING = re.compile(r"^## \[(?P<version>[^]]+)\](?: - (?P<date>\S+))?$", re.MULTILINE)


class NotReady(Exception):
    """Why this cannot be released."""


def check(tag: str, root: Path = ROOT) -> None:
    """Check that a tag, the version and the newest section of the changelog agree.

    Raises:
        NotReady: they do not.
    """
    version = tag.removeprefix("v")
    if not re.fullmatch(r"v\d+\.\d+\.\d+", tag):
        raise NotReady(f"the tag {tag} is not a version: name it as in v0.2.0")
    if (found := _version(root)) != version:
        raise NotReady(f"the tag is {tag}, but {VERSION_FILE} has {found}: tag the commit that `make release` makes")
    newest = _HEADING.search((root / CHANGELOG).read_text("utf-8"))
    if newest is None or newest["version"] != version:
        raise NotReady(f"the newest section of {CHANGELOG} is not [{version}]")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", newest["date"] or ""):
        raise NotReady(
            f"the section [{version}] of {CHANGELOG} has no date: write its heading as `## [{version}] - 2026-12-24`"
        )
    if not notes(tag, root):
        raise NotReady(f"the section [{version}] of {CHANGELOG} is empty")


def notes(tag: str, root: Path = ROOT) -> str:
    """Return the changelog of a version, without its heading."""
    text = (root / CHANGELOG).read_text("utf-8")
    headings = list(_HEADING.finditer(text))
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if heading["version"] == tag.removeprefix("v"):
            return text[heading.end() : following.start() if following else None].strip()
    return ""


def prepare(version: str, today: dt.date, root: Path = ROOT) -> None:
    """Write the version, and the date of its section, which was called Unreleased or had no date.

    Raises:
        NotReady: the version is not above the present one, or the changelog has nothing to release.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise NotReady(f"{version!r} is not a version: give one as in 0.2.0")
    changelog = (root / CHANGELOG).read_text("utf-8")
    newest = _HEADING.search(changelog)
    if newest is None or newest["version"] not in {"Unreleased", version} or newest["date"] not in {None, "unreleased"}:
        raise NotReady(f"{CHANGELOG} begins with no section that is unreleased: nothing is to be released")
    if _parts(version) < _parts(_version(root)) or (newest["version"] != version and version == _version(root)):
        raise NotReady(f"{version} is not above {_version(root)}")
    if not notes(newest["version"], root):
        raise NotReady(f"the section [{newest['version']}] of {CHANGELOG} is empty")
    heading = f"## [{version}] - {today}"
    _write(root / CHANGELOG, changelog[: newest.start()] + heading + changelog[newest.end() :])
    module = (root / VERSION_FILE).read_text("utf-8")
    _write(
        root / VERSION_FILE, re.sub(r'^__version__ = ".*"$', f'__version__ = "{version}"', module, flags=re.MULTILINE)
    )
    check(f"v{version}", root)


def release(version: str) -> None:
    """Commit and tag a release of what is committed; nothing is pushed."""
    if _git("status", "--porcelain"):
        raise NotReady("there are changes that are not committed: commit or stash them")
    if (branch := _git("branch", "--show-current")) != "main":
        raise NotReady(f"the branch is {branch}: releases are made from main")
    if _git("tag", "--list", f"v{version}"):
        raise NotReady(f"there is a tag v{version}: release the next version, or delete it if it was never pushed")
    prepare(version, dt.datetime.now(dt.UTC).date())
    _git("commit", "--all", "--message", f"Release {version}")
    _git("tag", "--annotate", f"v{version}", "--message", f"delayq {version}")
    print(f"committed and tagged v{version}; to publish it: git push --atomic origin main v{version}")


def _version(root: Path) -> str:
    found = re.search(r'^__version__ = "(.*)"$', (root / VERSION_FILE).read_text("utf-8"), re.MULTILINE)
    return found[1] if found else ""


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        raise NotReady(f"git {words[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def main(words: list[str]) -> int:
    """Run a command: check TAG, notes TAG, or VERSION alone."""
    try:
        match words:
            case ["check", tag]:
                check(tag)
            case ["notes", tag]:
                print(notes(tag))
            case [version]:
                release(version)
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except NotReady as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

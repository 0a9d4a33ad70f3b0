"""What the pages refer to exists: files, headings, commands, options, make targets, tests, names and settings."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import click
from delayq.cli import main
from delayq.cli.consume.command import VARIABLES

import delayq
from delayq import errors, testing, types
from tests.harness.pages import GUIDES, PAGES, blocks, name
from tests.harness.tree import ROOT, modules

TESTS_PAGE = ROOT / "tests" / "README.md"
GUARANTEES = ROOT / "docs" / "guarantees.md"
INLINE = re.compile(r"`([^`\n]+)`")
TEST = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")


def found(faults: Callable[[Path], Iterable[object]]) -> dict[str, list[str]]:
    """The pages with something wrong, each with what it is."""
    wrong = {name(page): sorted(map(str, faults(page))) for page in PAGES}
    return {page: what for page, what in wrong.items() if what}


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def code(page: Path) -> Iterator[str]:
    """The shell lines that a page shows."""
    yield from INLINE.findall(prose(page))
    for block in blocks(page):
        if block.language in {"console", "sh"}:
            yield from block.text.splitlines()


def anchors(page: Path) -> set[str]:
    """What a link can name after a ``#``: the headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_link_leads_to_an_existing_target():
    def is_broken(page: Path, target: str) -> bool:
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        return not file.exists() or bool(anchor and anchor not in anchors(file))

    def broken(page: Path) -> Iterable[str]:
        targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
        return {target for target in targets if "://" not in target and is_broken(page, target)}

    assert found(broken) == {}


def commands_on(page: Path) -> list[list[str]]:
    """The calls of delayq on a page, each as a list of words."""
    found = []
    for line in code(page):
        for call in re.findall(r"(?:^|[ $(|])delayq ([a-z-][^|]*)", line):
            lexer = shlex.shlex(call, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            words = list(lexer)
            found.append(words[: next((i for i, word in enumerate(words) if set(word) <= set("|&;<>()#")), None)])
    return found


def test_command_and_its_options_exist():
    def wrong(page: Path) -> Iterable[str]:
        for words in commands_on(page):
            command, rest = resolve(words)
            if isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
                yield f"there is no command {rest[0]!r}: delayq {' '.join(words)}"
            known = {option for param in command.params for option in param.opts} | {"--help"}
            known |= {"--backend"} if page.name == "django.md" else set()  # of manage.py delayq
            if unknown := {word.partition("=")[0] for word in rest if word.startswith("--")} - known:
                yield f"there is no {', '.join(sorted(unknown))}: delayq {' '.join(words)}"

    assert found(wrong) == {}


def test_option_on_its_own_belongs_to_some_command():
    of_pytest = set(re.findall(r'"(--[a-z-]+)"', (ROOT / "tests" / "conftest.py").read_text()))
    of_delayq = {option for command in commands(main) for param in command.params for option in param.opts}

    def unknown(page: Path) -> Iterable[str]:
        alone = {text.split()[0] for text in INLINE.findall(prose(page)) if text.startswith("--")}
        return alone - of_delayq - {"--help"} - (of_pytest if page == TESTS_PAGE else set())

    assert found(unknown) == {}


def commands(group: click.Group) -> Iterator[click.Command]:
    """Yield all commands of a group and of its subgroups."""
    for named in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), named)
        assert command is not None
        yield from commands(command) if isinstance(command, click.Group) else [command]


def resolve(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that the first words name, as far as they do, and the remaining words."""
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        inner = command.get_command(click.Context(command), words[0])
        if inner is None:
            break
        command, words = inner, words[1:]
    return command, words


def test_target_of_make_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"test", "test-all"} <= targets

    def unknown(page: Path) -> Iterable[str]:
        for line in code(page):
            if line.startswith("make "):
                words = shlex.split(line, comments=True)[1:]
                yield from {word for word in words if re.fullmatch(r"[a-z-]+", word)} - targets

    assert found(unknown) == {}


def test_file_at_the_start_of_a_shell_line_exists():
    def missing(page: Path) -> Iterable[str]:
        lines = [line for block in blocks(page) if block.language == "sh" for line in block.text.splitlines()]
        return [line for line in lines if re.match(r"\.\w+/", line) and not (ROOT / line.split()[0]).exists()]

    assert found(missing) == {}


def test_file_named_on_a_page_exists():
    def missing(page: Path) -> Iterable[str]:
        paths = {path for line in code(page) for path in re.findall(r"(?<![\w/.])tests/[\w./-]*(?![\w./*-])", line)}
        return {path for path in paths if not (ROOT / path).exists()}

    assert found(missing) == {}


def test_test_named_on_a_page_exists():
    def missing(page: Path) -> Iterable[str]:
        named = set(TEST.findall(page.read_text()))
        return {f"{file}::{test}" for file, test in named if test not in names_of_tests(file)}

    assert found(missing) == {}


@cache
def names_of_tests(file: str) -> frozenset[str]:
    path = ROOT / file
    if not path.exists():
        return frozenset()
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


def test_each_promise_names_a_test():
    promises = GUARANTEES.read_text().partition("\n## Promises\n")[2].partition("\n## ")[0].split("\n### ")[1:]
    assert len(promises) >= 10
    assert [promise.splitlines()[0] for promise in promises if not TEST.search(promise)] == []


def test_class_named_in_prose_belongs_to_delayq():
    def unknown(page: Path) -> Iterable[str]:
        if page.parent == GUIDES:  # these pages name classes of others
            return set()
        named = {word for word in INLINE.findall(prose(page)) if re.fullmatch(r"[A-Z][a-z]+([A-Z][a-z]+)*", word)}
        return {word for word in named if not any(hasattr(each, word) for each in (delayq, errors, testing, types))} - {
            "False"
        }

    assert found(unknown) == {}


def test_environment_variable_is_used_by_delayq_or_its_tests():
    source = "".join(path.read_text() for path in modules().values())
    read_by_tests = {
        variable
        for path in (ROOT / "tests").rglob("*.py")
        for variable in re.findall(r"environ(?:\.get\(|\[)\"(DELAYQ_\w+)\"", path.read_text())
    }

    def unknown(page: Path) -> Iterable[str]:
        named = set(re.findall(r"\bDELAYQ_[A-Z_]+", page.read_text()))
        return {variable for variable in named - read_by_tests - {*VARIABLES.values()} if variable not in source}

    assert found(unknown) == {}


def test_page_of_variables_has_all_that_the_code_names():
    source = "".join(path.read_text() for path in modules().values())
    used = set(re.findall(r"\b_?DELAYQ_[A-Z_]*[A-Z_]", source)) | {*VARIABLES.values()}
    named = set(re.findall(r"\b_?DELAYQ_[A-Z_]*[A-Z_]", (ROOT / "docs" / "environment.md").read_text()))
    assert named == used - {"DELAYQ_", "DELAYQ_HEADER_NAME"}  # in a help, for any header


def test_changelog_starts_with_the_current_version():
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] in {"Unreleased", delayq.__version__}
    assert delayq.__version__ in versions


def test_page_that_only_the_site_completes_says_how_to_build_it():
    shown = re.search(r'^OF_SOURCES = "(.*?)\\n\\n"$', (ROOT / "docs" / "conf.py").read_text(), re.MULTILINE)
    assert shown is not None
    pages = [each for each in (ROOT / "docs").rglob("*.md") if "{eval-rst}" in each.read_text() or each.stem == "cli"]
    assert len(pages) >= 5
    assert [each.name for each in pages if f"\n\n{shown[1]}\n" not in each.read_text()] == []


def test_search_leads_to_pages_that_exist():
    words = (ROOT / "docs" / "site" / "scorer.js").read_text().partition("MEANT = {")[2].partition("};")[0]
    named = set(re.findall(r': "([^"]+)"', words))
    assert len(named) >= 10
    assert {page for page in named if not (ROOT / "docs" / f"{page}.md").exists()} == set()

"""What the pages point to is there: files, headings, commands, options, targets of make, tests, names and settings."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from delayq.cli import main

import delayq
from delayq import errors
from tests.harness.pages import PAGES, blocks, name
from tests.harness.tree import ROOT, modules

each_page = pytest.mark.parametrize("page", PAGES, ids=name)

GUARANTEES = ROOT / "docs" / "guarantees.md"
INLINE = re.compile(r"`([^`\n]+)`")
TEST = re.compile(r"(tests/[\w/]+\.py)::(test_\w+)")


def prose(page: Path) -> str:
    """A page without what stands between fences."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def code(page: Path) -> Iterator[str]:
    """What a page shows of a shell, line by line."""
    yield from INLINE.findall(prose(page))
    for block in blocks(page):
        if block.language in {"console", "sh"}:
            yield from block.text.splitlines()


def anchors(page: Path) -> set[str]:
    """What a link may name behind a ``#``: the headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_link_leads_to_what_is_there(page: Path):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def commands_on(page: Path) -> list[list[str]]:
    """The calls of delayq on a page, each as its words."""
    found = []
    for line in code(page):
        for call in re.findall(r"(?:^|[ $(|])delayq ([a-z-][^|]*)", line):
            lexer = shlex.shlex(call, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            words = list(lexer)
            found.append(words[: next((i for i, word in enumerate(words) if set(word) <= set("|&;<>()#")), None)])
    return found


@each_page
def test_command_and_its_options_exist(page: Path):
    for words in commands_on(page):
        command, rest = resolve(words)
        known = {option for param in command.params for option in param.opts} | {"--help"}
        assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= known, words


@each_page
def test_option_that_stands_alone_is_one_of_some_command(page: Path):
    known = {option for command in commands(main) for param in command.params for option in param.opts} | {"--help"}
    assert {text.split()[0] for text in INLINE.findall(prose(page)) if text.startswith("--")} <= known


def commands(group: click.Group) -> Iterator[click.Command]:
    """Yield all commands of a group, and of the groups in it."""
    for named in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), named)
        assert command is not None
        yield from commands(command) if isinstance(command, click.Group) else [command]


def resolve(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that the first words name, and the other words."""
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        inner = command.get_command(click.Context(command), words[0])
        assert inner is not None, f"there is no command {words[0]!r}"
        command, words = inner, words[1:]
    return command, words


@each_page
def test_target_of_make_exists(page: Path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for line in code(page) for target in re.findall(r"^make ([a-z-]+)", line)}
    assert named <= targets


@each_page
def test_file_named_at_the_beginning_of_a_line_in_a_shell_block_exists(page: Path):
    lines = [line for block in blocks(page) if block.language == "sh" for line in block.text.splitlines()]
    assert [line for line in lines if re.match(r"\.\w+/", line) and not (ROOT / line.split()[0]).exists()] == []


@each_page
def test_test_that_a_page_names_exists(page: Path):
    named = {(file, test) for file, test in TEST.findall(page.read_text())}
    assert sorted((file, test) for file, test in named if test not in names_of_tests(file)) == []


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


@each_page
def test_class_named_in_prose_is_delayq_s(page: Path):
    named = {word for word in INLINE.findall(prose(page)) if re.fullmatch(r"[A-Z][a-z]+([A-Z][a-z]+)*", word)}
    assert {word for word in named if not hasattr(delayq, word) and not hasattr(errors, word)} <= {"False"}


@each_page
def test_environment_variable_is_one_that_delayq_reads_or_sets(page: Path):
    source = (
        "".join(path.read_text() for path in modules().values()) + (ROOT / "tests/property/test_life.py").read_text()
    )
    assert {
        variable for variable in re.findall(r"\bDELAYQ_[A-Z_]+", page.read_text()) if variable not in source
    } == set()


def test_changelog_has_the_version_on_top():
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] in {"Unreleased", delayq.__version__}
    assert delayq.__version__ in versions

"""The tables in docs/logging.md list the events that the code logs, with their levels."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import filter as matching

import pytest

from tests.harness.tree import ROOT, modules, syntax

PATH = ROOT / "docs" / "logging.md"
PAGE = PATH.read_text() if PATH.exists() else ""
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}
NOT_LOGGERS = {"client", "group_admin", "redaction", "self"}  # these have a method `info` too
NOT_EVENTS = {"printable(text)"}  # lines that a program of --exec writes

pytestmark = pytest.mark.skipif(not PAGE, reason="the wheel has no documentation")


def listed() -> dict[str, set[str]]:
    """The levels of each event, according to the tables."""
    found: dict[str, set[str]] = {}
    for events, levels in re.findall(r"^\| (`.+?`) \| ([a-z, ]+) \|", PAGE.partition("## All events")[2], re.MULTILINE):
        for event in re.findall(r"`(.+?)`", events):
            found.setdefault(event, set()).update(levels.split(", "))
    return found


def logged() -> dict[str, set[str]]:
    """The levels of each event, according to calls of loggers; ``*`` is a part that an f-string fills in."""
    found: dict[str, set[str]] = {}
    for module in modules():
        for function in functions(syntax(module)):
            for level, event in logged_by(function):
                for text in texts(event, function, syntax(module)):
                    found.setdefault(text, set()).add(level)
    return found


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def logged_by(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
            logger = ast.unparse(node.func.value).rpartition(".")[2]
            if node.args and logger not in NOT_LOGGERS and ast.unparse(node.args[0]) not in NOT_EVENTS:
                yield LEVELS[node.func.attr], node.args[0]


def texts(event: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef, tree: ast.Module) -> set[str]:
    """The texts of an expression: a constant, a variable of the function, or an argument from its callers."""
    match event:
        case ast.Constant(str(text)):
            return {text}
        case ast.JoinedStr(parts):
            return {"".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in parts)}
        case ast.IfExp(body=one, orelse=other):
            return texts(one, function, tree) | texts(other, function, tree)
        case ast.Name(name):
            found = [text for value in values(name, function, tree) for text in texts(value, function, tree)]
            assert found, f"no text found for {name} in {function.name}"
            return set(found)
        case _:
            raise AssertionError(f"{function.name} logs {ast.unparse(event)}: let it log a constant")


def values(name: str, function: ast.FunctionDef | ast.AsyncFunctionDef, tree: ast.Module) -> Iterator[ast.expr]:
    """What a function assigns to a variable, or what its module passes as this argument."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from assigned(name, target, node.value)
    parameters = [each.arg for each in function.args.args]
    if name in parameters:
        place = parameters.index(name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == function.name:
                yield from node.args[place : place + 1]
                yield from (each.value for each in node.keywords if each.arg == name)


def assigned(name: str, target: ast.expr, value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for each, part in zip(target.elts, value.elts, strict=True):
            yield from assigned(name, each, part)
    elif isinstance(target, ast.Name) and target.id == name:
        yield value


def test_page_lists_the_events_that_the_code_logs_with_their_levels():
    on_page = listed()
    in_code: dict[str, set[str]] = {}
    for pattern, levels in logged().items():
        for event in matching(on_page, pattern) or [pattern]:
            in_code.setdefault(event, set()).update(levels)
    assert len(on_page) > 70
    assert on_page == in_code

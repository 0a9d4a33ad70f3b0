"""Scripts touch only the keys that their call declares, and build none themselves."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from delayq.errors import DelayqError
from tests.harness.lua.every import CALLS, READ_ONLY, each_script, state_for
from tests.harness.lua.raw import rewritten
from tests.harness.tree import LUA, lua_scripts


def test_every_script_is_called_here():
    assert {path.stem for path in lua_scripts()} == set(CALLS)


# -- a user who may touch only the declared keys -----------------------------------------------------------------------


@each_script
@pytest.mark.parametrize("meta", [{}, {"events": 1000}], ids=["", "ledger"])
def test_script_needs_only_the_keys_that_it_declares(queue, script, meta):
    queue.given(**state_for(script))
    queue.given(meta=meta)
    before = queue.state()
    queue.run(CALLS[script](queue.scripts))
    assert (queue.state() == before) is (script in READ_ONLY)


@pytest.mark.parametrize("body", ["redis.call('SET', 't:{q}:msg:a', 1)", "redis.call('GET', KEYS[1] .. 'x')"])
def test_undeclared_key_would_be_refused(queue, body):
    with pytest.raises(DelayqError, match=r"(?i)access.* keys?\b"):
        queue.run(rewritten(queue.scripts.resume(), lambda _: body))


# -- the source --------------------------------------------------------------------------------------------------------

KEY = re.compile(r"KEYS\[[^\]]+\]|unpack\(KEYS(, *\d+)?\)")
COMMAND = re.compile(r"redis\.p?call\('(?!TIME')\w+', *(?:'STREAM', *)?((?:unpack\([^)]*\)|[^,()])+)[,)]")
FUNCTION = re.compile(r"^local function (\w+)\((.*?)\)\n(.*?)^end$", re.MULTILINE | re.DOTALL)
ASSIGNMENT = re.compile(r"^\s*(?:local )?([^=\n]+?) = ([^=\n]+?)\s*$", re.MULTILINE)


def test_every_key_in_the_source_comes_from_keys(subtests: pytest.Subtests):
    for path in lua_scripts():
        with subtests.test(path.stem):
            source = without_comments(path)
            arguments = COMMAND.findall(source)
            assert len(arguments) == len(re.findall(r"redis\.p?call\((?!'TIME')", source))
            for helper, position in key_parameters():
                calls = re.findall(rf"\b{helper}\(([^()]*)\)", source)
                assert len(calls) == len(re.findall(rf"\b{helper}\(", source))
                arguments += [call.split(", ")[position] for call in calls]
            assert [argument for argument in arguments if not is_key(argument, source)] == []


def test_every_key_in_the_prelude_is_a_parameter():
    source = without_comments(LUA / "prelude.lua")
    used = {argument for _, _, body in FUNCTION.findall(source) for argument in COMMAND.findall(body)}
    entries = dict(re.findall(r"for \w+, (\w+) in ipairs\((\w+)\)", source))
    used = {entries.get(argument, argument) for argument in used}
    assert len(COMMAND.findall(source)) == len(re.findall(r"redis\.p?call\((?!'TIME')", source))
    assert {"bell", "unack"} <= used
    assert used <= {name for _, parameters, _ in FUNCTION.findall(source) for name in parameters.split(", ")}


def without_comments(path: Path) -> str:
    return re.sub(r"--[^\n]*", "", path.read_text())


@cache
def key_parameters() -> list[tuple[str, int]]:
    """The prelude's functions, and which of their parameters are keys."""
    functions = FUNCTION.findall(without_comments(LUA / "prelude.lua"))
    return [
        (name, position)
        for name, parameters, body in functions
        for position, parameter in enumerate(parameters.split(", "))
        if parameter in COMMAND.findall(body)
    ]


def is_key(argument: str, source: str) -> bool:
    """Whether it is one of KEYS, a variable bound to one, or a table of them."""
    if KEY.fullmatch(argument):
        return True
    values = bound_to(argument.removeprefix("unpack(").removesuffix(")"), source)
    return bool(values) and all(is_key(value, source) for value in values)


def bound_to(name: str, source: str) -> list[str]:
    """The values assigned to a variable, or a table's entries; for MSET's table, those in the keys' places."""
    statements = re.sub(r"\b(?:then|do|end)\b", "\n", re.sub(r"\{[^{}]*\}", "{}", source))
    given = [
        (target, value)
        for left, right in ASSIGNMENT.findall(statements)
        for target, value in zip(left.split(", "), right.split(", "), strict=False)
    ]
    return [
        value for target, value in given if target in {name, f"{name}[#{name} + 1]"} and value not in {"{}", "false"}
    ]

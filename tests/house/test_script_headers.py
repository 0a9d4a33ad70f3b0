"""The header of a Lua script is true of its body.

A header names the script, what it does to messages (State) or reads (Reads), its KEYS and ARGV, what it Returns,
its Errors and its Cost, in this order. ``KEYS[5..]`` means all keys from the fifth on.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path

import pytest

from delayq.protocol.script import script as assembled
from tests.harness.lua_source import LuaSource
from tests.harness.tree import LUA, ROOT, lua_scripts, syntax, topic_scripts

ORDER = ["State", "Reads", "KEYS", "ARGV", "Returns", "Errors", "Cost"]
MOST_BODY_LINES = 40  # a longer script is two transitions
TYPE_OF_COMMAND = {"Z": "zset", "H": "hash", "S": "set", "L": "list"}  # by the first letter of the name
STRING_COMMANDS = {"SET", "SETEX", "SETNX", "STRLEN"}  # where the letter misleads

QUEUES = {path.name: LuaSource(path) for path in lua_scripts()}
TOPICS = {f"topics/{path.name}": LuaSource(path) for path in topic_scripts()}
SCRIPTS = QUEUES | TOPICS


def found(fault: Callable[[LuaSource], object], scripts: Mapping[str, LuaSource] = SCRIPTS) -> dict[str, object]:
    """The files with something wrong, each with what it is."""
    faults = {}
    for file, script in scripts.items():
        try:
            faults[file] = fault(script)
        except ValueError as error:  # a slot that cannot be read from the text
            faults[file] = str(error)
    return {file: what for file, what in faults.items() if what}


def test_header_opens_with_the_name_and_a_sentence():
    def fault(script: LuaSource) -> object:
        return not re.fullmatch(rf"-- {script.name}: \S.*[.]", script.header[0]) and script.header[0]

    assert found(fault) == {}


def test_header_has_its_fields_once_and_in_order():
    def fault(script: LuaSource) -> object:
        names = [field.name for field in script.fields]
        once = [name for name in names if name not in {"KEYS", "ARGV"}]
        is_right = (
            names == sorted(names, key=ORDER.index)
            and len({"State", "Reads"}.intersection(names)) == 1
            and {"KEYS", "Returns", "Cost"} <= set(names)
            and len(once) == len(set(once))
        )
        return not is_right and names

    assert found(fault) == {}, f"of {ORDER}, either State or Reads, and only ARGV and Errors may be left out"


@pytest.mark.parametrize("table", ["KEYS", "ARGV"])
def test_slots_are_numbered_from_one_with_a_tail_at_the_end(table: str):
    def fault(script: LuaSource) -> object:
        fields = [field for field in script.fields if field.name == table]
        slots = [field.slot for field in fields]
        is_right = slots == list(range(1, len(fields) + 1)) and not any(field.tail for field in fields[:-1])
        return not is_right and [(field.slot, field.tail) for field in fields]

    assert found(fault) == {}


@pytest.mark.parametrize("table", ["KEYS", "ARGV"])
def test_slots_in_the_header_are_those_that_the_body_uses(table: str):
    def fault(script: LuaSource) -> object:
        named, used = script.slots_named(table), script.slots_used(table)
        return named != used and {"named": named, "used": used}

    assert found(fault) == {}


def test_codes_in_the_header_are_those_that_the_body_returns():
    def fault(script: LuaSource) -> object:
        named, used = script.codes_named, script.codes_used
        return named != used and {"named": named, "used": used}

    assert found(fault) == {}


def test_commands_fit_the_type_of_the_key_in_the_header():
    def fault(script: LuaSource) -> object:
        keys = [field for field in script.fields if field.name == "KEYS" and not field.tail]
        types = {field.slot: field.text.split()[1] for field in keys}
        used = {(slot, type_of(command)) for command, slot in script.commands() if type_of(command)}
        return used - set(types.items())

    assert found(fault) == {}


def test_structure_has_one_type_in_all_headers():
    types = defaultdict(set)
    for field in chain.from_iterable(script.fields for script in SCRIPTS.values()):
        if field.name == "KEYS" and not field.tail:
            name, kind = field.text.split()[:2]
            types[name].add(kind)
    assert {name: kinds for name, kinds in types.items() if len(kinds) > 1} == {}


def test_body_is_short():
    lengths = {file: len(script.body_lines) for file, script in SCRIPTS.items()}
    assert {file: length for file, length in lengths.items() if length > MOST_BODY_LINES} == {}


def test_every_script_has_tests():
    tests = {script.name: ROOT / "tests" / "lua" / f"test_{script.name}.py" for script in QUEUES.values()}
    assert [str(path) for path in tests.values() if not path.is_file()] == []


def test_every_script_has_a_function():
    for modules, scripts in ((("queue_commands", "record_commands"), QUEUES), (("topic_commands",), TOPICS)):
        nodes = chain.from_iterable(ast.walk(syntax(f"delayq.protocol.{module}")) for module in modules)
        functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        assert {script.name for script in scripts.values()} - functions == set(), f"not in {modules}"


def test_there_are_scripts_to_test():
    assert len(QUEUES) >= 14
    assert len(TOPICS) >= 14


def type_of(command: str) -> str | None:
    return "string" if command in STRING_COMMANDS else TYPE_OF_COMMAND.get(command[0])


@pytest.mark.parametrize("prelude", [LUA / "prelude.lua", LUA / "topics" / "prelude.lua"], ids=["all", "topics"])
def test_paragraph_of_a_prelude_defines_one_thing(prelude: Path):
    heading, *paragraphs = prelude.read_text().split("\n\n")
    assert heading.startswith("-- prelude:")
    for paragraph in paragraphs:
        (defined,) = re.findall(r"^local .*", paragraph, re.MULTILINE)
        assert not defined.startswith("local function") or paragraph.rstrip().endswith("\nend"), paragraph
        assert not re.search(r"^\s+$", paragraph, re.MULTILINE), "whitespace on a blank line"


@pytest.mark.parametrize("folder", ["", "topics/"], ids=["queues", "topics"])
def test_text_of_a_script_includes_the_preludes_it_uses(folder: str):
    """The code, or what precedes it, can also use a name without calling it, as an argument."""
    preludes = "\n".join(code_of((LUA / each / "prelude.lua").read_text()) for each in {"", folder})
    shared = re.findall(r"^local (?:function )?(\w+)", preludes, re.MULTILINE)
    assert len(shared) == len(set(shared))

    def fault(script: LuaSource) -> object:
        code = code_of(assembled(f"{folder}{script.name}").text)
        used = {name for name in shared if re.search(rf"(?<![.\w]){name}\b", code)}
        variables = re.findall(r"\blocal ([\w, ]+)", code) + re.findall(r"\bfunction \w*\(([\w, ]+)", code)
        return used - set(re.findall(r"\w+", " ".join(variables)))

    assert found(fault, TOPICS if folder else QUEUES) == {}


def code_of(text: str) -> str:
    """Lua without its comments and the contents of its strings."""
    return re.sub(r"--[^\n]*|'[^'\n]*'|\"[^\"\n]*\"", "''", text)

"""The header of a Lua script tells the truth about its body.

A header names the script, what it does to messages (State) or looks at (Reads), its KEYS and ARGV, what it Returns,
its Errors and its Cost, in this order. ``KEYS[5..]`` names all keys from the fifth on.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from itertools import chain
from pathlib import Path

import pytest

from delayq.calls import script as assembled
from tests.harness.lua_source import LuaSource
from tests.harness.tree import LUA, ROOT, lua_scripts, modules, topic_scripts

ORDER = ["State", "Reads", "KEYS", "ARGV", "Returns", "Errors", "Cost"]
MOST_BODY_LINES = 40  # a longer one is two transitions
TYPE_OF_COMMAND = {"Z": "zset", "H": "hash", "S": "set", "L": "list"}  # by its first letter
STRING_COMMANDS = {"SET", "SETEX", "SETNX", "STRLEN"}  # the letter misleads

QUEUES = [LuaSource(path) for path in lua_scripts()]
TOPICS = [LuaSource(path) for path in topic_scripts()]

each_script = pytest.mark.parametrize(
    "script",
    [
        *(pytest.param(script, id=script.name) for script in QUEUES),
        *(pytest.param(script, id=f"topics/{script.name}") for script in TOPICS),
    ],
)


@each_script
def test_header_opens_with_the_name_and_a_sentence(script: LuaSource):
    assert re.fullmatch(rf"-- {script.name}: \S.*[.]", script.header[0])


@each_script
def test_header_has_its_fields_once_and_in_order(script: LuaSource):
    names = [field.name for field in script.fields]
    assert names == sorted(names, key=ORDER.index)
    assert len({"State", "Reads"}.intersection(names)) == 1
    assert {"KEYS", "Returns", "Cost"} <= set(names)
    once = [name for name in names if name not in {"KEYS", "ARGV"}]
    assert len(once) == len(set(once))


@each_script
@pytest.mark.parametrize("table", ["KEYS", "ARGV"])
def test_slots_are_numbered_from_one_with_a_tail_at_the_end(script: LuaSource, table: str):
    fields = [field for field in script.fields if field.name == table]
    assert [field.slot for field in fields] == list(range(1, len(fields) + 1))
    assert not any(field.tail for field in fields[:-1])


@each_script
@pytest.mark.parametrize("table", ["KEYS", "ARGV"])
def test_slots_named_are_those_that_the_body_uses(script: LuaSource, table: str):
    assert script.slots_named(table) == script.slots_used(table)


@each_script
def test_codes_named_are_those_that_the_body_replies(script: LuaSource):
    assert script.codes_named == script.codes_used


@each_script
def test_commands_fit_the_type_that_the_header_gives_the_key(script: LuaSource):
    types = {field.slot: field.text.split()[1] for field in script.fields if field.name == "KEYS" and not field.tail}
    used = {(slot, type_of(command)) for command, slot in script.commands() if type_of(command)}
    assert used <= set(types.items())


def test_structure_has_one_type_in_all_headers():
    types = defaultdict(set)
    for field in chain.from_iterable(script.fields for script in (*QUEUES, *TOPICS)):
        if field.name == "KEYS" and not field.tail:
            name, kind = field.text.split()[:2]
            types[name].add(kind)
    assert {name: kinds for name, kinds in types.items() if len(kinds) > 1} == {}


@each_script
def test_body_is_short(script: LuaSource):
    assert len(script.body_lines) <= MOST_BODY_LINES


@pytest.mark.parametrize("script", QUEUES, ids=lambda script: script.name)
def test_script_has_its_tests(script: LuaSource):
    assert (ROOT / "tests" / "lua" / f"test_{script.name}.py").is_file()


@each_script
def test_script_has_its_function_in_scripts(script: LuaSource):
    module = "delayq.topics.scripts" if script in TOPICS else "delayq.scripts"
    nodes = ast.walk(ast.parse(modules()[module].read_text()))
    assert script.name in {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


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
        assert not re.search(r"^\s+$", paragraph, re.MULTILINE), "a blank line that is none"


@each_script
def test_text_of_a_script_has_what_it_uses_of_the_preludes(script: LuaSource):
    """Its code, or what is in front of that, may not only call it: it may hand it on."""
    is_topics = script in TOPICS
    code = code_of(assembled(f"topics/{script.name}" if is_topics else script.name).text)
    folders = [LUA, LUA / "topics"] if is_topics else [LUA]
    preludes = "\n".join(code_of((folder / "prelude.lua").read_text()) for folder in folders)
    shared = re.findall(r"^local (?:function )?(\w+)", preludes, re.MULTILINE)
    assert len(shared) == len(set(shared))
    used = {name for name in shared if re.search(rf"(?<![.\w]){name}\b", code)}
    variables = re.findall(r"\blocal ([\w, ]+)", code) + re.findall(r"\bfunction \w*\(([\w, ]+)", code)
    assert used <= set(re.findall(r"\w+", " ".join(variables)))


def code_of(text: str) -> str:
    """Lua without its comments and the contents of its strings."""
    return re.sub(r"--[^\n]*|'[^'\n]*'|\"[^\"\n]*\"", "''", text)

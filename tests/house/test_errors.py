"""The error classes agree with the two other places that list them: the codes in lua/, and the tree in errors.py."""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

from delayq import errors
from tests.harness.tree import LUA

CODE = re.compile(r"error_reply\(\s*(.*?)\)")
BRANCH = re.compile(r"^(?P<indent>[ │]*)[├└]── (?P<name>\w+)(?: \((?P<base>\w+)\))?(?P<rest>.*)$")


class Error(NamedTuple):
    """What a line of the drawing, or a class, says about an error."""

    parent: str | None
    builtin: str | None
    code: str | None


def classes() -> dict[str, type[errors.DelayqError]]:
    return {
        name: cls
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, errors.DelayqError) and cls.__module__ == errors.__name__
    }


def described(cls: type[errors.DelayqError]) -> Error:
    first, *others = [base.__name__ for base in cls.__bases__]
    return Error(
        parent=first if first in classes() else None,
        builtin=others[0] if others else None,
        code=vars(cls).get("code"),
    )


def drawn() -> dict[str, Error]:
    """The tree in the docstring, line by line."""
    path = ["DelayqError"]
    found = {}
    for line in (errors.__doc__ or "").splitlines():
        match = BRANCH.match(line)
        if match is None:
            continue
        depth = (len(match["indent"]) - len(ROOT_INDENT)) // 4 + 1
        code = re.search(r"\bcode (\w+)$", match["rest"])
        assert match["name"] not in found, f"{match['name']} is drawn twice"
        found[match["name"]] = Error(path[depth - 1], match["base"], code and code[1])
        path[depth:] = [match["name"]]
    return found


ROOT_INDENT = "    "


def codes_in_lua() -> set[str]:
    codes = set()
    for script in LUA.rglob("*.lua"):
        for argument in CODE.findall(script.read_text()):
            code = re.match(r"'([A-Z]+)\b", argument)
            assert code, f"{script.name}: error_reply({argument}) does not begin with a code in capitals"
            codes.add(code[1])
    return codes


def test_drawing_starts_at_the_root():
    assert f"\n{ROOT_INDENT}DelayqError\n" in (errors.__doc__ or "")


def test_drawn_tree_matches_the_classes():
    assert drawn() == {name: described(cls) for name, cls in classes().items() if name != "DelayqError"}


def test_codes_in_lua_and_coded_classes_match_one_to_one():
    coded = [code for cls in classes().values() if (code := vars(cls).get("code"))]
    assert sorted(coded) == sorted(codes_in_lua())


def test_every_error_has_a_sentence_that_explains_it():
    docs = {name: vars(cls)["__doc__"] or "" for name, cls in classes().items()}
    assert {name: doc for name, doc in docs.items() if not re.match(r"[A-Z][^\n]+\.(\n|$)", doc)} == {}


def test_every_error_is_in_the_tree():
    raised = {cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, BaseException)}
    assert raised == set(classes().values())

"""A Lua script of lua/, read as text: its header, and the slots of KEYS and ARGV that its body uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

FIELD = re.compile(
    r"-- (?P<name>State|Reads|KEYS|ARGV|Returns|Errors|Cost)(\[(?P<slot>\d+)(?P<tail>\.\.)?\])? +(?P<text>\S.*)"
)
LOOP = re.compile(
    r"for (?P<first>\w+)(?:, *(?P<second>\w+))? (?:= *(?P<start>\d+), *(?P<stop>[^,\n]+?)(?:, *(?P<step>\d+))?"
    r"|in ipairs\((?:\{(?P<list>[\d, ]+)\}|.+?)\)) do\b"
)


class Field(NamedTuple):
    """One entry of a header; ``slot`` is the number in the brackets, ``tail`` whether ".." follows it."""

    name: str
    slot: int
    tail: bool
    text: str


class Slots(NamedTuple):
    """Slots of KEYS or ARGV: single ones, and the start of a list of any length."""

    single: set[int]
    tail: int | None


class LuaSource:
    """A script: comment lines on top, then the body."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        lines = path.read_text().splitlines()
        end = next((number for number, line in enumerate(lines) if not line.startswith("--")), len(lines))
        self.header, self.body_lines = lines[:end], lines[end:]
        self.body = re.sub(r"--[^\n]*", "", "\n".join(self.body_lines))

    @cached_property
    def fields(self) -> list[Field]:
        """The header's entries in order; an entry of several lines has all of them."""
        found: list[Field] = []
        for line in self.header:
            match = FIELD.fullmatch(line)
            if match:
                found.append(Field(match["name"], int(match["slot"] or 0), bool(match["tail"]), match["text"]))
            elif found:
                found[-1] = found[-1]._replace(text=f"{found[-1].text}\n{line.removeprefix('--').strip()}")
        return found

    @property
    def codes_named(self) -> set[str]:
        """The error codes in the header: the first word of a line of Errors."""
        lines = [line for field in self.fields if field.name == "Errors" for line in field.text.splitlines()]
        return {match[0] for line in lines if (match := re.match(r"[A-Z]+\b", line))}

    @property
    def codes_used(self) -> set[str]:
        said = {"GROUP"} if re.search(r"\b(no_group|deliveries_of)\(", self.body) else set()  # of the topics prelude
        return said | set(re.findall(r"error_reply\(['\"](\w+)", self.body))

    def slots_named(self, table: str) -> Slots:
        fields = [field for field in self.fields if field.name == table]
        tails = [field.slot for field in fields if field.tail]
        return Slots({field.slot for field in fields if not field.tail}, tails[0] if tails else None)

    def slots_used(self, table: str) -> Slots:
        """Raises ValueError for an index whose value cannot be derived from the text."""
        single: set[int] = set()
        tails = [int(start or 1) for start in re.findall(rf"\bunpack\({table}(?:, *(\d+))?\)", self.body)]
        tails += [1 for _ in re.findall(rf"\bipairs\({table}\)", self.body)]
        for match in re.finditer(rf"(?<!#)\b{table}\[([^\]]+)\]", self.body):
            if match[1].startswith(f"#{table}"):  # from the end: in the tail
                continue
            values, open_end = self._values(match[1], match.start())
            if open_end:
                tails.append(values[0])
            else:
                single.update(values)
        tail = min(tails, default=None)
        return Slots({slot for slot in single if tail is None or slot < tail}, tail)

    def commands(self) -> Iterator[tuple[str, int]]:
        """Every Redis command on a key given by number, as command and number."""
        for command, slot in re.findall(r"redis\.call\('(\w+)', KEYS\[(\d+)\]", self.body):
            yield command, int(slot)

    def _values(self, index: str, position: int) -> tuple[list[int], bool]:
        """The values of ``index``, and whether the data decide the end of the loop around it."""
        variables = re.findall(r"[a-z_]\w*", index)
        if not variables:
            return [evaluated(index)], False
        if len(variables) > 1:
            raise ValueError(f"{self.name}.lua: cannot tell which slots [{index}] are: it has two variables")
        loops = [
            loop for loop in LOOP.finditer(self.body, 0, position) if variables[0] in {loop["first"], loop["second"]}
        ]
        if not loops:
            raise ValueError(f"{self.name}.lua: cannot tell which slots [{index}] are: no loop names {variables[0]}")
        values, open_end = loop_values(loops[-1], variables[0])
        return [evaluated(index, **{variables[0]: value}) for value in values], open_end


def loop_values(loop: re.Match[str], variable: str) -> tuple[list[int], bool]:
    """The values of a loop variable and False; or the first value and True if the data decide how many there are."""
    if loop["start"] is not None:
        start, step = int(loop["start"]), int(loop["step"] or 1)
        if not loop["stop"].isdecimal():
            return [start], True
        return list(range(start, int(loop["stop"]) + 1, step)), False
    if loop["list"] is None:
        if variable != loop["first"]:
            raise ValueError(f"cannot tell the values of {variable} in {loop[0]!r}")
        return [1], True
    items = [int(item) for item in loop["list"].split(",")]
    return (items if variable == loop["second"] else list(range(1, len(items) + 1))), False


def evaluated(expression: str, **variables: int) -> int:
    """The value of an index: arithmetic that is the same in Lua and Python."""
    if re.fullmatch(r"[\w+*/() -]+", expression) is None:
        raise ValueError(f"cannot tell the value of {expression}")
    return int(eval(expression, {"__builtins__": {}}, variables))  # arithmetic only, by the line above

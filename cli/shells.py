"""Completion in bash as click has it, but for words with a colon: bash takes tasks:emails apart, and click then too."""

from __future__ import annotations

import os
from typing import Any

from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

PASSED = "COMP_CWORD=$COMP_CWORD"  # in click's script: what the program gets to know
LINE = ' COMP_LINE="$COMP_LINE" COMP_POINT=$COMP_POINT COMP_WORDBREAKS="$COMP_WORDBREAKS"'


@add_completion_class
class BashCompletion(BashComplete):
    """Reads the line itself, and offers of a word what bash is going to replace: what is behind the last colon."""

    source_template = BashComplete.source_template.replace(PASSED, PASSED + LINE)
    _kept = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one that is being written, without the program, and that one as far as it is."""
        line = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])]
        words = split_arg_string(line)
        incomplete = "" if not words or line[-1].isspace() else words.pop()
        program = split_arg_string(os.environ["COMP_WORDS"])[0]
        if program in words:  # behind variables of its own, perhaps
            del words[: words.index(program) + 1]
        last = max(incomplete.rfind(char) for char in os.environ["COMP_WORDBREAKS"])
        self._kept = incomplete[: last + 1]
        return words, incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Return a line for the script: what to offer, and as what."""
        return f"{item.type},{str(item.value).removeprefix(self._kept)}"

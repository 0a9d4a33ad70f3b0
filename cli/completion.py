"""completion: the script with which a shell completes delayq's commands."""

from __future__ import annotations

import os
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from .app import COMPLETES
from .options import command

PASSED = "COMP_CWORD=$COMP_CWORD"  # in click's script: what it passes to the program
LINE = ' COMP_LINE="$COMP_LINE" COMP_POINT=$COMP_POINT COMP_WORDBREAKS="$COMP_WORDBREAKS"'


@add_completion_class
class BashCompletion(BashComplete):
    """Completes words with a colon: bash splits tasks:emails, and click's own completion then fails.

    It reads the line itself, and completes only the part of a word that bash replaces: after the last colon.
    """

    source_template = BashComplete.source_template.replace(PASSED, PASSED + LINE)
    _kept = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the complete words after the program, and the incomplete last word."""
        line = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])]
        words = split_arg_string(line)
        incomplete = "" if not words or line[-1].isspace() else words.pop()
        program = split_arg_string(os.environ["COMP_WORDS"])[0]
        if program in words:  # perhaps after variable assignments
            del words[: words.index(program) + 1]
        last = max(incomplete.rfind(char) for char in os.environ["COMP_WORDBREAKS"])
        self._kept = incomplete[: last + 1]
        return words, incomplete

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Return a line for the script: the kind of completion, and its text."""
        return f"{item.type},{str(item.value).removeprefix(self._kept)}"


@command("delayq completion bash", "Print the completion script for your shell.")
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script with which a shell completes commands, options, queues, message ids and TARGETs.

    \b
    To install it:
      bash  echo 'eval "$(delayq completion bash)"' >> ~/.bashrc && exec bash
      zsh   echo 'eval "$(delayq completion zsh)"' >> ~/.zshrc && exec zsh
      fish  delayq completion fish > ~/.config/fish/completions/delayq.fish

    Queues and ids come from the server of --url or DELAYQ_URL, or else the embedded store in this folder. Completion
    waits at most a second for it. TARGETs come from the modules in this folder, which are parsed, not run.
    """  # noqa: D301  # click wants the character
    script: Any = get_completion_class(shell)
    root = ctx.find_root()
    click.echo(script(root.command, {}, "delayq", COMPLETES).source())

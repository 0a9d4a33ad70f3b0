"""completion: the script by which a shell completes the commands of delayq."""

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


@command("delayq completion bash", "Print the script that completes in your shell.")
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script by which a shell completes commands, options, queues, message ids and TARGETs.

    \b
    To have it now and in each shell to come:
      bash  echo 'eval "$(delayq completion bash)"' >> ~/.bashrc && exec bash
      zsh   echo 'eval "$(delayq completion zsh)"' >> ~/.zshrc && exec zsh
      fish  delayq completion fish > ~/.config/fish/completions/delayq.fish

    Queues and ids are those on the server of --url or DELAYQ_URL, or in the embedded store of this folder; it is asked
    for a second at most. TARGETs are found in the modules of this folder, which are read and not run.
    """  # noqa: D301  # click wants the character
    script: Any = get_completion_class(shell)
    root = ctx.find_root()
    click.echo(script(root.command, {}, "delayq", COMPLETES).source())


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

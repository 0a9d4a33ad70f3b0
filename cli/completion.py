"""completion: the script with which a shell completes delayq's commands."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import get_completion_class

from . import shells  # noqa: F401  # replaces click's script for bash
from .app import COMPLETES
from .options import command


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

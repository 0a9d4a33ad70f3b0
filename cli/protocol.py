"""protocol: the scripts by which programs in other languages use a queue."""

from __future__ import annotations

import click

from delayq import __version__
from delayq.protocol.script import script

from .options import command, json_option
from .output import print_json

PROTOCOL = 1
"""Raised when the keys, the arguments or the reply of a script that is offered here change."""


@command("delayq protocol --script send", "Print the script with which other languages send.")
@click.option("--script", "name", required=True, type=click.Choice(["send"]), help="The script to print.")
@json_option
def protocol(name: str, as_json: bool) -> None:
    """Print a script of this version of delayq, for a Redis client in another language: see docs/protocol.md.

    No server is contacted.
    """
    found = script(name)
    text = f"-- delayq {__version__}, protocol {PROTOCOL}, script {name}\n{found.text}"
    if as_json:
        known = {"version": __version__, "protocol": PROTOCOL, "script": name}
        print_json(known | {"keys": found.keys, "text": text})
    else:
        click.echo(text, nl=False)

"""init: a running example to begin with."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from .options import command
from .output import say

QUEUE = '''\
"""A queue, and the handler of its messages.

    python signup.py                        sends three messages: one due now, one in a minute, one in an hour
    delayq consume emails:emails --burst    handles those that are due, and ends
    delayq peek emails                      shows those that wait

Without --burst, the consumer runs until Ctrl-C; with --reload it begins anew when you change this file.
The queue is in a store of its own, in the folder .delayq, until DELAYQ_URL names a Redis server.
"""

from delayq import Message, Queue, Reject

emails = Queue("emails")


@emails.handler
def deliver(message: Message) -> None:
    """Return: done. Raise: tried again later. Raise Reject: never tried again, but kept (delayq dead list emails)."""
    to = message.payload["to"]
    if "@" not in to:
        raise Reject(f"{to} is not an address")
    print(f"{message.payload['text']}, {to}!")
'''

PRODUCER = '''\
"""Sends messages, each to be handled at its time."""

from datetime import timedelta

from emails import emails

emails.send({"to": "ann@example.org", "text": "welcome"})
emails.send({"to": "ann@example.org", "text": "shall we show you around"}, delay=60)  # seconds
emails.send({"to": "ann@example.org", "text": "we miss you"}, delay=timedelta(hours=1), id="remind-ann")
print("sent three messages")
'''

FILES = {"emails.py": (QUEUE, "a queue and its handler"), "signup.py": (PRODUCER, "sends messages to it")}
"""What is written: the text of each file, and what to say of it."""

COMMANDS = ("python signup.py", "delayq consume emails:emails --burst", "delayq peek emails")


@command("delayq init", "Write a small example that runs.")
@click.argument("folder", metavar="[FOLDER]", default=".", type=click.Path(path_type=Path, file_okay=False))
def init(folder: Path) -> None:
    """Write an example into this folder, or FOLDER: emails.py, a queue with its handler, and signup.py, which sends.

    Prints the commands that run it. Overwrites nothing: if one of the files exists, it names that file, writes
    none, and exits with code 1.
    """
    there = [str(folder / name) for name in FILES if (folder / name).exists() or (folder / name).is_symlink()]
    if there:
        are = "is" if len(there) == 1 else "are"
        raise click.ClickException(
            f"{' and '.join(there)} {are} there already: nothing was written. Name another folder, as in "
            f"delayq init {shlex.quote(str(folder / 'example'))}, or move what is there away"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, (text, what) in FILES.items():
            with (folder / name).open("x") as file:  # not over one either that was made since the look
                file.write(text)
            say(f"wrote {folder / name}: {what}")
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename}: {error.strerror}") from error
    say("")
    say("Run it:" if folder == Path() else "Run it there:")
    for line in (*([] if folder == Path() else [f"cd {shlex.quote(str(folder))}"]), *COMMANDS):
        say(f"  {line}")

"""init: write an example to start from."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from .options import command
from .output import say

QUEUE = '''\
"""A queue and its handler.

    python signup.py                        sends three messages: one due now, one in a minute, one in an hour
    delayq consume emails:emails --burst    handles the messages that are due, and stops
    delayq peek emails                      shows the messages that wait

Without --burst, the consumer runs until Ctrl-C; with --reload, it restarts when you change this file.
The queue is in an embedded store in the folder .delayq, whose server is in the extra delayq[embedded]. To use a Redis
server instead, set DELAYQ_URL.
"""

from delayq import Message, Queue, Reject

emails = Queue("emails")


@emails.handler
def deliver(message: Message) -> None:
    """Return: done. Raise: retried later. Raise Reject: a dead letter, not retried (delayq dead list emails)."""
    to = message.payload["to"]
    if "@" not in to:
        raise Reject(f"{to} is not an address")
    print(f"{message.payload['text']}, {to}!")
'''

PRODUCER = '''\
"""Sends messages, each with its own due time."""

from datetime import timedelta

from emails import emails

emails.send({"to": "ann@example.org", "text": "welcome"})
emails.send({"to": "ann@example.org", "text": "shall we show you around"}, delay=60)  # seconds
emails.send({"to": "ann@example.org", "text": "we miss you"}, delay=timedelta(hours=1), id="remind-ann")
print("sent three messages")
'''

FILES = {"emails.py": (QUEUE, "a queue and its handler"), "signup.py": (PRODUCER, "sends messages to it")}
"""The files to write: text and description."""

COMMANDS = ("python signup.py", "delayq consume emails:emails --burst", "delayq peek emails")


@command("delayq init", "Write a small example that runs.")
@click.argument("folder", metavar="[FOLDER]", default=".", type=click.Path(path_type=Path, file_okay=False))
def init(folder: Path) -> None:
    """Write an example into FOLDER, by default this one: emails.py, a queue with its handler, and signup.py, a sender.

    Prints the commands that run the example. If one of the files exists, nothing is written and the exit code is 1.
    """
    there = [str(folder / name) for name in FILES if (folder / name).exists() or (folder / name).is_symlink()]
    if there:
        exist = "exists" if len(there) == 1 else "exist"
        raise click.ClickException(
            f"{' and '.join(there)} already {exist}: nothing was written. Choose another folder, as in "
            f"delayq init {shlex.quote(str(folder / 'example'))}, or move the existing files away"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, (text, what) in FILES.items():
            # "x": a file created since the check is not overwritten either
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
            say(f"wrote {folder / name}: {what}")
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename}: {error.strerror}") from error
    say("")
    say("Run it:" if folder == Path() else "Run it there:")
    for line in (*([] if folder == Path() else [f"cd {shlex.quote(str(folder))}"]), *COMMANDS):
        say(f"  {line}")

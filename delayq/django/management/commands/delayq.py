"""``manage.py delayq``: the command line of delayq, with the server of the setting TASKS."""

from __future__ import annotations

import os
import sys
from argparse import REMAINDER, ArgumentParser
from collections.abc import Sequence
from typing import Any

import click
import msgspec
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from _delayq_command import main
from delayq.cli import main as cli
from delayq.django import queues
from delayq.django.backend import DelayqBackend
from delayq.django.framework import task_backends
from delayq.django.options import Options

OWN = ("--settings", "--pythonpath")  # which Django has read already


class Command(BaseCommand):
    """Runs a command of ``delayq`` for a backend: ``manage.py delayq [--backend ALIAS] COMMAND …``.

    ``consume`` takes the names of queues, or none for all in QUEUES.
    """

    help = "Run a command of delayq, such as consume or stats, with the server of the setting TASKS."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command of a command line; this exits, as ``delayq`` does."""
        try:
            self._run(argv[2:])
        except CommandError as error:
            self.stderr.write(f"delayq: {error}")
            sys.exit(2)
        finally:
            connections.close_all()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take all words of the command as they are."""
        parser.add_argument("--backend")
        parser.add_argument("words", nargs=REMAINDER)

    def handle(self, *_: Any, words: Sequence[str], backend: str | None, **__: Any) -> None:
        """Run the command for `call_command`; raise CommandError if it fails."""
        try:
            self._run(words if backend is None else ["--backend", backend, *words])
        except SystemExit as ended:
            if ended.code:
                raise CommandError(f"delayq {' '.join(words)} failed", returncode=int(ended.code)) from None

    def _run(self, words: Sequence[str]) -> None:
        alias, rest = _taken(words)
        backend = _backend(alias)
        try:
            options = Options.of(backend.options)
        except msgspec.ValidationError as error:
            raise CommandError(f"TASKS[{backend.alias!r}]['OPTIONS']: {error}") from error
        if options.url is not None:
            os.environ["DELAYQ_URL"] = options.url  # not in the arguments of child processes, which others can see
        names = cli.list_commands(click.Context(cli))
        command = next((each for each in rest if each in names), None)
        is_ours = command == "consume" and not _has_program(rest)
        if is_ours:
            _let_children_import()
            _name_targets(backend)
        elif options.prefix != "delayq":
            rest = ["--prefix", options.prefix, *rest]
        main(args=rest, prog_name="manage.py delayq")


def _taken(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the value of --backend, and the words without it and without Django's own options."""
    alias, rest, left = None, [], iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if word == "--":
            rest += [word, *left]
        elif name == "--backend" or name in OWN:
            value = value if equals else next(left, "")
            alias = value if name == "--backend" else alias
        else:
            rest.append(word)
    return alias, rest


def _backend(alias: str | None) -> DelayqBackend:
    ours = [name for name in task_backends if isinstance(task_backends[name], DelayqBackend)]
    if alias is None and (len(ours) == 1 or "default" in ours):
        alias = ours[0] if len(ours) == 1 else "default"
    if alias not in ours:
        names = ", ".join(ours) or "none"
        what = "give --backend" if alias is None else f"{alias!r} is none of them"
        raise CommandError(f"the backends in TASKS with delayq.django.DelayqBackend: {names}; {what}")
    return task_backends[alias]  # type: ignore[no-any-return]


def _has_program(words: Sequence[str]) -> bool:
    """Whether `consume` is to run a program, or a topic's handler, and no tasks."""
    return any(word.partition("=")[0] in {"--exec", "--topic"} for word in words)


def _let_children_import() -> None:
    """Let the processes that `consume` starts import what this one can: the folder of manage.py, above all."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, dict.fromkeys([sys.path[0], *known])))


def _name_targets(backend: DelayqBackend) -> None:
    """Let the TARGETs of `consume` be names of the backend's queues; without any, all in QUEUES."""

    def named(ctx: click.Context, _: click.Parameter, given: Sequence[str]) -> Sequence[str]:
        if not (given or backend.queues):
            raise click.UsageError("QUEUES is empty, which allows any name: name the queues to consume", ctx)
        return [_target(backend, each) for each in given or sorted(backend.queues)]

    context = click.Context(cli)
    consume = cli.get_command(context, "consume")
    assert consume is not None
    [targets] = [each for each in consume.params if each.name == "targets"]
    targets.required, targets.callback, targets.metavar = False, named, "[QUEUE[=WEIGHT]]..."


def _target(backend: DelayqBackend, given: str) -> str:
    known = backend.queues
    name, equals, weight = (given, "", "") if given in known else given.rpartition("=")
    if not (name and weight.lstrip("-").isdigit()):
        name, equals, weight = given, "", ""
    if known and name not in known:
        raise click.UsageError(
            f"queue {name!r} is not in QUEUES of TASKS[{backend.alias!r}]: {', '.join(sorted(known))}"
        )
    return f"{queues.target(backend.alias, name)}{equals}{weight}"

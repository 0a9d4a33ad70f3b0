"""``manage.py delayq``: the command line of delayq, with the server of the setting TASKS."""

from __future__ import annotations

import os
import sys
import sysconfig
from argparse import REMAINDER, ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click
import msgspec
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from _delayq_command import run_apart
from delayq.cli import main as cli
from delayq.cli.app import MODULES, Commands
from delayq.cli.options import example
from delayq.django import queues
from delayq.django.backend import DelayqBackend
from delayq.django.framework import task_backends
from delayq.django.options import Options
from delayq.django.outbox import url_of

OWN = ("--settings", "--pythonpath")  # which Django has read already
ABOUT_QUEUES = """\
QUEUE is one of QUEUES in the setting TASKS; without any, it is all of them. The URL and the prefix are those of its
OPTIONS."""
OF_PROGRAMS = "With --exec, QUEUE is any queue there."
EXAMPLES = {
    "consume": """
manage.py delayq consume
manage.py delayq consume emails=5 default
manage.py delayq consume plain --exec 'cat'
""",
    "check": """
manage.py delayq check
manage.py delayq check emails
""",
}
"""Of the commands that take the queues of a backend."""


class Command(BaseCommand):
    """Runs a command of ``delayq`` for a backend: ``manage.py delayq [--backend ALIAS] COMMAND …``.

    ``consume`` and ``check`` take the names of queues, or none for all in QUEUES.
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
        command = next((each for each in rest if each in MODULES), None)
        is_ours = command in EXAMPLES and not _has_program(rest)
        variables = {"PYTHONPATH": _path_of_children()} if is_ours else {}
        if options.url is not None:
            variables["DELAYQ_URL"] = options.url  # not in the arguments of child processes, which others can see
        if options.outbox and options.enqueue_on_commit is not None:
            variables["DELAYQ_DATABASE_URL"] = url_of(options.enqueue_on_commit)
        if not is_ours and options.prefix != "delayq":
            rest = ["--prefix", options.prefix, *rest]
        if os.getpid() == 1:
            run_apart()
        with _environment(variables):
            _Managed(backend if is_ours else None)(args=rest, prog_name="manage.py delayq")


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
    if not ours:
        raise CommandError("TASKS has none with the BACKEND delayq.django.DelayqBackend: see docs/django.md")
    if alias is None and (len(ours) == 1 or "default" in ours):
        alias = ours[0] if len(ours) == 1 else "default"
    if alias not in ours:
        what = "TASKS has several of delayq" if alias is None else f"unknown backend {alias!r}"
        raise CommandError(f"{what}: give --backend with one of {', '.join(ours)}")
    return task_backends[alias]  # type: ignore[no-any-return]


def _has_program(words: Sequence[str]) -> bool:
    """Whether `consume` is to run a program, or a topic's handler, and no tasks."""
    return any(word.partition("=")[0] in {"--exec", "--topic"} for word in words)


def _path_of_children() -> str:
    """Return the PYTHONPATH with which the processes that `consume` starts can import what this one can.

    Without what each Python has by itself: a task may start another one.
    """
    paths = sysconfig.get_paths()
    own = [Path(paths[each]) for each in ("stdlib", "platstdlib", "purelib", "platlib")]
    mine = [os.path.abspath(each) for each in sys.path]  # noqa: PTH100  # as it is: resolved, a link would be another
    return os.pathsep.join(dict.fromkeys(each for each in mine if not any(map(Path(each).is_relative_to, own))))


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for this process and those that it starts, as long as the command runs."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _Managed(Commands):
    """The commands of ``delayq``; those of `EXAMPLES` take a backend's queues, if one is given."""

    def __init__(self, backend: DelayqBackend | None) -> None:
        super().__init__(
            callback=cli.callback,
            params=cli.params,
            help=cli.help,
            epilog=cli.epilog,
            context_settings=cli.context_settings,
        )
        self._backend = backend

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found: click.Command | None = super().get_command(ctx, cmd_name)
        if found is None or cmd_name not in EXAMPLES or self._backend is None:
            return found
        return _of_queues(found, cmd_name, self._backend)


def _of_queues(command: click.Command, name: str, backend: DelayqBackend) -> click.Command:
    """Return a command whose TARGETs are names of the backend's queues; without any, all in QUEUES."""

    def named(ctx: click.Context, _: click.Parameter, given: Sequence[str]) -> Sequence[str]:
        if not (given or backend.queues):
            raise click.UsageError(f"QUEUES is empty, which allows any name: name the queues to {name}", ctx)
        return [_target(backend, each) for each in given or sorted(backend.queues)]

    made, text = copy(command), cleandoc(command.help or "")
    [about] = [each for each in text.split("\n\n") if each.startswith("TARGET is ")]
    ours = f"{ABOUT_QUEUES} {OF_PROGRAMS}" if name == "consume" else ABOUT_QUEUES
    made.help = text.replace(about, ours).replace("TARGET", "QUEUE")
    made.epilog = example(EXAMPLES[name])
    made.params = list(map(copy, command.params))
    for each in made.params:
        if isinstance(each, click.Option) and each.help:
            each.help = each.help.replace("TARGET", "QUEUE")
        if each.name == "targets":
            each.required, each.callback = False, named
            each.metavar = f"[{str(each.metavar).replace('TARGET', 'QUEUE').removesuffix('...')}]..."
    return made


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

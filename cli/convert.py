"""convert: an embedded store that Redis wrote becomes one of Valkey."""

from __future__ import annotations

from pathlib import Path

import click

from delayq.transport.embedded import default_folder
from delayq.transport.embedded.convert import convert_store

from .options import command
from .output import say


@command("delayq convert .delayq", "Convert an embedded store of Redis for Valkey.")
@click.argument("folder", metavar="[FOLDER]", required=False, type=click.Path(path_type=Path, file_okay=False))
def convert(folder: Path | None) -> None:
    """Rewrite the embedded store in FOLDER, which Redis 7.4 or newer wrote, so that Valkey opens it.

    Without FOLDER, the store is DELAYQ_HOME or .delayq. Stop the programs that use it first. A copy of the old
    files stays in FOLDER. If the command fails or is killed, run it again.
    """
    folder = (folder or default_folder()).absolute()
    done = convert_store(folder)
    kept = f"are kept in {done.kept.name}" if done.kept else "were deleted before this run"
    say(f"{done.opens} opens {folder} now; the files of {done.written} {kept}")

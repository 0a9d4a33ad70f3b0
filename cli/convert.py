"""convert: turn an embedded store that Redis wrote into one that Valkey opens."""

from __future__ import annotations

from pathlib import Path

import click

from delayq.model.server_url import default_folder
from delayq.transport.embedded.convert import convert_store

from .options import command
from .output import say


@command("delayq convert .delayq", "Convert an embedded store from Redis to Valkey.")
@click.argument("folder", metavar="[FOLDER]", required=False, type=click.Path(path_type=Path, file_okay=False))
def convert(folder: Path | None) -> None:
    """Convert the embedded store in FOLDER, written by Redis 7.4 or newer, so that Valkey can open it.

    The default FOLDER is DELAYQ_HOME or else .delayq. First stop the programs that use the store. A copy of the old
    files stays in FOLDER. If the command fails or is killed, run it again.
    """
    folder = (folder or default_folder()).absolute()
    done = convert_store(folder)
    kept = f"are kept in {done.kept.name}" if done.kept else "were deleted before this run"
    say(f"{done.opens} can open {folder} now; the files of {done.written} {kept}")

"""For spark-submit: schedules ROWS messages in four partitions; the first attempts of KILLED and SLOW hang forever.

Usage: held_write.py FOLDER, where FOLDER contains the file `url`. The program writes `killed` and `slow` there when
these attempts hang, then `summary.json` and `told.json`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import functions as f

import delayq
from delayq.spark import session
from delayq.spark.jobs.schedule import schedule
from delayq.spark.redis_options import RedisOptions

ROWS = 20_000
PARTITIONS = 4
KILLED, SLOW = range(5_000, 10_000), range(15_000, 20_000)  # the second partition and the last
BATCH = 500


def letter(number: int) -> dict[str, object]:
    """Return the payload of a row: each different, and long, because a Python process passes rows on by 64 KiB."""
    return {"id": number, "text": f"{number:0300}"}


def main(folder: Path) -> None:
    stops = {KILLED[len(KILLED) // 2]: "killed", SLOW[len(SLOW) // 2]: "slow"}

    def text(number: int) -> str:
        context = TaskContext.get()
        assert context is not None
        if number in stops and context.attemptNumber() == 0:
            hidden = folder / f".{stops[number]}"
            hidden.write_text(str(os.getppid()))  # the process that the executor uses to fork its Pythons
            hidden.rename(folder / stops[number])
            signal.pause()
        return str(letter(number)["text"])

    spark = session()
    payload = f.struct("id", f.udf(text, "string", useArrow=False)("id").alias("text"))
    table = spark.range(0, ROWS, 1, PARTITIONS).select(
        f.concat(f.lit("reminder-"), "id").alias("id"),
        f.to_json(payload).alias("payload"),
        f.lit(3600).alias("delay"),
    )
    server = RedisOptions((folder / "url").read_text())
    summary = schedule(spark, table, server, "letters", payload_format="json")
    (folder / "summary.json").write_text(
        json.dumps({name: getattr(summary, name) for name in summary.__struct_fields__})
    )
    found = {name: spark.conf.get(name) for name in ("spark.app.name", "spark.sql.shuffle.partitions")}
    (folder / "told.json").write_text(json.dumps(found | {"delayq": delayq.__file__}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

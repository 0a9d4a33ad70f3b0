"""The lake: messages due beyond a queue's horizon wait in Parquet files, so that Redis holds hours, not years.

    LAKE/queue=reminders/
      hour=2026-12-24T09/                      messages due in this hour, UTC
        N79lEQCLUr1Izy.1.5ad3….parquet         messages, by id: WRITER.ROWS.CHECKSUM; written once, never changed
        _4kq2vb7xq3jm6hoa.json                 a change: this message was cancelled, or moved to another file
        _manifest@3-1f9c04ab.json              what was loaded into Redis, and the result; the highest number counts
      _runs/backfill@2-77e0d1c3.json           the files of a `delayq pipeline defer`; the highest number counts

Each file appears as a whole or not at all, so writers need no lock. No file ever replaces another, since not every file
system can do that in one step. Where two writers could decide differently, Redis decides, by one key per message: its
*mark*, which names this row of this file (not the id, which may be used again). A load reserves the mark in the step
that sends the message, for long enough that no later load sends it again (``unique_for``). A change first takes the
mark for some minutes, if it is free: then no load sends the message until the change is written. If the mark is not
free, the message is in Redis and is changed there.

`deferred_messages` is what a queue does with the lake, `queue_folder` the files of a queue; `hydrate` loads them into
Redis, `doctor` compares the two. Only pyarrow is needed, the extra ``lake``; `delayq.spark.jobs` has the
jobs for large numbers.
"""

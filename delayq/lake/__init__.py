"""The lake: messages that are due beyond a queue's horizon rest in files of Parquet, and Redis holds hours, not years.

    LAKE/queue=reminders/
      hour=2026-12-24T09/                      what falls due in this hour, UTC
        N79lEQCLUr1Izy.1.5ad3….parquet         messages, by id: WRITER.ROWS.CHECKSUM; written once, never changed
        _4kq2vb7xq3jm6hoa.json                 a change: this message was cancelled, or moved to another file
        _manifest@3-1f9c04ab.json              what was loaded into Redis, and what became of it: the highest number
      _runs/backfill@2-77e0d1c3.json           the files of a `delayq pipeline defer`: the highest number

Everything is a file of its own that is there as a whole or not at all, so writers need no lock, and none is ever put in
the place of another, which not every file system can do in one step. What two of them could decide differently, Redis
decides, by one key a message: its *mark*, which names this row of this file (not the id, which may be used again). A
load reserves the mark in the step that sends the message, for so long that no later load sends it again
(``unique_for``). A change takes the mark first, for some minutes, if it is free: then no load sends the message until
the change is written; and if it is not free, the message is in Redis, and is changed there.

`deferred_messages` is what a queue does with it, `queue_folder` the files of a queue; `hydrate` brings them into Redis,
`doctor` holds them against each other. Only pyarrow is needed: ``pip install 'delayq[lake]'``; `delayq.spark.jobs` has
the jobs for many.
"""

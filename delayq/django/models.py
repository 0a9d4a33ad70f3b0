"""The table of the outbox: see `Options.outbox`."""

from typing import ClassVar

from django.db import models

from delayq.outbox.statements import HELD, TABLE


class OutboxRow(models.Model):
    """A message that waits for its relay; `delayq.outbox` reads and writes it."""

    seq = models.BigAutoField(primary_key=True)
    id = models.CharField(max_length=36)
    transaction_id = models.BigIntegerField()
    prefix = models.CharField(max_length=128)
    queue = models.CharField(max_length=128)
    message = models.BinaryField()
    options = models.TextField()
    created_ms = models.BigIntegerField()
    state = models.CharField(max_length=8)
    attempts = models.IntegerField()
    due_ms = models.BigIntegerField()
    sent_ms = models.BigIntegerField(null=True)
    server = models.CharField(max_length=80, null=True)
    error = models.TextField(null=True)

    class Meta:
        """Its table and indexes."""

        db_table = TABLE
        indexes: ClassVar = [
            models.Index(fields=["state", "seq"], name=f"{TABLE}_state"),
            models.Index(fields=["transaction_id", "prefix", "queue", "seq"], name=f"{TABLE}_transaction"),
            models.Index(fields=["prefix", "queue", "seq"], name=f"{TABLE}_held", condition=models.Q(state=HELD)),
        ]

"""The table of the outbox."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Creates the table."""

    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar = [
        migrations.CreateModel(
            name="OutboxRow",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("id", models.CharField(max_length=36)),
                ("transaction_id", models.BigIntegerField()),
                ("prefix", models.CharField(max_length=128)),
                ("queue", models.CharField(max_length=128)),
                ("message", models.BinaryField()),
                ("options", models.TextField()),
                ("created_ms", models.BigIntegerField()),
                ("state", models.CharField(max_length=8)),
                ("attempts", models.IntegerField()),
                ("due_ms", models.BigIntegerField()),
                ("sent_ms", models.BigIntegerField(null=True)),
                ("server", models.CharField(max_length=80, null=True)),
                ("error", models.TextField(null=True)),
            ],
            options={
                "db_table": "delayq_outbox",
                "indexes": [
                    models.Index(fields=["state", "seq"], name="delayq_outbox_state"),
                    models.Index(fields=["transaction_id", "prefix", "queue", "seq"], name="delayq_outbox_transaction"),
                    models.Index(
                        fields=["prefix", "queue", "seq"],
                        name="delayq_outbox_held",
                        condition=models.Q(("state", "held")),
                    ),
                ],
            },
        ),
    ]

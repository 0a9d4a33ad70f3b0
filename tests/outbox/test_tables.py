"""The table of SQLAlchemy and Alembic is that of the statements; Django's is held to them by its own tests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from delayq import outbox
from delayq.outbox import open_database
from tests.outbox.conftest import Shop


def differences(shop: Shop) -> list[str]:
    """What a migration that Alembic generates would do."""
    with shop.engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection), outbox.metadata)
    return [each[0] for each in found]


def test_alembic_finds_the_table_missing_and_then_the_same(shop: Shop):
    assert differences(shop) == []
    outbox.metadata.drop_all(shop.engine)
    assert differences(shop) == ["add_table", "add_index", "add_index", "add_index"]
    database = open_database(shop.url)
    for statement in database.statements.create:
        database.execute(statement)
    database.close()
    assert differences(shop) == []
    assert set(sa.inspect(shop.engine).get_table_names()) >= {"delayq_outbox"}

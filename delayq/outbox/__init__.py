"""A transactional outbox: messages as rows of your database, which a relay brings into Redis once they are committed.

    from delayq import outbox

    with Session(engine) as session, session.begin():
        session.add(order)
        outbox.send(session, emails, {"order": order.id}, delay=30)

`send` and `send_many` take sessions and connections of SQLAlchemy 2 (the extra ``outbox``). ``delayq relay`` is the
relay; `Relay` is the same within a program.
"""

from typing import TYPE_CHECKING

from delayq.late_import import late_names

if TYPE_CHECKING:
    from delayq.outbox.database import open_database
    from delayq.outbox.relay import Relay
    from delayq.outbox.sessions import send, send_many
    from delayq.outbox.tables import metadata, table

__getattr__ = late_names(
    __name__,
    Relay="delayq.outbox.relay",
    metadata="delayq.outbox.tables",
    open_database="delayq.outbox.database",
    send="delayq.outbox.sessions",
    send_many="delayq.outbox.sessions",
    table="delayq.outbox.tables",
)

__all__ = ["Relay", "metadata", "open_database", "send", "send_many", "table"]


def __dir__() -> list[str]:
    return __all__

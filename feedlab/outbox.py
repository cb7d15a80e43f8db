"""The transactional outbox: an event is a row, written in the transaction of the change that it tells of.

Whoever changes something calls `put` inside that transaction; `relay` moves the rows to Kafka.
"""
from .core.codec import Event, Names
from .db import Connection

PUT = """
    with row as (insert into outbox (topic, key, payload) values (%(topic)s, %(key)s, %(payload)s))
    select pg_notify(%(channel)s, '')"""        # NOTIFY is sent at commit, and only once a transaction


def row(names: Names, event: Event) -> dict:
    """The outbox row of an event: topic and key are decided here and nowhere else.

    Posts are keyed by author, graph changes by the user whose feed they touch: each stays in order by itself.
    """
    on_graph = event.kind in ("followed", "unfollowed")
    return {"topic": names.graph if on_graph else names.created, "key": event.user if on_graph else event.author,
            "payload": event.encode(), "channel": names.channel}


def put(conn: Connection, names: Names, event: Event) -> None:
    """Add the event to the outbox of the open transaction."""
    conn.execute(PUT, row(names, event))


def depth(conn: Connection) -> int:
    """Rows that are not yet in Kafka."""
    return conn.execute("select count(*) from outbox").fetchone()[0]

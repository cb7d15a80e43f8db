"""1 The write: a post and its outbox row in one transaction. Also users, deletes and visits.

Whoever opened `conn` closes it; each function here is one transaction of its own.
"""
from collections.abc import Sequence

import psycopg

from . import outbox
from .core.codec import Event, Names
from .core.model import MAX_ID, MAX_MS, Post
from .core.snowflake import Snowflake
from .db import Connection
from .errors import BadInput, Conflict, NotFound

TEXT_MAX = 5_000
VISIT_EVERY = "1 hour"    # a page read writes user_activity at most this often, so that reads are not writes


def create_user(conn: Connection, user: int, name: str) -> None:
    """Raises Conflict when the id is taken, BadInput when no row or event could hold the id or the name."""
    if not 0 <= user <= MAX_ID:
        raise BadInput(f"a user id is a whole number from 0 to {MAX_ID}, got {user}. Choose another id.")
    check_text("the name", name)
    made = conn.execute("insert into users values (%s, %s) on conflict do nothing returning id", (user, name)).fetchone()
    if made is None:
        raise Conflict(f"user {user} exists already. Choose another id.")


# Post, outbox row and wake-up in one statement: one round trip, one transaction.
CREATE = """
    with post as (insert into posts (id, author_id, created_at_ms, content, images)
                  values (%(id)s, %(author)s, %(ms)s, %(content)s, %(images)s)),
         row as (insert into outbox (topic, key, payload) values (%(topic)s, %(key)s, %(payload)s))
    select pg_notify(%(channel)s, '')"""


def create(conn: Connection, ids: Snowflake, names: Names, author: int, content: str, *,
           created_at_ms: int | None = None, images: Sequence[str] = ()) -> Post:
    """Save a post; it reaches the followers' feeds through the outbox.

    `created_at_ms` (epoch milliseconds) is for imported, back-dated posts; otherwise id and time are one clock reading.
    Raises BadInput (text empty, too long, or with a NUL) and NotFound (author).

        post = create(conn, ids, names, author=7, content="hello")
    """
    if not content.strip():
        raise BadInput("the post is empty. Write some text.")
    if len(content) > TEXT_MAX:
        raise BadInput(f"the post has {len(content)} characters, at most {TEXT_MAX} are allowed. Shorten it.")
    check_text("the post", content, *images)
    if created_at_ms is not None and not 0 <= created_at_ms <= MAX_MS:
        raise BadInput(f"created_at_ms must be epoch milliseconds from 0 to {MAX_MS}, got {created_at_ms}")
    post_id, now = ids.next()
    post = Post(post_id, author, now if created_at_ms is None else created_at_ms, content, tuple(images))
    event = Event("posted", author=author, post=post.id, ms=post.created_at_ms)
    try:
        conn.execute(CREATE, outbox.row(names, event) | {
            "id": post.id, "author": author, "ms": post.created_at_ms, "content": content, "images": list(images)})
    except (psycopg.errors.ForeignKeyViolation, psycopg.errors.NumericValueOutOfRange):     # nobody, or beyond bigint
        raise NotFound(f"there is no user {author}. Create the user first, or load a graph with `feedlab load`.") from None
    return post


def check_text(what: str, *texts: str) -> None:
    """Raises BadInput for what no text column can hold: a NUL, half of a surrogate pair."""
    try:
        if b"\0" in "".join(texts).encode():
            raise BadInput(f"{what} has a NUL character, which no text column can hold. Remove it.")
    except UnicodeEncodeError:
        raise BadInput(f"{what} has half of a character (a lone surrogate), which is not Unicode text. Remove it.") from None


def delete(conn: Connection, names: Names, author: int, post_id: int) -> None:
    """Hide a post at once, in every feed: the read filter asks this row. Its entries are swept by an event.

    Deleting twice is harmless. Raises NotFound when the author has no such post.
    """
    with conn.transaction():
        row = conn.execute("update posts set deleted = true where id = %s and author_id = %s and not deleted "
                           "returning created_at_ms", (post_id, author)).fetchone()
        if row:
            outbox.put(conn, names, Event("deleted", author=author, post=post_id, ms=row[0]))
        elif not conn.execute("select 1 from posts where id = %s and author_id = %s", (post_id, author)).fetchone():
            raise NotFound(f"user {author} has no post {post_id}.")


def visit(conn: Connection, user: int) -> bool:
    """Record that the user is here. True when it was written (at most once an hour a user)."""
    return conn.execute(
        f"insert into user_activity as a (user_id, last_seen_at) values (%s, now()) on conflict (user_id) do update "
        f"set last_seen_at = excluded.last_seen_at where a.last_seen_at < now() - interval '{VISIT_EVERY}' "
        f"returning user_id", (user,)).fetchone() is not None

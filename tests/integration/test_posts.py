"""The write: a post and its outbox row are both there or neither; what cannot be saved is said in a sentence."""

import psycopg
import pytest
from conftest import add_users, running, until

from feedlab import db, outbox, posts, pull
from feedlab.core import snowflake
from feedlab.core.codec import Event, decode
from feedlab.core.model import MAX_MS
from feedlab.errors import BadInput, Conflict, NotFound

B = 2


@pytest.fixture(autouse=True)
def nothing_yet(lab):
    lab.conn.execute("truncate users, posts, outbox, follows, user_activity, follower_counts")
    add_users(lab, 1, B)


def create(lab, author=B, content="hello", **options):
    return posts.create(lab.conn, lab.ids, lab.names, author, content, **options)


def outbox_rows(lab):
    """(topic, key, event) in the order of ids."""
    return [
        (topic, key, decode(payload.encode()))
        for topic, key, payload in lab.conn.execute("select topic, key, payload from outbox order by id")
    ]


def saved(lab):
    """How many (posts, outbox rows)."""
    return lab.conn.execute("select (select count(*) from posts), (select count(*) from outbox)").fetchone()


def test_a_post_and_its_event(lab):
    p = create(lab, images=["a.png", "b.png"])
    assert lab.conn.execute("select id, author_id, created_at_ms, content, images, deleted from posts").fetchall() == [
        (p.id, B, p.created_at_ms, "hello", ["a.png", "b.png"], False)
    ]
    assert outbox_rows(lab) == [(lab.names.created, B, Event("posted", author=B, post=p.id, ms=p.created_at_ms))]
    assert snowflake.parts(p.id)[0] == p.created_at_ms  # one clock reading


def test_ids_and_times_rise_together(lab):
    made = [create(lab).entry for _ in range(20)]
    assert made == sorted(made) and [e.id for e in made] == sorted(e.id for e in made)
    assert pull.newest(lab.conn, [B]) == made[::-1]


@pytest.mark.parametrize("ms", [0, 1, MAX_MS])
def test_a_back_dated_post_keeps_its_time(lab, ms):
    p = create(lab, created_at_ms=ms)
    assert p.created_at_ms == ms == outbox_rows(lab)[0][2].ms
    assert [e.ms for e in pull.newest(lab.conn, [B])] == [ms]


@pytest.mark.parametrize(
    "content",
    [
        "\U0001f600 \u0645\u0631\u062d\u0628\u0627 e\u0301",
        "'; drop table posts; --",
        "%s %(id)s {}",
        "\\x00",
        "x" * 5_000,
    ],
)
def test_any_text_comes_back_as_it_was(lab, content):
    p = create(lab, content=content)
    assert lab.conn.execute("select content from posts where id = %s", (p.id,)).fetchone() == (content,)


BAD = {
    "empty": ({"content": ""}, BadInput, "empty"),
    "blank": ({"content": " \n\t\u00a0"}, BadInput, "empty"),
    "too long": ({"content": "x" * 5_001}, BadInput, "5001 characters"),
    "NUL": ({"content": "a\0b"}, BadInput, "NUL"),
    "half a character": ({"content": "a\ud800"}, BadInput, "Unicode"),
    "NUL in an image": ({"images": ["a\0.png"]}, BadInput, "NUL"),
    "time below 0": ({"created_at_ms": -1}, BadInput, "epoch milliseconds"),
    "time beyond a double": ({"created_at_ms": MAX_MS + 1}, BadInput, "epoch milliseconds"),
    "nobody": ({"author": 999}, NotFound, "no user 999"),
    "negative author": ({"author": -1}, NotFound, "no user -1"),
    "author beyond bigint": ({"author": 2**63}, NotFound, f"no user {2**63}"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_a_sentence_and_leaves_nothing(lab, name):
    options, error, text = BAD[name]
    with pytest.raises(error, match=text):
        create(lab, **options)
    assert saved(lab) == (0, 0)


@pytest.mark.parametrize(
    "table,bad", [("outbox", "check (payload not like '%%posted%%')"), ("posts", "check (content <> 'hello')")]
)
def test_a_failing_insert_leaves_neither(lab, table, bad):
    """Whichever of the two fails."""
    lab.conn.execute(f"alter table {table} add constraint probe {bad.replace('%%', '%')} not valid")
    try:
        with pytest.raises(psycopg.errors.CheckViolation):
            create(lab)
    finally:
        lab.conn.execute(f"alter table {table} drop constraint probe")
    assert saved(lab) == (0, 0)
    create(lab)
    assert saved(lab) == (1, 1)


def test_both_are_seen_at_once_and_go_with_the_callers_transaction(lab):
    with db.connect(lab.addresses.postgres_url, lab.settings.namespace) as other:

        def seen():
            return other.execute("select (select count(*) from posts), (select count(*) from outbox)").fetchone()

        with pytest.raises(ZeroDivisionError), lab.conn.transaction():
            create(lab)
            assert seen() == (0, 0)
            raise ZeroDivisionError
        assert seen() == (0, 0)
        with lab.conn.transaction():
            create(lab)
        assert seen() == (1, 1)


def test_a_repeated_id_is_refused_and_sends_nothing(lab):
    p = create(lab)
    with pytest.raises(psycopg.errors.UniqueViolation):
        lab.conn.execute(
            posts.CREATE,
            outbox.row(lab.names, Event("posted", author=B, post=p.id, ms=1))
            | {"id": p.id, "author": B, "ms": 1, "content": "x", "images": []},
        )
    assert saved(lab) == (1, 1)


# --- delete ---------------------------------------------------------------------------------------


def test_delete_hides_and_tells_once(lab):
    p = create(lab)
    for _ in range(3):
        posts.delete(lab.conn, lab.names, B, p.id)
    assert pull.newest(lab.conn, [B]) == []
    assert [e for _, _, e in outbox_rows(lab)][1:] == [Event("deleted", author=B, post=p.id, ms=p.created_at_ms)]
    assert lab.conn.execute("select deleted, content from posts").fetchall() == [(True, "hello")]


@pytest.mark.parametrize("author,shift", [(1, 0), (B, 1), (999, 0), (2**63, 0), (B, 2**63)])
def test_only_the_author_deletes(lab, author, shift):
    p = create(lab)
    with pytest.raises(NotFound, match=f"user {author} has no post {p.id + shift}"):
        posts.delete(lab.conn, lab.names, author, p.id + shift)
    assert saved(lab) == (1, 1) and len(pull.newest(lab.conn, [B])) == 1


# --- users and visits -----------------------------------------------------------------------------


def test_a_user_id_is_taken_once(lab):
    with pytest.raises(Conflict, match="user 1 exists"):
        posts.create_user(lab.conn, 1, "again")
    assert lab.conn.execute("select name from users where id = 1").fetchone() == ("user 1",)


@pytest.mark.parametrize("user", [-1, -(2**63), 2**63])
def test_user_ids_are_0_to_the_largest_bigint(lab, user):
    """A negative id would be poison in an event, and the keyset `follower_id > -1` would skip such a follower."""
    with pytest.raises(BadInput, match="from 0 to"):
        posts.create_user(lab.conn, user, "x")


@pytest.mark.parametrize("user", [0, 2**63 - 1])
def test_the_first_and_the_last_id_are_users_like_others(lab, user):
    posts.create_user(lab.conn, user, "x")
    assert create(lab, author=user).author_id == user
    assert outbox_rows(lab)[0][1] == user


def test_a_visit_is_written_at_most_once_an_hour(lab):
    posts.create_user(lab.conn, 5, "x")
    assert posts.visit(lab.conn, 5) and not posts.visit(lab.conn, 5)
    for ago, written in (("59 minutes", False), ("61 minutes", True), ("40 days", True)):
        lab.conn.execute("update user_activity set last_seen_at = now() - %s::interval where user_id = 5", (ago,))
        assert posts.visit(lab.conn, 5) is written, ago
    assert lab.conn.execute(
        "select now() - last_seen_at < interval '1 minute' from user_activity where user_id = 5"
    ).fetchone()[0]


# --- the whole way --------------------------------------------------------------------------------


def test_r22_create_comes_again_after_delete(lab):
    """Delete 2, evict, rebuild, redeliver create(2): it stays away, also from the stored feed."""
    from feedlab import follows, timeline

    follows.follow(lab.conn, lab.redis, lab.names, 1, B)
    made = [create(lab, created_at_ms=ms) for ms in (10, 20, 30)]
    with running(lab):
        lab.page(1)
        lab.drain()
        posts.delete(lab.conn, lab.names, B, made[1].id)
        lab.drain()
        timeline.drop(lab.redis, lab.names.feed(1))
        assert lab.page(1).ids == [made[2].id, made[0].id]
        outbox.put(lab.conn, lab.names, Event("posted", author=B, post=made[1].id, ms=20))
        lab.drain()
        assert lab.page(1).ids == [made[2].id, made[0].id]
        assert [e.id for e in timeline.get(lab.redis, lab.names.feed(1)).entries] == lab.page(1).ids


def test_r19_a_delete_clears_feeds_and_the_celebritys_timeline(lab):
    from feedlab import follows, timeline

    n = lab.names
    posts.create_user(lab.conn, 3, "left before the delete")
    for user in (1, 3):
        follows.follow(lab.conn, lab.redis, n, user, B)
    with running(lab):
        lab.drain()
        made = [create(lab, created_at_ms=ms) for ms in (10, 20, 30)]
        for user in (1, 3):
            lab.page(user)
        db.set_knobs(lab.conn, threshold=0)  # and one pulled, so that the other timeline exists
        made.append(create(lab, created_at_ms=40))
        until(lambda: timeline.get(lab.redis, n.celeb(B)).exists)
        db.set_knobs(lab.conn, threshold=lab.settings.threshold)
        lab.drain()
        follows.unfollow(lab.conn, lab.redis, n, 3, B)
        posts.delete(lab.conn, n, B, made[1].id)
        assert lab.page(1).ids == [made[3].id, made[2].id, made[0].id]  # at once
        lab.drain()
        for key in (n.feed(1), n.feed(3), n.celeb(B)):
            assert made[1].entry not in timeline.get(lab.redis, key).entries, key
        assert made[2].entry in timeline.get(lab.redis, n.celeb(B)).entries

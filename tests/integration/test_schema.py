"""The schema: applied twice, by two at once, by the wrong version; and each hot query lives on its index."""

import json
import threading

import pytest
from conftest import fresh_lab

from feedlab import db, fanout, posts, pull, reader, relay
from feedlab.core.model import Entry
from feedlab.errors import BadInput

AUTHORS, PER_AUTHOR, FOLLOWEES, BUSY, NOW = 2_000, 40, 300, 1, 1_760_000_000_000


def tables(conn):
    """Everything that the schema made, as (kind, name, definition)."""
    return conn.execute("""
        select 'column', table_name || '.' || column_name, data_type || is_nullable || coalesce(column_default, '')
        from information_schema.columns where table_schema = current_schema
        union all select 'index', indexname, indexdef from pg_indexes where schemaname = current_schema
        union all select 'constraint', conname, pg_get_constraintdef(oid) from pg_constraint
        where connamespace = current_schema::regnamespace order by 1, 2, 3""").fetchall()


def test_twice_changes_nothing(lab):
    before, knobs = tables(lab.conn), db.knobs(lab.conn)
    assert len(before) > 30
    db.set_knobs(lab.conn, threshold=77)
    db.apply_schema(lab.conn, lab.settings)
    assert tables(lab.conn) == before
    assert db.knobs(lab.conn) == knobs | {"threshold": 77}  # a moved knob is not moved back by a start
    assert lab.conn.execute("select count(*) from schema_version").fetchone() == (1,)
    db.set_knobs(lab.conn, **knobs)


def test_four_at_once_from_nothing(lab):
    lab.conn.execute("create schema if not exists probe_at_once")
    lab.conn.execute("drop schema probe_at_once cascade")
    s, failed, gate = lab.settings.model_copy(update={"namespace": "probe_at_once"}), [], threading.Barrier(4)

    def work():
        try:
            with db.connect(lab.addresses.postgres_url, s.namespace) as conn:
                gate.wait()
                db.apply_schema(conn, s)
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    try:
        assert failed == []
        assert lab.conn.execute("select count(*) from probe_at_once.schema_version").fetchone() == (1,)
        assert lab.conn.execute("select count(*) from probe_at_once.knobs").fetchone() == (len(db.KNOBS),)
    finally:
        lab.conn.execute("drop schema probe_at_once cascade")


@pytest.mark.parametrize(
    "change", ["select", "alter table outbox rename column slice to shard; drop index outbox_slice"]
)
def test_a_newer_version_is_refused_with_a_sentence(lab, change):
    """Also when its tables differ from ours, so that our own DDL would fail with something less readable."""
    with lab.conn.transaction(force_rollback=True):
        lab.conn.execute("update schema_version set version = 2")
        lab.conn.execute(change)
        before = tables(lab.conn)
        with pytest.raises(BadInput, match="version 2.*this feedlab knows 1.*FEEDLAB_NAMESPACE"):
            db.apply_schema(lab.conn, lab.settings)
        assert tables(lab.conn) == before
    db.apply_schema(lab.conn, lab.settings)


def test_what_no_row_may_be(lab):
    """The last line of defence: times that a double cannot hold, and ids that no event may carry."""
    lab.conn.execute("insert into users values (900, 'x')")
    for statement in (
        "insert into posts values (1, 900, 9007199254740993, 'x')",
        "insert into posts values (1, 900, -1, 'x')",
        "insert into follows values (900, 900)",
        "insert into posts values (1, 12345, 1, 'x')",
    ):
        with pytest.raises(db.psycopg.errors.IntegrityError):
            lab.conn.execute(statement)


def test_namespaces_do_not_see_each_other(lab, addresses):
    with fresh_lab(addresses, "t_schema_other") as other:
        for each in (lab, other):
            posts.create_user(each.conn, 4_711, each.settings.namespace)
        posts.create(other.conn, other.ids, other.names, 4_711, "only there")
        assert lab.conn.execute("select name from users where id = 4711").fetchone() == (lab.settings.namespace,)
        assert pull.newest(lab.conn, [4_711]) == [] != pull.newest(other.conn, [4_711])
        assert lab.conn.execute("select count(*) from outbox where key = 4711").fetchone() == (0,)
        other.redis.set(other.names.stats + "x", 1)
        assert not set(lab.redis.scan_iter(match=f"{lab.settings.namespace}:*")) & set(
            other.redis.scan_iter(match="t_schema_other:*")
        )
        assert set(lab.names.topics).isdisjoint(other.names.topics)


# --- hot queries ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd(lab):
    """Author 1 with 50,000 posts (R29) and 20,000 followers; 2,000 authors with 40 posts; reader 10 follows 300 of
    them."""
    c, many = lab.conn, 2_000 * PER_AUTHOR
    c.execute("insert into users select g, 'u' from generate_series(1, 30000) g on conflict do nothing")
    c.execute("insert into user_activity select g from generate_series(1, 30000) g on conflict do nothing")
    c.execute(
        "insert into posts (id, author_id, created_at_ms, content) select 1000 + g, 100 + g %% %s, %s + g, 'x' "
        "from generate_series(1, %s) g",
        (AUTHORS, NOW, many),
    )
    c.execute(
        "insert into posts (id, author_id, created_at_ms, content) select 1000000 + g, 1, %s + g, 'x' "
        "from generate_series(1, 50000) g",
        (NOW,),
    )
    c.execute("insert into follows select 10, 100 + g from generate_series(1, %s) g", (FOLLOWEES,))
    c.execute("insert into follows select g, 1 from generate_series(10, 20009) g")
    c.execute("insert into pull_flags select g from generate_series(1, 200) g")
    c.execute("insert into outbox (topic, key, payload) select 't', g, 'x' from generate_series(1, 20000) g")
    for table in ("users", "user_activity", "posts", "follows", "outbox", "pull_flags"):
        c.execute(f"vacuum analyze {table}")
    yield lab
    c.execute("truncate outbox")


def nodes(plan):
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def explain(lab, query, args):
    """The plan as it ran, a list of nodes."""
    ((answer,),) = lab.conn.execute("explain (analyze, format json) " + query, args).fetchall()
    plan = (answer if isinstance(answer, list) else json.loads(answer))[0]["Plan"]
    return list(nodes(plan))


PAGE = {"user": 10, "ms": NOW + 60_000, "id": 5, "limit": 21, "own": False}
HOT = {
    # query: (SQL, arguments, indexes, most rows that any scan may touch in all)
    "pull.PAGE": (pull.PAGE, PAGE, {"follows_pkey", "posts_author_newest"}, 21 * (FOLLOWEES + 1)),
    "pull.PAGE own": (pull.PAGE, PAGE | {"own": True}, {"follows_pkey", "posts_author_newest"}, 21 * (FOLLOWEES + 2)),
    "pull.NEWEST": (
        pull.NEWEST,
        {"authors": [BUSY], "ms": NOW + 40_000, "id": 5, "above": -1, "limit": 100},
        {"posts_author_newest"},
        100,
    ),
    "pull.NEWEST above": (
        pull.NEWEST,
        {"authors": [BUSY], "ms": NOW + 40_000, "id": 5, "above": NOW + 39_990, "limit": 100},
        {"posts_author_newest"},
        100,
    ),
    "fanout.FOLLOWERS": (
        fanout.FOLLOWERS,
        (30, 1_001, [0], [BUSY], [500]),
        {"follows_followee", "user_activity_pkey"},
        1_001,
    ),
    "reader.VISIBLE": (
        reader.VISIBLE,
        {"user": 10, "own": None, "ids": [1_000_000 + i for i in range(1, 31)]},
        {"posts_pkey", "follows_"},
        FOLLOWEES + 1,
    ),
    "reader.ASK": (reader.ASK, {"user": 10, "ttl": 1}, {"follows_", "users_pkey", "user_activity_pkey"}, FOLLOWEES + 1),
    "relay.ROWS": (relay.ROWS, (list(range(16)), 1_000), {"outbox_pkey"}, 1_000),
}


@pytest.mark.parametrize("name", HOT)
def test_hot_queries_live_on_their_index(crowd, name):
    query, args, indexes, most = HOT[name]
    plan = explain(crowd, query, args)
    text = json.dumps([{k: v for k, v in n.items() if k != "Plans"} for n in plan], indent=1)
    small = {"pull_flags", "knobs"}
    assert [n for n in plan if n["Node Type"] == "Seq Scan" and n["Relation Name"] not in small] == [], text
    used = {n["Index Name"] for n in plan if "Index Name" in n}
    assert all(any(u.startswith(i) for u in used) for i in indexes), (used, text)
    for n in plan:
        if "Index Name" in n:
            assert n["Actual Rows"] * n["Actual Loops"] <= most, text
            assert n.get("Rows Removed by Filter", 0) <= 10, text


def test_only_the_merge_of_the_followed_is_sorted(crowd):
    """Each author's range comes in order from the index: a page sorts 21 rows of each followed author and nothing else
    sorts."""
    for name, (query, args, *_) in HOT.items():
        sorts = [n for n in explain(crowd, query, args) if "Sort" in n["Node Type"]]
        allowed = {"pull.PAGE": 1, "pull.PAGE own": 1, "pull.NEWEST": 1, "pull.NEWEST above": 1}.get(name, 0)
        assert len(sorts) <= allowed, (name, sorts)


def test_a_page_of_the_busy_author_does_not_read_his_50_000_posts(crowd):
    for before in (Entry(NOW + 50_001, 0), Entry(NOW + 25_000, 0), Entry(NOW + 50, 0)):
        plan = explain(
            crowd, pull.NEWEST, {"authors": [BUSY], "ms": before.ms, "id": before.id, "above": -1, "limit": 20}
        )
        assert max(n["Actual Rows"] * n["Actual Loops"] for n in plan) <= 20
    assert [e.id for e in pull.newest(crowd.conn, [BUSY], Entry(NOW + 50, 0), limit=3)] == [1000049, 1000048, 1000047]

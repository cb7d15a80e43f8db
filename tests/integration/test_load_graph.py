"""A graph in PostgreSQL: twice is harmless, two at once too, and the counts are what SQL counts."""

import gzip
import threading

import numpy as np
import pytest
from conftest import shared_file

from feedlab import db, follows
from feedlab.errors import BadInput
from feedlab.lab.graph import from_edges, load_graph, read_graph

LAB = {"threshold": 1_000}


@pytest.fixture(autouse=True)
def nothing_yet(lab):
    lab.conn.execute("truncate users, posts, outbox, follows, user_activity, follower_counts")


def graph(*edges):
    u, v = zip(*edges, strict=True)
    return from_edges(np.array(u), np.array(v), True, "test")


def contents(lab):
    return (
        lab.conn.execute("select id, name from users order by 1").fetchall(),
        lab.conn.execute("select follower_id, followee_id from follows order by 1, 2").fetchall(),
        lab.conn.execute("select user_id from user_activity order by 1").fetchall(),
    )


def counts_are_sqls(lab):
    """follower_counts against the rows of follows, both ways; how many users were compared."""
    rows = lab.conn.execute("""
        select coalesce(c.u, f.u), coalesce(c.n, 0), coalesce(f.n, 0)
        from (select user_id u, sum(n) n from follower_counts group by 1) c
        full join (select followee_id u, count(*) n from follows group by 1) f on f.u = c.u""").fetchall()
    assert [r for r in rows if r[1] != r[2]] == []
    return len(rows)


SMALL = ((1, 2), (2, 1), (3, 1), (10, 1), (10, 2), (0, 10))


def test_twice_is_harmless(lab):
    g = graph(*SMALL)
    assert load_graph(lab.conn, g) == {"users": 5, "follows": 6, "new_users": 5, "new_follows": 6}
    first = contents(lab)
    assert first[1] == sorted(SMALL) and [u for (u,) in first[2]] == [0, 1, 2, 3, 10]
    assert load_graph(lab.conn, g) == {"users": 5, "follows": 6, "new_users": 0, "new_follows": 0}
    assert contents(lab) == first
    assert counts_are_sqls(lab) == 3 and follows.followers(lab.conn, 1) == 3


def test_on_top_of_what_is_there(lab):
    """Users that exist keep name and visit; follows that exist are not counted again; then follow and unfollow go on
    from it."""
    lab.conn.execute("insert into users values (1, 'Ann'), (2, 'Bo'), (77, 'Cy')")
    lab.conn.execute("insert into user_activity values (1, '2020-01-01')")
    follows.follow(lab.conn, lab.redis, lab.names, 2, 1)
    follows.follow(lab.conn, lab.redis, lab.names, 77, 1)
    assert load_graph(lab.conn, graph(*SMALL)) == {"users": 5, "follows": 6, "new_users": 3, "new_follows": 5}
    assert lab.conn.execute("select name from users where id in (1, 3) order by id").fetchall() == [
        ("Ann",),
        ("user 3",),
    ]
    assert lab.conn.execute("select last_seen_at < '2021-01-01' from user_activity where user_id = 1").fetchone() == (
        True,
    )
    assert follows.followers(lab.conn, 1) == 4
    follows.unfollow(lab.conn, lab.redis, lab.names, 3, 1)
    follows.follow(lab.conn, lab.redis, lab.names, 3, 2)
    counts_are_sqls(lab)


def test_two_at_once(lab):
    """Overlapping graphs, in threads: no deadlock, nothing lost, nothing twice."""
    rng, failed, added = np.random.default_rng(5), [], []
    graphs = [from_edges(rng.integers(0, 300, 5_000), rng.integers(0, 300, 5_000), True, "test") for _ in range(3)]
    gate = threading.Barrier(3)

    def load(g):
        try:
            with db.connect(lab.addresses.postgres_url, lab.settings.namespace) as conn:
                gate.wait(20)
                added.append(load_graph(conn, g)["new_follows"])
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=load, args=(g,)) for g in graphs]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    want = {(int(u), int(v)) for g in graphs for u, v in zip(g.follower, g.followee, strict=True)}
    assert failed == [] and set(contents(lab)[1]) == want and sum(added) == len(want)
    counts_are_sqls(lab)


def test_a_load_that_fails_leaves_nothing(lab):
    before = contents(lab)
    lab.conn.execute("alter table follower_counts add constraint probe check (n < 3) not valid")
    try:
        with pytest.raises(db.psycopg.errors.CheckViolation):
            load_graph(lab.conn, graph(*SMALL))
    finally:
        lab.conn.execute("alter table follower_counts drop constraint probe")
    assert contents(lab) == before


def test_from_a_file_with_the_largest_ids(lab, tmp_path):
    path = tmp_path / "edges.csv.gz"
    path.write_bytes(gzip.compress(f"follower,followee\n0,{2**63 - 1}\n{2**63 - 1},7\n".encode()))
    said = []
    load_graph(lab.conn, read_graph(path), said.append)
    assert contents(lab)[1] == [(0, 2**63 - 1), (2**63 - 1, 7)] and len(said) >= 3
    with pytest.raises(BadInput, match="edges"):
        read_graph(tmp_path / "edges.none")


def test_facebook(lab):
    """The real graph of the issue: 4,039 users, 88,234 undirected edges."""
    g = read_graph(shared_file("facebook_combined.txt.gz"))
    assert load_graph(lab.conn, g) == {"users": 4_039, "follows": 176_468, "new_users": 4_039, "new_follows": 176_468}
    assert lab.conn.execute(
        "select (select count(*) from users), (select count(*) from follows), (select count(*) from user_activity)"
    ).fetchone() == (4_039, 176_468, 4_039)
    assert counts_are_sqls(lab) == 4_039
    assert lab.conn.execute(
        "select count(*) from follows f where not exists (select from follows b where "
        "b.follower_id = f.followee_id and b.followee_id = f.follower_id)"
    ).fetchone() == (0,)
    assert max((follows.followers(lab.conn, u), u) for u in (107, 1684, 0)) == (1_045, 107)  # the ego nets' centres

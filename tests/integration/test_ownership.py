"""What is not ours is never written to nor removed: a name proves nothing."""
import psycopg
import pytest
from conftest import fresh_lab

from feedlab import db
from feedlab.config import Settings, settings
from feedlab.errors import BadInput, Conflict
from feedlab.lab import demo
from feedlab.lab.session import open_lab, wipe


@pytest.fixture
def theirs(addresses):
    """A schema of somebody else's, with a table in it, in the same database."""
    with psycopg.connect(addresses.postgres_url, autocommit=True) as conn:
        conn.execute("drop schema if exists t_theirs cascade; create schema t_theirs; create table t_theirs.orders as select 1 x")
        yield conn
        conn.execute("drop schema t_theirs cascade")


def test_a_schema_of_somebody_else_is_refused_and_stays(addresses, theirs):
    s = Settings(namespace="t_theirs")
    with pytest.raises(BadInput, match="feedlab did not make"):
        with open_lab(s, addresses):
            pass
    with pytest.raises(BadInput, match="feedlab did not make"):
        demo.run(s, addresses, posts=1, threshold=5)
    assert theirs.execute("select x from t_theirs.orders").fetchone() == (1,)
    assert theirs.execute("select count(*) from pg_class c join pg_namespace n on n.oid = relnamespace "
                          "where nspname = 't_theirs'").fetchone() == (1,)


def test_wipe_asks_too(addresses, theirs):
    with fresh_lab(addresses, "t_ours") as lab:
        lab.conn.execute("comment on schema t_ours is null")
        with pytest.raises(BadInput, match="nothing was removed"):
            wipe(lab)
        assert lab.conn.execute("select count(*) from users").fetchone() == (0,)
        lab.conn.execute(f"comment on schema t_ours is '{db.MARK}'")


@pytest.mark.parametrize("name", ["public", "information_schema", "pg_x", "A", ""])
def test_reserved_and_odd_names(name, monkeypatch):
    if name == "":
        monkeypatch.setenv("FEEDLAB_NAMESPACE", "")
        assert settings().namespace == "feedlab"       # an empty variable is an unset one
        return
    with pytest.raises(BadInput):
        settings(namespace=name)


def test_one_demo_at_a_time_in_a_namespace(addresses):
    s = Settings(namespace="t_alone")
    with demo._alone(s, addresses), pytest.raises(Conflict, match="another demo runs"):
        demo.run(s, addresses, posts=1, threshold=5)

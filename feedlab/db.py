"""PostgreSQL: connect, apply the schema, read and move the live knobs.

Connections are in autocommit: a single statement is its own transaction, several go into `with conn.transaction():`.
"""
from importlib.resources import files

import psycopg
from psycopg import sql

from .addresses import masked
from .config import Settings
from .core.snowflake import NODES, Snowflake
from .errors import BadInput, EngineDown

SCHEMA_VERSION = 1
MARK = "made by feedlab"      # the comment on each schema that we made
KNOBS = {"threshold": (0, 2**62), "feed_max": (1, 100_000)}       # name -> smallest and largest value

Connection = psycopg.Connection
AWAY = (psycopg.OperationalError, psycopg.InterfaceError)
"""What psycopg raises when PostgreSQL is gone or going."""


def connect(url: str, namespace: str, application: str = "feedlab", timeout_s: int = 5) -> Connection:
    """A connection whose search_path is the namespace. Raises EngineDown, with the address but never the password."""
    try:
        return psycopg.connect(url, autocommit=True, connect_timeout=timeout_s, application_name=application,
                               options=f"-c search_path={namespace} -c idle_in_transaction_session_timeout=30s")
    except psycopg.OperationalError as e:
        raise EngineDown(f"PostgreSQL does not answer: {_reason(e, url)}. "
                         "`feedlab doctor` says what is wrong, `feedlab up` starts it.") from None
    except psycopg.Error as e:
        raise BadInput(f"the PostgreSQL URL cannot be used: {_reason(e, url)}. Its form is "
                       "postgresql://user:password@host:port/database") from None


def _reason(e: Exception, url: str) -> str:
    """The first line of what libpq says (it has host, port and cause), without the password."""
    return masked((str(e).strip().splitlines() or ["no reason given"])[0].strip().rstrip("."), url)


def ours(conn: Connection, namespace: str) -> bool:
    """Whether the schema may be used, and removed: it carries our mark, or is empty, or is not there. A name proves nothing: in
    somebody's own database `demo` may be theirs."""
    return conn.execute("""
        select not exists (select from pg_namespace n where nspname = %s
            and obj_description(oid, 'pg_namespace') is distinct from %s
            and exists (select from pg_class where relnamespace = n.oid))""", (namespace, MARK)).fetchone()[0]


def apply_schema(conn: Connection, settings: Settings) -> None:
    """Create what is missing in the namespace; harmless when repeated and when two do it at once.

    Raises BadInput when the tables were made by a newer feedlab.
    """
    ddl = files("feedlab").joinpath("schema.sql").read_text()
    with conn.transaction():
        conn.execute("select pg_advisory_xact_lock(hashtext(%s))", (f"feedlab schema {settings.namespace}",))
        if not ours(conn, settings.namespace):
            raise BadInput(f"there is a schema {settings.namespace} that feedlab did not make, and it is not empty. "
                           "Choose another namespace (--namespace NAME, or FEEDLAB_NAMESPACE).")
        name = sql.Identifier(settings.namespace)
        conn.execute(sql.SQL("create schema if not exists {}").format(name))
        conn.execute(sql.SQL("comment on schema {} is {}").format(name, sql.Literal(MARK)))
        conn.execute(sql.SQL("set search_path to {}").format(sql.Identifier(settings.namespace)))
        # the version first: over tables of another version our DDL would fail with something less readable
        conn.execute("create table if not exists schema_version (version int not null)")
        row = conn.execute("select version from schema_version").fetchone()
        if row is None:
            conn.execute("insert into schema_version values (%s)", (SCHEMA_VERSION,))
        elif row[0] != SCHEMA_VERSION:
            raise BadInput(f"the tables in schema {settings.namespace} are of version {row[0]}, this feedlab knows "
                           f"{SCHEMA_VERSION}. Use the feedlab that made them, or another FEEDLAB_NAMESPACE.")
        conn.execute(ddl)
        for name in KNOBS:
            conn.execute("insert into knobs values (%s, %s) on conflict do nothing", (name, getattr(settings, name)))


def knobs(conn: Connection) -> dict[str, int]:
    """The live values of threshold (followers) and feed_max (entries)."""
    return dict(conn.execute("select name, value from knobs").fetchall())


def set_knobs(conn: Connection, **values: int) -> None:
    """Move knobs; the running consumer sees them at its next batch. Raises BadInput for an unknown name or a value too small.
    """
    for name, value in values.items():
        if name not in KNOBS:
            raise BadInput(f"there is no knob {name!r}; knobs are {', '.join(KNOBS)}")
        least, most = KNOBS[name]
        if type(value) is not int or not least <= value <= most:
            raise BadInput(f"{name} must be a whole number from {least} to {most}, got {value!r}")
    with conn.transaction():
        for name, value in values.items():
            conn.execute("insert into knobs values (%s, %s) on conflict (name) do update set value = excluded.value",
                         (name, value))


def ids(conn: Connection, **options) -> Snowflake:
    """An id generator on a node number of its own (of 1,024, then round again)."""
    (node,) = conn.execute("select nextval('snowflake_node') %% %s", (NODES,)).fetchone()
    return Snowflake(node, **options)

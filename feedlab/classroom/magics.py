"""`%%sql` and `%%redis` for notebooks, on the open book's own namespace. `%load_ext feedlab` registers them.

    %%sql --explain          autocommit, at most 20 rows shown; --explain shows the plan instead
    %%redis                  one command a line
"""
import shlex

from ..errors import BadInput
from .in_place import quiet_errors

ROWS = 20


def register(shell) -> None:
    """What `%load_ext feedlab` does: the two magics, and engine errors as one line in place."""
    shell.register_magic_function(sql, "cell", "sql")
    shell.register_magic_function(redis, "cell", "redis")
    quiet_errors(shell)


def _lab():
    from . import book
    if book.current is None:
        raise BadInput("no book is open: run the cell with book.begin(...) first.")
    return book.current.open()


def sql(line: str, cell: str):
    """Run one SQL statement in the notebook's schema and show its rows (pandas), or with --explain its plan."""
    import pandas as pd
    explain = "--explain" in line.split()
    unknown = [w for w in line.split() if w != "--explain"]
    if unknown:
        raise BadInput(f"%%sql knows --explain, not {' '.join(unknown)}.")
    lab, statement = _lab(), cell.strip().rstrip(";")
    if not statement:
        raise BadInput("the cell has no SQL statement in it.")
    import psycopg
    try:
        found = lab.conn.execute(f"explain (analyze, buffers, costs off, timing off, summary off) {statement}" if explain else statement)
    except psycopg.OperationalError:
        raise
    except psycopg.Error as e:
        raise BadInput(f"PostgreSQL refuses: {e.diag.message_primary or str(e).splitlines()[0]}.") from None
    if found.description is None:
        print(f"{found.statusmessage}")
        return None
    names, rows = [c.name for c in found.description], found.fetchmany(ROWS + 1)
    if explain:
        print("\n".join(r[0] for r in [*rows, *found.fetchall()]))
        return None
    if len(rows) > ROWS:
        print(f"the first {ROWS} rows of {found.rowcount:,}")
    return pd.DataFrame(rows[:ROWS], columns=names) if rows else print("no rows")


def redis(line: str, cell: str) -> None:
    """Run Redis commands, one a line, and print each answer. Keys are given whole, with the namespace."""
    from redis.exceptions import ResponseError
    lab = _lab()
    commands = [shlex.split(c, comments=True) for c in cell.splitlines()]
    for words in filter(None, commands):
        if words[0].upper() in ("FLUSHALL", "FLUSHDB", "SHUTDOWN", "CONFIG", "SWAPDB"):
            raise BadInput(f"{words[0].upper()} would touch more than this notebook's own keys.")
        try:
            answer = lab.redis.execute_command(*words)
        except ResponseError as e:
            raise BadInput(f"Redis refuses {' '.join(words)}: {e}.") from None
        print(f"> {' '.join(words)}\n{_answer(answer)}")


def _answer(answer) -> str:
    if isinstance(answer, (list, tuple)):
        return "\n".join(f"{i}) {_answer(a)}" for i, a in enumerate(answer[:ROWS], 1)) or "(empty)"
    return "(nil)" if answer is None else str(answer)

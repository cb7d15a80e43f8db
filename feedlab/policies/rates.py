"""Who writes and reads how much: an activity table, or a trace of timestamps; and when, for bursts."""
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.cost import DAY
from ..core.policy import Rates
from ..errors import BadInput
from . import graphs
from .graphs import text

USER = ("user", "user_id", "id")
POSTS = ("posts_a_day", "posts_per_day", "posts")
READS = ("reads_a_day", "reads_per_day", "reads")
SEEN = ("away_days", "days_since_last_seen", "last_seen_days")


def read(path, default_posts: float = 0.5, default_reads: float = 10.0) -> Rates:
    """An activity table: a CSV (packed or not) with the columns user, posts_a_day, reads_a_day and perhaps away_days (days since the user
    was last seen); users that are not in it have the defaults. Raises BadInput: file, line, reason."""
    path = Path(path).expanduser()
    top = graphs._top(path, graphs._magic(path))
    data = [i for i, line in enumerate(top) if line.strip() and not text._COMMENT.match(line.encode())]
    names = graphs._names(top[data[0]]) if data else []
    at = [next((names.index(n) for n in known if n in names), None) for known in (USER, POSTS, READS, SEEN)]
    if None in at[:3]:
        raise BadInput(f"{path}, line {data[0] + 1 if data else 1}: expected a header with user, posts_a_day and reads_a_day, "
                       f"got {text._short(top[data[0]]) if data else 'nothing'}.")
    sep = next((s for s in (";", ",", "\t") if s in top[data[0]]), " ")
    kinds = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(names)))
    columns = ", ".join(f"try_cast(c{i} as {'bigint' if k == 0 else 'double'})" for k, i in enumerate(at) if i is not None)
    labels = [names[i] for i in at if i is not None]
    source = (f"read_csv(?, auto_detect=false, header=false, skip={graphs._skip(top, data[0] + 1)}, delim='{sep}', quote='\"', "
              f"comment='#', max_line_size={text.LINE_MAX}, columns={{{kinds}}})")
    with graphs._duckdb() as db:
        rows = graphs._run(db, path, f"select {columns} from {source}", str(path)).fetchnumpy()
    table = [np.ma.filled(c.astype(float) if k else c, np.nan if k else -1) for k, c in enumerate(rows.values())]
    if not len(table[0]):
        raise BadInput(f"{path} has a header, and no user below it.")
    for name, column in zip(labels, table, strict=True):
        wrong = np.flatnonzero(~(np.isfinite(column) & (column >= 0)))
        if len(wrong):
            what = "a user id (a whole number from 0 to 2^63-1)" if name in USER else "a number that is not negative"
            raise BadInput(f"{path}, row {wrong[0] + 1} below the header: {name} is not {what}.")
    users, first = np.unique(table[0], return_index=True)
    if len(users) < len(table[0]):
        again = np.setdiff1d(np.arange(len(table[0])), first)[0]
        raise BadInput(f"{path}, row {again + 1} below the header: user {int(table[0][again])} is there twice.")
    return Rates(users.astype(np.int64), *(c[first] for c in table[1:3]), table[3][first] if len(table) > 3 else None,
                 default_posts, default_reads)


@dataclass(frozen=True, eq=False)
class Trace:
    """Acts in time: `at` seconds since the first, float64 sorted; `user` int64, who acted."""
    at: np.ndarray
    user: np.ndarray
    source: str

    @property
    def seconds(self) -> float:
        return float(self.at[-1] - self.at[0]) + 1

    def peak(self, per_s: float = 60.0) -> float:
        """The busiest minute over the mean minute of the whole trace."""
        counts = np.bincount((self.at // per_s).astype(np.int64))
        return float(counts.max() / counts.mean())

    def compressed(self, by: float) -> "Trace":
        """The same acts `by` times as fast."""
        return Trace(self.at / by, self.user, f"{self.source}, {by:g} times as fast")

    def between(self, start_s: float, end_s: float) -> "Trace":
        keep = (self.at >= start_s) & (self.at < end_s)
        return Trace(self.at[keep] - start_s, self.user[keep], self.source)

    def rates(self) -> Rates:
        """Acts a day by user, as posts; reads stay at the default."""
        users, counts = np.unique(self.user, return_counts=True)
        return Rates(users, counts * DAY / self.seconds, np.full(len(users), 10.0), None, 0.0)


def read_trace(path) -> Trace:
    """Lines that hold a user in the first column and epoch seconds in the last number of nine to eleven digits, such as the Higgs Twitter
    trace (`userA userB unix_s kind`), or one epoch second a line. Raises BadInput: file, line, reason."""
    path = Path(path).expanduser()
    pattern = re.compile(rb"^(?:(\d{1,18})[ ,\t](?:[^\n]*?[ ,\t])?)?(\d{9,11}(?:\.\d+)?)(?:[ ,\t][A-Za-z]+)?\r?$", re.M)
    users, times = [], []
    graphs._magic(path)
    for number, block in text._blocks(path):
        found = pattern.findall(block)
        if len(found) != block.count(b"\n"):          # comments, empty lines, a header, or something wrong
            for n, line in enumerate(block.split(b"\n"), number):
                if line.strip() and line[:1] not in b"#%" and n > 1 and not pattern.match(line):
                    raise BadInput(f"{path}, line {n}: no user and epoch second found.")
        users += [u or b"0" for u, _ in found]
        times += [t for _, t in found]
    if not times:
        raise BadInput(f"{path} holds no timestamps (epoch seconds).")
    at, user = np.array(times).astype(float), np.array(users).astype(np.int64)
    order = np.argsort(at, kind="stable")
    return Trace(at[order] - at[order[0]], user[order], path.name)

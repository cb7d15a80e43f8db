"""Follow graphs: read one from a file, say back what was understood, load it into PostgreSQL.

    graph = read_graph("facebook_combined.txt.gz")
    print(graph.description())
    load_graph(conn, graph)

A file is an edge list: two whole numbers a line, quoted or not, separated by spaces, tabs, a comma or a semicolon,
gzipped or not, with or without a header, `#` and `%` lines being comments. Clean text is recognised by one regular expression per 16 MB block and
converted by pandas (1 M edges in 1.0 to 1.6 s on one core, 140 bytes an edge at the peak); only what does not match is
walked line by line, to name the bad line.
"""
import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import BadInput

if TYPE_CHECKING:
    from psycopg import Connection

BLOCK = 16 << 20    # bytes of text held at once
LINE_MAX = 1 << 20  # no edge needs a longer line; whatever has one is another kind of file
ID_MAX = 2**63 - 1  # bigint
# below this share of edges listed both ways, these are strays of an undirected list (wiki-Vote, directed, has 5.6 %)
BOTH_WAYS = 0.01

# the names a header may use; the first two of each row say "directed" by themselves
FOLLOWER = ("follower", "follower_id", "source", "src", "from", "fromnodeid", "from_node_id", "u")
FOLLOWEE = ("followee", "followee_id", "target", "dst", "to", "tonodeid", "to_node_id", "v")

_DIGITS = rb"(?:\d{1,18}|[0-8]\d{18})"
_ID = rb'(?:%b|"%b")' % (_DIGITS, _DIGITS)  # surely below 2^63; the few ids above 9 * 10^18 are read by the slow way
_PLAIN = rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBER = rb'(?:%b|"%b")' % (_PLAIN, _PLAIN)
_COMMENT = re.compile(rb"[ \t]*[#%]")
_NO_ROW = re.compile(rb"^[ \t]*(?:[#%].*)?\r?\n", re.M)
_ARCHIVES = {b"PK\x03\x04": "a zip archive", b"BZh": "bzip2-compressed", b"\xfd7zXZ": "xz-compressed",
             b"\x28\xb5\x2f\xfd": "zstd-compressed", b"PAR1": "a Parquet file", b"\x1f\x8b": "gzipped twice"}


@dataclass(frozen=True, eq=False)
class Graph:
    """Who follows whom, from `read_graph` or `from_edges`: rows are unique, sorted by follower, then followee."""

    follower: np.ndarray  # int64 (follows,): user id of the one who follows
    followee: np.ndarray  # int64 (follows,): user id of the one followed
    users: np.ndarray     # int64 (users,): every id of the file, sorted; a user may follow nobody or have no follower
    directed: bool        # False: the file listed edges, each became two follows
    source: str           # file name or what made the graph
    form: str = ""        # "gzip, columns separated by a space, no header, no comments"
    why: str = ""         # why it was taken as directed or undirected
    dropped: dict = field(default_factory=lambda: {"self_loops": 0, "repeats": 0})

    @cached_property
    def followers(self) -> np.ndarray:
        """Followers of each user, int64, aligned with `users`."""
        return np.bincount(np.searchsorted(self.users, self.followee), minlength=len(self.users))

    @cached_property
    def followees(self) -> np.ndarray:
        """How many each user follows, int64, aligned with `users`."""
        return np.bincount(np.searchsorted(self.users, self.follower), minlength=len(self.users))

    def description(self) -> str:
        """One sentence: the format that was understood, directed or not and why, and the counts."""
        low, high = int(self.users[0]), int(self.users[-1])
        unused = high - low + 1 - len(self.users)
        gaps = _count(unused, "gap") if unused else "no gaps"
        kind = "directed" if self.directed else "undirected, each edge is two follows"
        return (f"{self.source}: {self.form + '; ' if self.form else ''}{kind}{f' ({self.why})' if self.why else ''}; "
                f"{_count(len(self.users), 'user')}, {_count(len(self.follower), 'follow')}, "
                f"{_count(self.dropped['self_loops'], 'self loop')} and {_count(self.dropped['repeats'], 'repeat')} "
                f"dropped, {gaps} in the ids {low:,} to {high:,}, "
                f"largest follower count {int(self.followers.max()):,}.")


def from_edges(u, v, directed: bool | None, source: str, form: str = "", why: str = "") -> Graph:
    """A Graph of the edges (u[i], v[i]), int64 arrays of equal length with at least one edge: u follows v.

    Self loops and repeats are dropped and counted. `directed=None` decides by the edges: if at least 1 % are listed
    both ways it is a listing of follows, else of undirected edges.
    """
    u, v = np.asarray(u, np.int64), np.asarray(v, np.int64)
    users, compact = np.unique(np.concatenate([u, v]), return_inverse=True)
    n, a, b = len(users), compact[:len(u)], compact[len(u):]
    keep = a != b
    rows = int(keep.sum())
    edges = _unique(a[keep] * n + b[keep])  # one number an edge: n^2 < 2^63 as long as n < 3 * 10^9
    if directed is None:
        directed, why = _directed_by_edges(edges, n)
    if not directed:
        a, b = edges // n, edges % n
        once = _unique(np.minimum(a, b) * n + np.maximum(a, b))
        dropped = rows - len(once)
        edges = np.sort(np.concatenate([once, once % n * n + once // n]))
    else:
        dropped = rows - len(edges)
    return Graph(users[edges // n], users[edges % n], users, directed, source, form, why,
                 {"self_loops": len(u) - rows, "repeats": dropped})


def _unique(x: np.ndarray) -> np.ndarray:
    """Sorted unique values. numpy 2.4's np.unique hashes: 1.9 s for 2 M distinct numbers, this sort 0.05 s."""
    x = np.sort(x)
    return x[np.diff(x, prepend=x[0] - 1) != 0] if len(x) else x


def _directed_by_edges(edges: np.ndarray, n: int) -> tuple[bool, str]:
    """`edges`: sorted unique follower * n + followee. Returns (directed?, why)."""
    if not len(edges):
        return True, "there are only self loops"
    a, b = edges // n, edges % n
    if (a < b).all() or (a > b).all():
        return False, f"every edge is listed once, {'smaller' if a[0] < b[0] else 'larger'} id first"
    both = 2 - len(_unique(np.concatenate([edges, b * n + a]))) / len(edges)  # what the turned edges do not add
    if both >= BOTH_WAYS:
        return True, f"{both:.1%} of the edges are listed both ways"
    return False, f"{both:.1%} of the edges are listed both ways, below {BOTH_WAYS:.0%}" if both else \
        "no edge is listed both ways"


# ---------------------------------------------------------------------------------------------------- reading

def read_graph(path, directed: bool | None = None) -> Graph:
    """Read the edge list at `path`; column 1 follows column 2, unless a header names follower and followee.

    `directed`: True, False, or None to decide: first by the word in a comment or the header ("undirected" wins), then
    by a header that names follower and followee, else by the edges (see `from_edges`).
    Raises BadInput with one sentence: what is wrong with the file, and at a bad line the file, line number and reason.
    """
    path = Path(path).expanduser()
    form, parts = None, []
    comments, text = 0, ""  # how many leading comments, and what they and the header say
    for number, block in _blocks(path):
        start = 0
        while form is None and start < len(block):  # the top of the file: comments, perhaps a header, the first row
            end = block.index(b"\n", start) + 1
            line = block[start:end]
            if _COMMENT.match(line):
                comments += 1
                text += line.decode(errors="replace")
                if line.startswith(b"%%MatrixMarket"):
                    raise BadInput(f"{path} is a Matrix Market file: delete the lines that start with % and the line "
                                   f"of sizes below them, then it is an edge list.")
            elif line.strip():
                form = _at(path, number, _Form, line)
                if not form.header:
                    break  # the line is a row itself
            start, number = end, number + 1
        if form is not None:
            parts.append(_rows(path, number, block[start:], form))
    u = np.concatenate([p[0] for p in parts]) if parts else np.empty(0, np.int64)
    if not len(u):
        raise BadInput(f"{path} has no edges: expected lines such as '1 2' (user 1 follows user 2).")
    v = np.concatenate([p[1] for p in parts])
    why = "as asked" if directed is not None else ""
    if directed is None:
        said = f"{text} {' '.join(form.header).replace('_', ' ')}".lower()
        word = next((w for w in ("undirected", "directed") if re.search(rf"\b{w}\b", said)), None)
        if word:
            directed, why = word == "directed", f"its {'comment' if word in text.lower() else 'header'} says {word}"
        elif form.names[0] in FOLLOWER[:2] and form.names[1] in FOLLOWEE[:2]:
            directed, why = True, "its header names follower and followee"
    packed = "gzip, " if _is_gzip(path) else ""
    notes = f"{_count(comments, 'comment line')} at the top" if comments else "no comments at the top"
    return from_edges(u, v, directed, path.name, f"{packed}{form}, {notes}", why)


class _Form:
    """What the first line that is no comment tells: separator, header, number of columns, which two are the ids."""

    def __init__(self, line: bytes):
        """Raises ValueError with the reason when no edge list starts with `line`."""
        text = _text(line)
        self.sep = next((s for s in (";", ",", "\t") if s in text), " ")
        cells = self.split(text)
        names = [c.strip("\"' ").lower().replace(" ", "_").replace("-", "_") for c in cells]
        self.header = [] if any(re.fullmatch(_NUMBER, c.encode()) for c in cells) else names
        if self.header and (odd := next((c for c in names if c.isdecimal()), None)):
            raise ValueError(f"{_short(odd)} is not a user id (a whole number from 0 to 2^63-1, in the digits 0 to 9)")
        self.columns = len(cells)
        if self.columns < 2:
            raise ValueError("found one column, expected two user ids separated by a space, a tab, a comma or a "
                             "semicolon")
        found = [[i for i, name in enumerate(self.header) if name in known] for known in (FOLLOWER, FOLLOWEE)]
        self.named = all(found)
        self.at = (found[0][0], found[1][0]) if self.named else (0, 1)
        self.names = [names[i] for i in self.at]
        gap = rb"[ \t]*%b[ \t]*" % self.sep.encode() if self.sep in ",;" else rb"[ \t]+"
        row = rb"[ \t]*" + gap.join(_ID if i in self.at else _NUMBER for i in range(self.columns)) + rb"[ \t]*\r?\n"
        self.clean = re.compile(rb"(?:" + row + rb"|[ \t]*\r?\n|[ \t]*[#%][^\n]*\n)*+")  # possessive: constant memory

    def split(self, text: str) -> list[str]:
        """The cells of a line. Tabs and spaces both separate where there is no comma or semicolon, except in a header with tabs."""
        if self.sep in ",;":
            return [c.strip() for c in text.split(self.sep)]
        named = self.sep == "\t" and not any(c.isdigit() for c in text)
        return [c.strip() for c in text.strip().split("\t")] if named else text.split()

    def row(self, line: bytes) -> tuple[int, int]:
        """(follower, followee) of one line. Raises ValueError with the reason."""
        cells = self.split(_text(line))
        if len(cells) != self.columns:
            raise ValueError(f"{_count(len(cells), 'column')}, expected {self.columns} as in the first line")
        for i, cell in enumerate(cells):
            if i not in self.at and not re.fullmatch(_NUMBER, cell.encode()):
                raise ValueError(f"{_short(cell)} in column {i + 1} is not a number (columns beyond the two ids are "
                                 f"ignored, but must be numbers)")
        ids = [_unquoted(cells[i]) for i in self.at]
        for cell in ids:
            if not (cell.isascii() and cell.isdigit() and len(cell.lstrip("0")) < 20 and int(cell) <= ID_MAX):
                raise ValueError(f"{_short(cell)} is not a user id (a whole number from 0 to 2^63-1)")
        return int(ids[0]), int(ids[1])

    def __str__(self) -> str:
        sep = {",": "a comma", ";": "a semicolon", "\t": "a tab", " ": "a space"}[self.sep]
        header = f"header {self.sep.join(self.header)!r}" if self.header else "no header"
        order = f" (column {self.at[0] + 1} follows column {self.at[1] + 1})" if self.at != (0, 1) else ""
        more = f", {_count(self.columns - 2, 'more column')} ignored" if self.columns > 2 else ""
        return f"columns separated by {sep}, {header}{order}{more}"


def _rows(path: Path, first_line: int, block: bytes, form: _Form) -> tuple[np.ndarray, np.ndarray]:
    """The two id columns of a block of whole lines, int64. Raises BadInput naming the first bad line."""
    good = form.clean.match(block).end()
    u, v = _clean_rows(block[:good], form)
    if good == len(block):
        return u, v
    first_line += block.count(b"\n", 0, good)
    rows = [_at(path, i, form.row, line) for i, line in enumerate(block[good:].split(b"\n"), first_line)
            if line.strip() and not _COMMENT.match(line)]
    odd = np.array(rows, np.int64).reshape(-1, 2)  # right after all: ids above 9 * 10^18, leading zeros
    return np.concatenate([u, odd[:, 0]]), np.concatenate([v, odd[:, 1]])


def _clean_rows(block: bytes, form: _Form) -> tuple[np.ndarray, np.ndarray]:
    """The same for a block that `form.clean` matches."""
    if any(mark in block for mark in (b"#", b"%", b"\n\n", b"\n\r", b"\n ", b"\n\t")) or block[:1] in b"\r\n \t":
        block = _NO_ROW.sub(b"", block)
    if not block:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    from pandas import read_csv  # here, since its import takes as long as reading 1 M edges

    block = block.replace(b'"', b"")  # the expression has seen that they come in pairs, around whole numbers
    table = read_csv(BytesIO(block), sep=form.sep if form.sep in ",;" else r"\s+", header=None, usecols=list(form.at),
                     dtype=np.int64, engine="c", quoting=3)
    return table[form.at[0]].to_numpy(), table[form.at[1]].to_numpy()


def _blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number of its first line, block of whole lines) until the end of the file. Raises BadInput."""
    number, rest, seen = 1, b"", False
    try:
        if path.is_dir():
            raise BadInput(f"{path} is a folder, expected a file with one follow a line.")
        with open(path, "rb") as raw:
            stream = gzip.GzipFile(fileobj=raw) if _is_gzip(path) else raw
            while chunk := stream.read(BLOCK):
                if not seen:
                    chunk = _first(path, chunk)
                seen = True
                rest += chunk
                cut = rest.rfind(b"\n") + 1
                if cut:
                    yield number, _short_lines(path, number, rest[:cut])
                    number += rest.count(b"\n", 0, cut)
                    rest = rest[cut:]
                if len(rest) > LINE_MAX:
                    break
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist: check the name.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as e:
        raise BadInput(f"{path} is a damaged or cut-off gzip file ({e}): fetch it again.") from None
    except (OSError, ValueError) as e:  # ValueError: a name with a NUL
        raise BadInput(f"{path} cannot be read: {getattr(e, 'strerror', None) or e}.") from None
    if not seen:
        raise BadInput(f"{path} is empty, expected a file with one follow a line.")
    if rest:
        yield number, _short_lines(path, number, rest + b"\n")


def _first(path: Path, chunk: bytes) -> bytes:
    """The first chunk without a byte order mark. Raises BadInput when this is no text."""
    packed = next((name for magic, name in _ARCHIVES.items() if chunk.startswith(magic)), None)
    if packed:
        raise BadInput(f"{path} is {packed}: unpack it to text (or text in .gz) first.")
    if chunk.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BadInput(f"{path} is UTF-16 text: save it as UTF-8.")
    if re.search(rb"[\x00-\x08\x0e-\x1f]", chunk[:1 << 16]):
        raise BadInput(f"{path} is a binary file, expected text with one follow a line.")
    return chunk.removeprefix(b"\xef\xbb\xbf")


def _short_lines(path: Path, number: int, block: bytes) -> bytes:
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
    long = np.flatnonzero(np.diff(ends, prepend=-1) > LINE_MAX + 1)
    if len(long):
        raise BadInput(f"{path}, line {number + int(long[0])}: longer than 1 MB, this is no edge list.")
    return block


def _is_gzip(path: Path) -> bool:
    """By the magic bytes, since names lie."""
    with open(path, "rb") as f:
        return f.read(2) == b"\x1f\x8b"


def _at(path: Path, number: int, parse: Callable, line: bytes):
    """parse(line), a ValueError becoming a BadInput that names file and line."""
    try:
        return parse(line)
    except ValueError as e:
        raise BadInput(f"{path}, line {number}: {e}.") from None


def _text(line: bytes) -> str:
    try:
        return line.decode().strip("\r\n")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None


def _unquoted(cell: str) -> str:
    return cell[1:-1] if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


# ---------------------------------------------------------------------------------------------------- loading

# what is there already stays as it is, so that loading twice, or two loads at once, change nothing (all in id order: no
# deadlock); only follows that were really added are counted
_LOAD_USERS = """
    with added as (insert into users (id, name) select id, 'user ' || id from load_users order by id
                   on conflict do nothing returning 1)
    select count(*) from added"""
_LOAD_ACTIVITY = """
    insert into user_activity (user_id, last_seen_at) select id, now() from load_users order by id
    on conflict do nothing"""
_LOAD_FOLLOWS = """
    with added as (insert into follows (follower_id, followee_id) select follower_id, followee_id from load_follows
                   order by 1, 2 on conflict do nothing returning followee_id),
         counted as (insert into follower_counts (user_id, shard, n)
                     select followee_id, 0, count(*) from added group by 1 order by 1
                     on conflict (user_id, shard) do update set n = follower_counts.n + excluded.n)
    select count(*) from added"""


def load_graph(conn: "Connection", graph: Graph, progress: Callable[[str], None] | None = None) -> dict[str, int]:
    """COPY the graph into users, user_activity, follows and follower_counts, in one transaction.

    The tables are those of the schema that the connection's search_path selects. What exists is kept, counts stay
    exact.
    New users count as seen now. No event is sent: feeds that exist in Redis do not learn of new follows, drop them.
    `progress` is called with a line of text before each step.
    Returns {"users", "follows"} of the graph and {"new_users", "new_follows"} that were added.
    """
    say = progress or (lambda text: None)
    with conn.transaction():
        conn.execute("create temp table load_users (id bigint) on commit drop")
        conn.execute("create temp table load_follows (follower_id bigint, followee_id bigint) on commit drop")
        say(f"sending {len(graph.users):,} users and {len(graph.follower):,} follows")
        _copy(conn, "load_users", graph.users)
        _copy(conn, "load_follows", graph.follower, graph.followee)
        say("adding users")
        (new_users,) = conn.execute(_LOAD_USERS).fetchone()
        conn.execute(_LOAD_ACTIVITY)
        say("adding follows and follower counts")
        (new_follows,) = conn.execute(_LOAD_FOLLOWS).fetchone()
        for table in ("users", "user_activity", "follows", "follower_counts"):
            conn.execute(f"analyze {table}")  # else the first fan-out is planned for an empty table
        conn.execute("drop table load_users, load_follows")  # a caller's own transaction may load again
    return {"users": len(graph.users), "follows": len(graph.follower), "new_users": new_users,
            "new_follows": new_follows}


def _copy(conn: "Connection", table: str, *columns: np.ndarray) -> None:
    """COPY int64 columns in PostgreSQL's binary format (documentation of COPY, "Binary Format"): an int16 number of
    fields a row, then int32 length and value of each, big-endian. No Python call a row."""
    row = np.dtype([("fields", ">i2")] + [(f"{part}{i}", kind) for i in range(len(columns))
                                          for part, kind in (("length", ">i4"), ("value", ">i8"))])
    with conn.cursor().copy(f"copy {table} from stdin (format binary)") as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        for start in range(0, len(columns[0]), 1 << 18):  # 6 MB at a time
            part = [c[start:start + (1 << 18)] for c in columns]
            rows = np.empty(len(part[0]), row)
            rows["fields"] = len(columns)
            for i, values in enumerate(part):
                rows[f"length{i}"], rows[f"value{i}"] = 8, values
            copy.write(rows.tobytes())
        copy.write(b"\xff\xff")

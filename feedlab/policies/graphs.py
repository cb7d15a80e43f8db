"""Follow graphs for the policy lab, from files of many kinds or a preset, compact and without a limit on their size.

    follows = read("follows.parquet")            # Follows: every edge
    degrees = read("histogram.csv")              # Degrees: only how many authors have how many followers
    print(follows.description())

Text up to 64 MB goes through `feedlab.lab.graph`, which names the bad line and decides whether a list is directed; what is larger,
zst, Parquet or CSV with further columns of text goes through DuckDB, which spills to disk. An edge is 8 bytes here.
"""
import math
import re
import tempfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from ..core import cost
from ..errors import BadInput
from ..lab import graph as text

SMALL = 64 << 20          # bytes of text (a quarter of it gzipped) that are read in memory
LIBRARY_MAX = 256 << 20   # bytes of GML or GraphML: networkx takes about a kilobyte an edge
MEMORY = "2GB"            # of DuckDB, before it spills
CHUNK = 1 << 18           # edges at a time: what fits into a cache


@dataclass(frozen=True, eq=False)
class Follows:
    """Edges by position: `reader[i]` follows `author[i]`, both index `ids`. Unique, sorted by reader, then author; no self loops."""
    ids: np.ndarray        # int64 (users,), sorted user ids
    reader: np.ndarray     # int32 (follows,)
    author: np.ndarray     # int32 (follows,)
    source: str
    form: str = ""
    directed: bool = True
    why: str = ""
    dropped: dict = field(default_factory=lambda: {"self_loops": 0, "repeats": 0})

    @property
    def users(self) -> int:
        return len(self.ids)

    @cached_property
    def followers(self) -> np.ndarray:
        """Followers of each user, int64 (users,)."""
        return _counted(self.author, self.users)

    @cached_property
    def follows(self) -> np.ndarray:
        """How many each user follows, int64 (users,)."""
        return _counted(self.reader, self.users)

    def hubs(self, n: int = 3) -> list[tuple[int, int]]:
        """(id, followers) of the n largest."""
        top = np.argsort(self.followers, kind="stable")[::-1][:n]
        return [(int(self.ids[i]), int(self.followers[i])) for i in top]

    def understood(self) -> dict:
        """What was understood, for JSON."""
        low, high = int(self.ids[0]), int(self.ids[-1])
        return {"source": self.source, "form": self.form, "directed": self.directed, "why": self.why,
                "users": self.users, "follows": len(self.reader), **self.dropped,
                "unused_ids": high - low + 1 - self.users, "lowest_id": low, "highest_id": high,
                "mean_followers": len(self.reader) / self.users,
                "hubs": [{"id": i, "followers": n} for i, n in self.hubs()]}

    def description(self) -> str:
        u = self.understood()
        hubs = ", ".join(f"{i} ({n:,})" for i, n in self.hubs())
        kind = "directed" if self.directed else "undirected, each edge is two follows"
        return (f"{self.source}: {self.form + '; ' if self.form else ''}{kind}{f' ({self.why})' if self.why else ''}; "
                f"{self.users:,} users, {len(self.reader):,} follows, mean {u['mean_followers']:.1f} followers; "
                f"{u['self_loops']:,} self loops and {u['repeats']:,} repeats dropped, {u['unused_ids']:,} gaps in the ids "
                f"{u['lowest_id']:,} to {u['highest_id']:,}; largest by followers: {hubs}.")


@dataclass(frozen=True, eq=False)
class Degrees:
    """Only the followers of authors: `followers[i]` followers have `authors[i]` of them (float64, a share of an author is fine)."""
    followers: np.ndarray
    authors: np.ndarray
    source: str
    form: str = ""
    top: float = 0.0       # the largest author, where the last class stands for a tail

    @property
    def largest(self) -> float:
        return self.top or float(self.followers.max())

    @property
    def users(self) -> float:
        return float(self.authors.sum())

    @property
    def edges(self) -> float:
        return float(self.followers @ self.authors)

    def understood(self) -> dict:
        return {"source": self.source, "form": self.form, "users": self.users, "follows": self.edges,
                "mean_followers": self.edges / self.users, "largest": self.largest}

    def description(self) -> str:
        return (f"{self.source}: {self.form}; {self.users:,.0f} authors, mean {self.edges / self.users:,.1f} followers, "
                f"largest {self.largest:,.0f}.")


def _counted(positions: np.ndarray, n: int) -> np.ndarray:
    """bincount by blocks: numpy would make an int64 copy of all positions first."""
    out = np.zeros(n, np.int64)
    for i in range(0, len(positions), 1 << 24):
        out += np.bincount(positions[i:i + (1 << 24)], minlength=n)
    return out


def of(graph: text.Graph) -> Follows:
    """A Graph of feedlab.lab.graph as Follows."""
    return Follows(graph.users, np.searchsorted(graph.users, graph.follower).astype(np.int32),
                   np.searchsorted(graph.users, graph.followee).astype(np.int32), graph.source, graph.form, graph.directed, graph.why,
                   dict(graph.dropped))


def to_graph(follows: Follows) -> text.Graph:
    """And back, to load it into PostgreSQL."""
    return text.Graph(follows.ids[follows.reader], follows.ids[follows.author], follows.ids, follows.directed, follows.source,
                      follows.form, follows.why, dict(follows.dropped))


# --- files ------------------------------------------------------------------------------------------------------------------------

KINDS = ("auto", "edges", "histogram", "sample")


def read(path, directed: bool | None = None, kind: str = "auto", columns: tuple[str, str] | None = None) -> Follows | Degrees:
    """Read a graph or a preset's name. `kind`: edges, a histogram (followers,users), a sample (a follower count a line) or auto;
    `columns`: the names of the two id columns, follower first. Raises BadInput with one sentence: file, line, reason."""
    found = _read(path, directed, kind, columns)
    if isinstance(found, Follows) and not len(found.reader):
        raise BadInput(f"{path} has no edges: all its lines are users who follow themselves. A line is '1 2' (user 1 follows user 2).")
    return found


def _read(path, directed, kind, columns) -> Follows | Degrees:
    if kind not in KINDS:
        raise BadInput(f"a graph file is {', '.join(KINDS)}, not {kind!r}.")
    if str(path) in PRESETS:
        return preset(str(path))
    path = Path(path).expanduser()
    magic = _magic(path)
    if magic.startswith(b"PAR1"):
        return _parquet(path, directed, columns)
    name = path.name.lower().removesuffix(".gz")
    start = magic.lstrip()[:200].lower()
    if name.endswith((".graphml", ".gml")) or start.startswith((b"<?xml", b"<graphml", b"graph [")):
        return _library(path, directed, "graphml" if name.endswith("graphml") or start.startswith(b"<") else "gml")
    top = _top(path, magic)
    first = next((line for line in top if line.strip() and not text._COMMENT.match(line.encode())), None)
    if first is None:
        raise BadInput(f"{path} has no edges: expected lines such as '1 2' (user 1 follows user 2).")
    if top and top[0].startswith("%%MatrixMarket"):
        return _matrix_market(path, directed, top[0])
    if kind == "auto":
        kind = _kind_of(first)
    if kind == "histogram":
        return _histogram(path)
    if kind == "sample":
        return _sample(path)
    if not columns:
        _header_is_clear(path, first)
    zst = magic.startswith(b"\x28\xb5\x2f\xfd")
    size = path.stat().st_size
    large = size > (SMALL // 4 if magic.startswith(b"\x1f\x8b") else SMALL)
    if zst or columns or large or _has_text(first):
        return _by_duckdb(path, directed, columns, top)
    return of(text.read_graph(path, directed))


def _magic(path: Path) -> bytes:
    """The first bytes. Raises BadInput for what is no readable file with something in it."""
    try:
        if path.is_dir():
            raise BadInput(f"{path} is a folder, expected a file with one follow a line.")
        with open(path, "rb") as f:
            start = f.read(4096)
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist: check the name, or take a preset ({', '.join(PRESETS)}).") from None
    except (OSError, ValueError) as e:
        raise BadInput(f"{path} cannot be read: {getattr(e, 'strerror', None) or e}.") from None
    if not start:
        raise BadInput(f"{path} is empty, expected a file with one follow a line.")
    return start


def _top(path: Path, magic: bytes) -> list[str]:
    """The first lines of a text file, packed or not. Raises BadInput for a binary file or an endless line."""
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        with _duckdb() as db:
            rows = _run(db, path, "select line from read_csv(?, auto_detect=false, header=false, delim='\x01', quote='', escape='', "
                        f"max_line_size={text.LINE_MAX}, columns={{'line': 'VARCHAR'}}) limit 200", str(path)).fetchall()
        return [r[0] or "" for r in rows]
    for _, block in text._blocks(path):
        return block[:1 << 16].decode(errors="replace").splitlines()
    return []


def _names(line: str) -> list[str]:
    sep = next((s for s in (";", ",", "\t") if s in line), None)
    return [c.strip().strip("\"'").lower().replace(" ", "_").replace("-", "_") for c in line.strip().split(sep)]


DEGREE = ("followers", "degree", "in_degree", "indegree", "follower_count")
AUTHORS = ("users", "authors", "accounts", "count", "n")


def _kind_of(first: str) -> str:
    names = _names(first)
    if len(names) == 2 and names[0] in DEGREE and names[1] in AUTHORS:
        return "histogram"
    return "sample" if names[0] in DEGREE and len(names) == 1 else "edges"


def _header_is_clear(path: Path, first: str) -> None:
    """Raises BadInput for a header that leaves open which two columns are the ids."""
    names = _names(first)
    if len(names) < 2 or any(re.fullmatch(text._NUMBER, n.encode()) for n in names):
        return
    sides = [any(n in known for n in names) for known in (text.FOLLOWER, text.FOLLOWEE)]
    if sides[0] != sides[1] or len(names) > 2 and not any(sides):
        raise BadInput(f"{path}: the header {text._short(first.strip())} does not name both ids, such as follower,followee: "
                       "rename them, or name the two columns (--columns FOLLOWER,FOLLOWEE).")


def _has_text(header: str) -> bool:
    """A header with named columns beyond the two ids: they may hold text."""
    names = _names(header)
    return len(names) > 2 and any(n in text.FOLLOWER for n in names) and any(n in text.FOLLOWEE for n in names)


# --- DuckDB -------------------------------------------------------------------------------------------------------------------------

class _duckdb:
    """A database of its own in a temporary folder, where it spills."""

    def __enter__(self):
        import duckdb
        self.folder = tempfile.TemporaryDirectory(prefix="feedlab-")
        self.db = duckdb.connect(str(Path(self.folder.name) / "graph.duckdb"))
        self.db.execute(f"set memory_limit='{MEMORY}'; set temp_directory='{self.folder.name}'; set enable_progress_bar=false")
        return self.db

    def __exit__(self, *_):
        self.db.close()
        self.folder.cleanup()


def _run(db, path: Path, query: str, *values):
    """Run; what DuckDB says of the file becomes one sentence with the line."""
    import duckdb
    try:
        return db.execute(query, list(values))
    except duckdb.Error as e:
        said = str(e)
        line = re.search(r"CSV Error on Line: (\d+)", said)
        known = (r"Could not convert string \"[^\"]*\" to '\w+'", r"Expected Number of Columns: \d+ Found: \d+",
                 r"Maximum line size of \d+ bytes exceeded", r"value out of range[^\n]*", r"No magic bytes[^\n']*")
        reason = next((m[0] for m in (re.search(p, said) for p in known) if m), said.split("\n")[0][:160])
        if m := re.match(r"Could not convert string \"(.*)\" to 'BIGINT'", reason):
            reason = f"{text._short(m[1])} is not a user id (a whole number from 0 to 2^63-1)"
        where = f", line {line[1]}" if line else ""
        raise BadInput(f"{path}{where}: {reason}.") from None


def _by_duckdb(path: Path, directed: bool | None, columns, top: list[str]) -> Follows:
    """Text of any size, with or without further columns."""
    data = [i for i, line in enumerate(top) if line.strip() and not text._COMMENT.match(line.encode())]
    head = top[data[0]]
    try:
        form = text._Form((head + "\n").encode())
    except ValueError as e:
        raise BadInput(f"{path}, line {data[0] + 1}: {e}.") from None
    names = _names(head)
    at = form.at
    if columns:
        missing = [c for c in columns if c.lower() not in names]
        if missing:
            raise BadInput(f"{path} has no column {missing[0]!r}; its columns are {', '.join(names)}.")
        at = tuple(names.index(c.lower()) for c in columns)
        form.header, form.named = names, True
    skip = _skip(top, data[0] + bool(form.header))
    kinds = ", ".join(f"'c{i}': '{'BIGINT' if i in at else 'VARCHAR'}'" for i in range(len(names)))
    source = (f"read_csv(?, auto_detect=false, header=false, skip={skip}, delim='{form.sep}', quote='\"', comment='#', "
              f"max_line_size={text.LINE_MAX}, columns={{{kinds}}})")
    said = " ".join(top[:data[0]]).lower() + " " + " ".join(form.header).replace("_", " ")
    if directed is None:
        word = next((w for w in ("undirected", "directed") if re.search(rf"\b{w}\b", said)), None)
        why = f"it says {word}" if word else ""
        directed = None if word is None else word == "directed"
        if directed is None and form.header and (columns or names[at[0]] in text.FOLLOWER[:2]):
            directed, why = True, "its header names follower and followee"
    else:
        why = "as asked"
    with _duckdb() as db:
        _run(db, path, f"create table raw as select c{at[0]} a, c{at[1]} b from {source}", str(path))
        return _compact(db, path, f"{form}", directed, why)


def _skip(top: list[str], lines: int) -> int:
    """What DuckDB wants as `skip` to begin behind so many lines: it passes over # comments by itself, and does not count them."""
    return sum(not line.lstrip().startswith("#") for line in top[:lines])


def _parquet(path: Path, directed: bool | None, columns) -> Follows:
    with _duckdb() as db:
        described = _run(db, path, "describe select * from read_parquet(?)", str(path)).fetchall()
        kinds = {row[0]: row[1] for row in described}
        names = {n.lower(): n for n in kinds}
        if columns:
            pair = [names.get(c.lower()) for c in columns]
        else:
            pair = [next((names[n] for n in known if n in names), None) for known in (text.FOLLOWER, text.FOLLOWEE)]
            whole = [n for n, k in kinds.items() if k.endswith("INT") or k in ("INTEGER", "UINTEGER")]
            if None in pair and len(whole) == 2 == len(kinds):
                pair = whole
        if None in pair:
            raise BadInput(f"{path} has the columns {', '.join(kinds)}: name the two that hold the ids, follower first "
                           "(--columns FOLLOWER,FOLLOWEE).")
        a, b = ('"' + n.replace('"', '""') + '"' for n in pair)
        bad = _run(db, path, f"select n, a, b from (select row_number() over () n, {a} a, {b} b from read_parquet(?)) "
                   "where try_cast(a as bigint) is null or try_cast(b as bigint) is null limit 1", str(path)).fetchone()
        if bad:
            raise BadInput(f"{path}, row {bad[0]}: {bad[1]!r}, {bad[2]!r} are not two user ids (whole numbers from 0 to 2^63-1).")
        _run(db, path, f"create table raw as select {a}::bigint a, {b}::bigint b from read_parquet(?)", str(path))
        said = directed is not None
        named = pair[0].lower() in text.FOLLOWER[:2]
        return _compact(db, path, f"Parquet, columns {pair[0]} and {pair[1]}", True if directed is None and named else directed,
                        "as asked" if said else "its columns name follower and followee" if named else "")


def _compact(db, path: Path, form: str, directed: bool | None, why: str) -> Follows:
    """The table `raw` (a follows b) to Follows: ids to positions, once each, sorted; in DuckDB, which spills."""
    rows, loops, low, nothing = db.execute("select count(*), count(*) filter (where a = b), min(least(a, b)), "
                                           "count(*) filter (where a is null or b is null) from raw").fetchone()
    if nothing:
        row = db.execute("select n from (select row_number() over () n, a, b from raw) where a is null or b is null limit 1").fetchone()[0]
        raise BadInput(f"{path}, row {row}: an id is missing.")
    if not rows:
        raise BadInput(f"{path} has no edges: expected lines such as '1 2' (user 1 follows user 2).")
    if low < 0:
        row = db.execute("select n from (select row_number() over () n, a, b from raw) where a < 0 or b < 0 limit 1").fetchone()[0]
        raise BadInput(f"{path}, row {row}: {low} is not a user id (a whole number from 0 to 2^63-1).")
    db.execute("create table ids as select id, (row_number() over (order by id) - 1)::integer k from "
               "(select a id from raw union select b from raw)")
    db.execute("create table edges as select distinct x.k r, y.k a from raw join ids x on x.id = raw.a join ids y on y.id = raw.b "
               "where x.k <> y.k")
    db.execute("drop table raw")
    once = db.execute("select count(*) from edges").fetchone()[0]
    if directed is None:
        both = db.execute("select count(*) from edges e join edges f on e.r = f.a and e.a = f.r").fetchone()[0] / max(once, 1)
        directed, why = both >= text.BOTH_WAYS, f"{both:.1%} of the edges are listed both ways"
    repeats = rows - loops - once
    if not directed:
        db.execute("create table pairs as select distinct least(r, a) r, greatest(r, a) a from edges")
        pairs = db.execute("select count(*) from pairs").fetchone()[0]
        repeats = rows - loops - pairs
        db.execute("create or replace table edges as select r, a from pairs union all select a, r from pairs")
    db.execute("create table sorted as select r, a from edges order by r, a")
    n = db.execute("select count(*) from sorted").fetchone()[0]
    ids = db.execute("select id from ids order by id").fetchnumpy()["id"].astype(np.int64)
    reader, author, step = np.empty(n, np.int32), np.empty(n, np.int32), 10_000_000
    for i in range(0, n, step):
        part = db.execute("select r, a from sorted where rowid >= ? and rowid < ? order by rowid", [i, i + step]).fetchnumpy()
        reader[i:i + len(part["r"])], author[i:i + len(part["a"])] = part["r"], part["a"]
    return Follows(ids, reader, author, path.name, form, directed, why, {"self_loops": loops, "repeats": repeats})


# --- other formats --------------------------------------------------------------------------------------------------------------------

def _matrix_market(path: Path, directed: bool | None, head: str) -> Follows:
    """`%%MatrixMarket matrix coordinate FIELD SYMMETRY`, comments, `rows columns entries`, then `i j [value]`."""
    words = head.lower().split()
    if len(words) != 5 or words[1:3] != ["matrix", "coordinate"] or words[4] not in ("general", "symmetric"):
        raise BadInput(f"{path}, line 1: expected '%%MatrixMarket matrix coordinate pattern general' or symmetric, "
                       f"got {text._short(head)}.")
    form, sizes, parts = None, None, []
    for number, block in text._blocks(path):
        start = 0
        while form is None and start < len(block):
            end = block.index(b"\n", start) + 1
            line = block[start:end]
            if line.strip() and not text._COMMENT.match(line):
                if sizes is None:
                    sizes = line.split()
                    if len(sizes) != 3 or not all(s.isdigit() for s in sizes):
                        raise BadInput(f"{path}, line {number}: expected rows, columns and entries, "
                                       f"got {text._short(line.decode(errors='replace').strip())}.")
                else:
                    form = text._at(path, number, text._Form, line)
                    break
            start, number = end, number + 1
        if form is not None:
            parts.append(text._rows(path, number, block[start:], form))
    found = sum(len(p[0]) for p in parts)
    if sizes is None or not found:
        raise BadInput(f"{path} has no edges below its sizes.")
    if found != int(sizes[2]):
        raise BadInput(f"{path} announces {int(sizes[2]):,} entries and has {found:,}: it is cut off, or not a Matrix Market file.")
    symmetric = words[4] == "symmetric"
    u, v = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
    return of(text.from_edges(u, v, not symmetric if directed is None else directed, path.name, f"Matrix Market, {words[3]}, {words[4]}",
                              "as asked" if directed is not None else f"its head says {words[4]}"))


def _library(path: Path, directed: bool | None, kind: str) -> Follows:
    """GML or GraphML by networkx; nodes that are no whole numbers are numbered in their order."""
    import networkx as nx
    if path.stat().st_size > LIBRARY_MAX:
        raise BadInput(f"{path} is larger than {LIBRARY_MAX >> 20} MB: turn it into an edge list or Parquet first.")
    try:
        g = nx.read_graphml(path) if kind == "graphml" else nx.read_gml(path, label="id")
    except Exception as e:       # networkx, expat and their parsers raise whatever they like at a broken file
        raise BadInput(f"{path} cannot be read as {kind}: {' '.join(str(e).split())[:160] or type(e).__name__}.") from None
    if not g.number_of_edges():
        raise BadInput(f"{path} has no edges.")
    names = list(g.nodes)
    whole = all(re.fullmatch(r"\d{1,18}", str(n)) for n in names) and len({int(n) for n in names}) == len(names)
    number = {n: int(n) if whole else i for i, n in enumerate(names)}
    ends = np.array([(number[a], number[b]) for a, b in g.edges()], np.int64)
    asked = directed is not None
    return of(text.from_edges(ends[:, 0], ends[:, 1], directed if asked else g.is_directed(), path.name,
                              f"{'GraphML' if kind == 'graphml' else 'GML'}{'' if whole else ', nodes numbered in their order'}",
                              "as asked" if asked else "the file says so"))


def _numbers(path: Path, columns: int, what: str) -> np.ndarray:
    """Rows of `columns` numbers, float64 (rows, columns); comments and a header are passed over. Raises BadInput with the line."""
    rows, data = [], False
    for number, block in text._blocks(path):
        for n, line in enumerate(block.decode(errors="replace").splitlines(), number):
            if not line.strip() or text._COMMENT.match(line.encode()):
                continue
            cells = re.split(r"[,;\s]+", line.strip())
            try:
                values = [float(c) for c in cells]
            except ValueError:
                if data:
                    raise BadInput(f"{path}, line {n}: {text._short(line.strip())} is not {what}.") from None
                data = True      # the header
                continue
            data = True
            if len(values) != columns or not all(math.isfinite(v) and v >= 0 for v in values):
                raise BadInput(f"{path}, line {n}: {text._short(line.strip())} is not {what}.")
            rows.append(values)
    if not rows:
        raise BadInput(f"{path} has no row with {what}.")
    return np.array(rows)


def _histogram(path: Path) -> Degrees:
    rows = _numbers(path, 2, "a number of followers and a number of users")
    if not rows[:, 1].sum():
        raise BadInput(f"{path}: no user at all.")
    return Degrees(rows[:, 0], rows[:, 1], path.name, f"degree histogram of {len(rows):,} rows")


def _sample(path: Path) -> Degrees:
    values, counts = np.unique(_numbers(path, 1, "a number of followers"), return_counts=True)
    return Degrees(values, counts.astype(float), path.name, f"degree sample of {int(counts.sum()):,} authors")


# --- presets ----------------------------------------------------------------------------------------------------------------------------

PRESETS = {
    "article": "the article's target: 300 M users, mean 300 followers, largest 50 M, Pareto tail",
    "article-lognormal": "the same with a log-normal tail: five times as much belongs to authors of 10,000 or more",
    "facebook-2011": "721 M users, mean 190 friends, median 99, at most 5,000 (Ugander and others 2011)",
    "twitter-2009": "41.7 M users, 1.47 G follows, largest 2,997,469 (Kwak and others 2010)",
    "generated": "a drawn graph of 1 M users and about 50 M follows with a Pareto tail; seed 11",
}


def preset(name: str) -> Follows | Degrees:
    """A preset by name. Raises BadInput for another name."""
    if name == "article":
        alpha, xmin = cost.fit_pareto(300, 50e6, 300e6)
        return pareto(300e6, alpha, xmin, 50e6, f"article: Pareto, alpha {alpha:.3f}, xmin {xmin:.0f}")
    if name == "article-lognormal":
        median, sigma = cost.fit_lognormal(300, 50e6, 300e6)
        return lognormal(300e6, median, sigma, 50e6, f"article: log-normal, median {median:.1f}, sigma {sigma:.2f}")
    if name == "facebook-2011":      # a log-normal with their median and mean, cut at the site's limit
        return lognormal(721e6, 99, math.sqrt(2 * math.log(190 / 99)), 5_000, "Facebook 2011: log-normal, median 99, mean 190")
    if name == "twitter-2009":
        alpha, xmin = cost.fit_pareto(35.25, 2_997_469, 41.7e6)
        return pareto(41.7e6, alpha, xmin, 2_997_469, f"Twitter 2009: Pareto, alpha {alpha:.3f}, xmin {xmin:.0f}")
    if name == "generated":
        return generated()
    raise BadInput(f"there is no preset {name!r}; presets are {', '.join(PRESETS)}.")


CLASSES = 2_000      # of followers; more change no figure by a thousandth


def pareto(users: float, alpha: float, xmin: float, largest: float, source: str) -> Degrees:
    """Classes of a Pareto: `users` authors between xmin and largest, each class with its exact number and mean of followers."""
    edges = np.geomspace(xmin, largest, CLASSES + 1)
    beyond = (edges / xmin) ** -alpha
    beyond[-1] = 0                                        # who would lie beyond the largest is the largest
    share = beyond[:-1] - beyond[1:]
    owned = alpha * xmin / (alpha - 1) * ((edges / xmin) ** (1 - alpha))
    owned[-1] = 0
    mass = owned[:-1] - owned[1:]
    return Degrees(mass / share, share * users, source, "histogram", largest)


def lognormal(users: float, median: float, sigma: float, largest: float, source: str) -> Degrees:
    """The same of a log-normal."""
    from statistics import NormalDist
    phi = NormalDist().cdf
    edges = np.geomspace(max(median * math.exp(-6 * sigma), 1e-6), largest, CLASSES + 1)
    z = (np.log(edges) - math.log(median)) / sigma
    share = np.diff([0.0, *map(phi, z[1:-1]), 1.0])
    mean = median * math.exp(sigma ** 2 / 2)
    mass = mean * np.diff([0.0, *(phi(x - sigma) for x in z[1:-1]), 1.0])
    keep = share > 0
    return Degrees(mass[keep] / share[keep], share[keep] * users, source, "histogram", largest)


def generated(users: int = 1_000_000, follows: float = 52, alpha: float = 1.485, seed: int = 11) -> Follows:
    """A graph whose authors' popularity falls with the rank as in a Pareto of this alpha, and whose readers follow a log-normal number.
    Drawn in blocks: repeats and self loops are dropped, so that the mean is a little below `follows`."""
    rng = np.random.default_rng(seed)
    wanted = np.exp(1.0 * rng.standard_normal(users))
    counts = rng.poisson(wanted * follows / wanted.mean())
    tilt = 1 / (1 - 1 / alpha)                    # rank = users x u^tilt has the density rank^(-1/alpha)
    place = rng.permutation(users).astype(np.int32)
    readers, authors, dropped = [], [], 0
    step = 50_000
    for first in range(0, users, step):
        n = counts[first:first + step]
        reader = np.repeat(np.arange(first, min(first + step, users)), n)
        author = place[(users * rng.random(len(reader)) ** tilt).astype(np.int64)]
        key = np.sort(reader * users + author)
        keep = np.diff(key, prepend=-1) != 0
        reader, author = (key // users).astype(np.int32), (key % users).astype(np.int32)
        keep &= reader != author
        dropped += int(len(key) - keep.sum())
        readers.append(reader[keep])
        authors.append(author[keep])
    return Follows(np.arange(users, dtype=np.int64), np.concatenate(readers), np.concatenate(authors), f"generated, seed {seed}",
                   "drawn", True, "drawn as follows", {"self_loops": 0, "repeats": dropped})

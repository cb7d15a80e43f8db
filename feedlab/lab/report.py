"""The report of a demo: one HTML file that needs nothing else, to open offline or send to somebody.

    write_report(result, "demo.html")

plotly.js (5 MB) is inside the file, and its content security policy forbids every request, so that it looks the same in
ten years. Values that were not measured are named as such, never guessed.
"""
import math
import shlex
from html import escape
from numbers import Real
from pathlib import Path

from ..addresses import masked
from ..draw import document, plots

ARTICLE_BYTES = 60  # bytes an entry as the article assumes (fault F11)


def write_report(result: dict, path) -> Path:
    """Write the report of `result` (what `feedlab demo --json` holds) to `path`, and return that path.

    Keys used, all optional: users follows posts deliveries write_amplification pull_authors scrolls_checked
    scrolls_equal deliveries_expected deliveries_exact redis_lost bytes_per_entry visible_ms{p50, p99} engines[{...}] threshold feed_max seed graph (its path as typed)
    pure_push_deliveries pages sources_per_page{mean} lag_samples[{t_s, outbox, lag}] visible_samples[ms]
    redis{used_bytes, entries, encoding, encodings{name: feeds}} follower_counts[int] or {bins (rising follower counts, or left edges), counts}
    seconds, command (instead of one made of graph, threshold, feed_max, posts, seed). What is missing is shown as
    "not measured".
    Raises BadInput when the file cannot be written.
    """
    good, verdict = _verdict(result)
    return document.save(path, document.page("feedlab demo", verdict, good, [_about(result)], _BODY.format(
        rows="\n".join(_row(*row) for row in _rows(result)), figures=document.FIGURES, engines=engines_table(result.get("engines")),
        command=escape(_command(result))), _figures(result)), folders=True)


def _verdict(r: dict) -> tuple[bool, str]:
    checked, equal = r.get("scrolls_checked"), r.get("scrolls_equal")
    if not _is(checked, equal) or not checked:
        return False, "No scroll was compared with the SQL pull answer"
    if equal == checked:
        return True, f"{equal:,} of {checked:,} scrolls equal the SQL pull answer"
    return False, f"Only {equal:,} of {checked:,} scrolls equal the SQL pull answer"


def _about(r: dict) -> str:
    graph = f"on {Path(str(r['graph'])).name}" if r.get("graph") else "on a follow graph"
    said = [f"{_num(r[key])} {unit if unit == 's' or r[key] != 1 else unit[:-1]}"
            for key, unit in (("users", "users"), ("posts", "posts"), ("seconds", "s")) if _is(r.get(key))]
    return f"feedlab demo {graph}{': ' if said else ''}{', '.join(said)}."


def _rows(r: dict) -> list[tuple[str, str, str]]:
    """(quantity, value, what it means)"""
    get = r.get
    visible, redis, mixture = get("visible_ms") or {}, get("redis") or {}, encodings(get("redis"))
    pages = (get("sources_per_page") or {}).get("mean")
    threshold = f"of at least {get('threshold'):,} followers " if _is(get("threshold")) else ""
    return [
        ("Scrolls checked", _num(get("scrolls_checked")), "users whose pages, put end to end, were compared with SQL"),
        ("Scrolls equal", _num(get("scrolls_equal")), "of those; anything less than all is a bug"),
        ("Users", _num(get("users")), "accounts in the follow graph"),
        ("Follows", _num(get("follows")), "directed: a friendship counts twice"),
        ("Posts", _num(get("posts")), "written, each with its outbox row in one transaction"),
        ("Deliveries", _num(get("deliveries")), "entries written into feeds"),
        ("Deliveries by SQL", _num(get("deliveries_expected")), by_sql(r)),
        ("Write amplification", _num(get("write_amplification")), "deliveries a post"),
        ("Pure push", _num(get("pure_push_deliveries")), "deliveries if every follower of every post were written to"),
        ("Pulled authors", _num(get("pull_authors")), f"authors {threshold}whose posts are fetched at read time"),
        ("Pages read", _num(get("pages")), "of feeds, up to their end"),
        ("Sources a page", _num(pages), "own feed, celebrities' timelines and SQL touched for one page, mean"),
        ("Visible, p50", _num(visible.get("p50"), " ms"), "from writing a post to its last feed, half of the posts"),
        ("Visible, p99", _num(visible.get("p99"), " ms"), "the same for all but the slowest hundredth"),
        ("Memory an entry", _num(get("bytes_per_entry"), " B"),
         f"{f'{mixture}; ' if mixture else ''}Redis memory over feed entries; the article assumes {ARTICLE_BYTES} B"),
        ("Redis memory", _bytes(redis.get("used_bytes")), "rise of used_memory during the run"),
        ("Feed length", _num(get("feed_max"), " entries"), "the cap; older posts come from SQL"),
    ]


def by_sql(r: dict) -> str:
    """What the deliveries that the graph alone demands say about those that were counted."""
    made, wanted = r.get("deliveries"), r.get("deliveries_expected")
    if not _is(made, wanted):
        return "counted from graph and posts alone"
    if r.get("deliveries_exact") is False:
        lost = r.get("redis_lost")
        times = "" if not _is(lost) else " once" if lost == 1 else f" {lost:,} times"
        return (f"Redis lost its memory{times}: some deliveries were made again; by the graph they are {wanted:,}")
    return "counted from graph and posts alone: " + ("equal" if made == wanted else "NOT EQUAL")


def encodings(redis: dict | None) -> str:
    """How Redis holds the feeds, the most frequent way first; "" when it is not known.

    >>> encodings({"encodings": {"skiplist": 508, "listpack": 3531}})
    '3,531 feeds as listpack, 508 as skiplist'
    """
    redis = redis or {}
    kinds = sorted((redis.get("encodings") or {}).items(), key=lambda kind: -kind[1])
    if not kinds:
        return f"feeds as {redis['encoding']}" if redis.get("encoding") else ""
    return ", ".join(f"{n:,}{(' feed' if n == 1 else ' feeds') if i == 0 else ''} as {kind}" for i, (kind, n) in enumerate(kinds))


def _figures(r: dict) -> list[tuple]:
    """(figure or None, the note below it, or what is missing)"""
    get, out = r.get, []
    push = get("pure_push_deliveries")
    if _is(get("write_amplification"), push, get("posts")) and r["posts"]:
        fig = plots.write_amplification(r["write_amplification"], push / r["posts"], 0, get("threshold"))
        out.append((fig, "Pull writes nothing and pays at each read, push the other way round."))
    else:
        out.append((None, "Write amplification"))
    mean = (get("sources_per_page") or {}).get("mean")
    if _is(mean, get("follows"), get("users")) and r["users"]:
        fig = plots.sources_per_page(mean, r["follows"] / r["users"])
        out.append((fig, "Pure pull asks every followee: drawn is the mean number of followees of a user."))
    else:
        out.append((None, "Sources a page"))
    samples = [s for s in get("lag_samples") or [] if _is(s.get("t_s"))]
    out.append((plots.lag_over_time(samples), "The outbox waits for the relay, Kafka's records for the consumer.")
               if samples else (None, "Lag over time"))
    times = [m for m in get("visible_samples") or [] if _is(m)]
    out.append((plots.visible_hist(times), "One count is one post; the axis is logarithmic.")
               if times else (None, "Time to visible"))
    fig = _degrees(get("follower_counts"), get("threshold"))
    out.append((fig, "Few accounts have most of the followers. That is why one rule for all is dear.")
               if fig else (None, "Follower counts"))
    if _is(get("bytes_per_entry")):
        rows = [("this run", r["bytes_per_entry"]), ("the article's figure", ARTICLE_BYTES)]
        mixture = encodings(get("redis"))
        out.append((plots.memory_bars(rows), "An entry is a post id and its time; the text is in the post cache."
                    + (f" Stored: {mixture}." if mixture else "")))
    else:
        out.append((None, "Memory an entry"))
    return out


def _degrees(counts, threshold):
    if isinstance(counts, dict):
        n, bins = list(counts.get("counts") or []), list(counts.get("bins") or [])
        return plots.ccdf_of_counts(bins[:len(n)], n, threshold) if n and len(bins) >= len(n) else None
    return plots.degree_ccdf(counts, threshold) if counts is not None and len(counts) else None


def engines_table(engines) -> str:
    """The engines of a run as an HTML table; `engines` as `feedlab status --json` has them."""
    if not engines:
        return '<p class="missing">not measured</p>'
    engines = [{("memory" if k == "memory_bytes" else k): (_megabytes(v) if k == "memory_bytes" else v)
                for k, v in e.items()} for e in engines]
    keys = list(dict.fromkeys(k for e in engines for k in e))
    head = "".join(f'<th scope="col">{escape(str(k).replace("_", " "))}</th>' for k in keys)
    body = "".join("<tr>" + "".join(_cell(e.get(k), k, i == 0) for i, k in enumerate(keys)) + "</tr>" for e in engines)
    return (f'<div class="wide" tabindex="0" role="region" aria-label="Engines"><table class="engines"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")


def _megabytes(value) -> str:
    return f"{value / 1e6:,.0f} MB" if _is(value) else ""


def _cell(value, key, first: bool) -> str:
    text = {None: "", True: "yes", False: "no"}.get(value) if value is None or isinstance(value, bool) else \
        str(value) if key == "pid" else _num(value) if _is(value) else str(value)
    text = escape(masked(text))  # a report is passed on, a password is not
    if first:
        return f'<th scope="row">{text}</th>'
    return f'<td data-key="{escape(str(key).replace("_", " "))}">{text}</td>'


def _row(name: str, value: str, meaning: str) -> str:
    gone = ' class="missing"' if value == "not measured" else ""
    return f'<tr><th scope="row">{escape(name)}</th><td{gone}>{escape(value)}</td><td>{escape(meaning)}</td></tr>'


def _command(r: dict) -> str:
    if r.get("command"):
        return str(r["command"])
    words = [".venv/bin/feedlab", "demo"]  # what works in a fresh terminal, in the checkout
    for option, key in (("--graph", "graph"), ("--threshold", "threshold"), ("--feed-max", "feed_max"),
                        ("--posts", "posts"), ("--seed", "seed")):
        if r.get(key) is not None:
            words += [option, str(r[key])]
    return shlex.join(words)


def _is(*values) -> bool:
    """Are all of these numbers that can be shown?"""
    return all(isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v) for v in values)


def _num(value, unit: str = "") -> str:
    if not _is(value):
        return "not measured"
    return (f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.1f}" if abs(value) >= 10
            else f"{value:.2f}") + unit


def _bytes(value) -> str:
    if not _is(value):
        return "not measured"
    size = abs(value)
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next((f"{value / u:,.1f} {name}" for u, name in units if size >= u), f"{value:,.0f} B")


_BODY = """<h2>Figures of the run</h2>
<table class="values">
<thead><tr><th scope="col">Quantity</th><th scope="col">Measured</th><th scope="col">What it means</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
{figures}
<h2>Engines</h2>
{engines}
<h2>Run it again</h2>
<p>The same seed draws the same posts and reads; times depend on the machine.</p>
<pre><code>{command}</code></pre>"""

"""The report of a study: one HTML file that needs nothing else, to hand to whoever has to agree.

    write(study, "report.html", command="feedlab policy report --graph follows.csv", checked=rows)
"""
from html import escape
from pathlib import Path

from .. import __version__
from ..draw import document
from ..lab.calibrate import Calibration
from . import figures, study
from .study import Study

COLUMNS = (
    ("policy", "policy", str), ("deliveries_per_day", "feed writes a day", "n"), ("pulls_per_day", "pulls a day", "n"),
    ("write_amplification", "feed writes a post", "n"), ("sources_per_page", "sources a page", "n"), ("sources_per_page_p99", "p99", "n"),
    ("cpu_cores", "cores at peak", "n"), ("redis_bytes", "Redis", "b"), ("redis_nodes", "nodes", "n"),
    ("largest_fan_out_seconds", "largest author, s", "n"), ("exact", "exact", str))


def number(x, kind="n") -> str:
    """A figure as the tables show it.

    >>> number(45e9), number(6e12, "b"), number(0.0123), number(7)
    ('45.0 G', '6.00 TB', '0.0123', '7')
    """
    if x is None:
        return ""
    if kind is str or isinstance(x, (str, bool)):
        return {True: "yes", False: "no"}.get(x, str(x)) if isinstance(x, bool) else str(x)
    unit = "B" if kind == "b" else ""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= size and (kind == "b" or abs(x) >= 1e5):
            return f"{x / size:.3g} {letter}{unit}" if x / size >= 100 else f"{x / size:.{1 if x / size >= 10 else 2}f} {letter}{unit}"
    if unit:
        return f"{x:.0f} B"
    return f"{x:,.0f}" if x == int(x) or abs(x) >= 100 else f"{x:.3g}"


def write(s: Study, path, command: str, checked: list[dict] | None = None, calibration: Calibration | None = None,
          engines: list[dict] | None = None) -> Path:
    """Write the report of a study; `checked` are rows of `live.check`. Raises BadInput when the file cannot be written."""
    return document.save(path, page(s, command, checked, calibration, engines))


def page(s: Study, command: str, checked=None, calibration=None, engines=None) -> str:
    shown = [(figures.cpu(s.outcomes, s.assume.costs), "An edge costs posts x H where it is pushed and reads x L where it is pulled."),
             (figures.front(s.outcomes, s.front, s.advised), "Policies that are not exact are not on the front."),
             (figures.flips(s.flips, s.advised and s.advised.policy), "Decisions are taken as they are; only the input moves."
              if s.flips else "What would flip the advice: nothing within a factor of a thousand")]
    if checked:
        shown.append((figures.compared(checked), "The same graph, rates and policy through the real pipeline."))
    advised = s.advised.policy if s.advised else None
    verdict = (f"Advised: {advised}" if advised else
               f"No exact policy delivers the largest author in {s.assume.fresh_s:g} s: allow more time, or add a lower threshold")
    body = _BODY.format(table=_outcomes(s), figures=document.FIGURES, burst=_bursts(s), checked=_checked(checked),
                        assumptions=_assumptions(s), versions=_versions(calibration, engines), command=escape(command))
    return document.page("feedlab policy report", verdict, bool(advised),
                         [s.graph.description(), study.tail_sentence(s.tail, s.people.exact)], body, shown, _STYLE)


def _table(heads, rows, dense: bool = False) -> str:
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in heads)
    def cell(i, text):
        return f'<th scope="row">{escape(text)}</th>' if i == 0 else f'<td data-key="{escape(heads[i])}">{escape(text)}</td>'
    body = "".join("<tr>" + "".join(cell(i, text) for i, text in enumerate(r)) + "</tr>" for r in rows)
    kind = "engines dense" if dense else "engines"
    return f'<div class="wide" tabindex="0"><table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _outcomes(s: Study) -> str:
    heads = [title for _, title, _ in COLUMNS] + ["feed writes a day, ten draws"]
    rows = []
    for o in s.outcomes:
        spread = o.spread.get("deliveries_per_day")
        rows.append([number(getattr(o, name), kind) for name, _, kind in COLUMNS] +
                    [f"{number(spread[0])} to {number(spread[1])}" if spread else ""])
    return _table(heads, rows, dense=True)


def _assumptions(s: Study) -> str:
    a, c = s.assume, s.assume.costs
    rows = [
        ("graph", s.graph.description()), ("users", number(s.outcomes[0].users)),
        ("posts a day", number(s.outcomes[0].posts_per_day)), ("pages a day", number(s.outcomes[0].pages_per_day)),
        ("H, CPU of a delivery", f"{c.delivery_s * 1e6:.1f} µs"),
        ("L, CPU of a pull", f"{c.l_s * 1e6:.1f} µs, {c.copies:.0%} from own copies"),
        ("CPU of a page without pulls", f"{c.page_s * 1e3:.2f} ms"), ("one consumer", f"{c.deliveries_a_second:,.0f} feed writes a second"),
        ("where from", c.source), ("FEED_MAX", f"{a.feed_max} entries"), ("Redis layout", f"{a.layout}, listpack up to {a.listpack_limit}"),
        ("history", f"{a.history_days:g} days of posts fill a feed at most"), ("peak", f"{a.peak:g} x the mean, cores {a.busy:.0%} busy"),
        ("largest author", f"delivered in {a.fresh_s:g} s at most"),
        ("nodes", f"{a.node_bytes / 1e9:g} GB, {a.filled:.0%} filled, {a.replicas} replica"),
        ("users of a graph", "stand for more by copies of it, if --scale says so"),
        ("seed", str(s.seed))]
    if not s.people.exact:
        rows.append(("readers", "of a histogram are assumed: they follow a log-normal number (sigma 1) with the same mean"))
    return _table(["input", "value"], rows)


def _bursts(s: Study) -> str:
    rows = [[o.policy, *(number(o.burst.get(k)) for k in ("consumers", "lag_posts_max", "fresh_s_p50", "fresh_s_p99", "small_s_p99"))]
            for o in s.outcomes if o.burst]
    heads = ["policy", "consumers", "greatest lag, posts of one", "visible p50, s", "visible p99, s", "small authors p99, s"]
    return _table(heads, rows, dense=True) if rows else "<p>not simulated</p>"


def _checked(rows) -> str:
    if not rows:
        return "<p>Not measured: <code>feedlab policy check</code> runs the policy through the real pipeline.</p>"
    return _table(["quantity", "predicted", "measured", "unit", "off", "bound", "within", "of"], [
        [r["quantity"], number(r["predicted"]), number(r["measured"]), r["unit"], f"{r['off']:.1%}", f"{r['bound']:.0%}",
         "yes" if r["within"] else "no", r.get("of", "")] for r in rows])


def _versions(calibration: Calibration | None, engines) -> str:
    rows = [("feedlab", __version__)]
    if calibration:
        rows += [("calibrated", calibration.at), ("machine", calibration.machine), ("CPU counted of", calibration.covers),
                 *sorted(calibration.versions.items())]
    elif engines:
        rows += [(e["name"], str(e["version"])) for e in engines]
    return _table(["what", "version"], [(a, str(b)) for a, b in rows])


_STYLE = """
main { max-width: 1360px; } .dense :is(th, td) { font-size: 0.82rem; padding-right: 8px; white-space: nowrap; }
.dense thead th { white-space: normal; }"""

_BODY = """<h2>Policies</h2>
{table}
{figures}
<h2>In a burst of ten times the mean for five minutes</h2>
{burst}
<h2>Predicted against measured</h2>
{checked}
<h2>Assumptions</h2>
{assumptions}
<h2>Versions</h2>
{versions}
<h2>Run it again</h2>
<pre><code>{command}</code></pre>"""

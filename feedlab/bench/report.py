"""The report of a bench run: one HTML file that needs nothing else, in the looks of the demo's report."""
from html import escape
from pathlib import Path

from ..draw import document, plots
from ..lab.report import engines_table


def write_report(result: dict, path) -> Path:
    """Write the report of `result` (what `feedlab bench --json` holds) to `path`, and return that path. Raises BadInput."""
    bound = [r for r in result["rows"] if r["reached"] is not None]
    kept = sum(r["reached"] for r in bound)
    machine = result["machine"]
    about = (f"{machine['cores']} cores, {machine['system']}, Python {machine['python']}; load of the machine at the end "
             f"{machine['load_1m']:.1f}; {result['seconds']:.0f} s." if machine.get("load_1m") is not None else "")
    body = _BODY.format(
        rows="\n".join(_row(r) for r in result["rows"]), figures=document.FIGURES, engines=engines_table(result.get("engines")),
        conditions="\n".join(_condition(name, station) for name, station in result["stations"].items()))
    return document.save(path, document.page(
        "feedlab bench", f"{kept} of {len(bound)} bounds are kept", kept == len(bound),
        [about + (" A quick run: too short to quote." if result["quick"] else "")], body, figures(result), _STYLE))


def _condition(name: str, station: dict) -> str:
    return f'<tr><th scope="row">{escape(name)}</th><td>{escape(station["conditions"])}</td><td>{escape(_counts(station))}</td></tr>'


def _row(r: dict) -> str:
    state = "" if r["reached"] is None else "yes" if r["reached"] else "NO"
    ours, other = figure(r["ours"], r["unit"]), figure(r["other"], r["unit"])
    cells = (r["station"], r["what"], ours, r["beside"], other, ratio(r), r["bound"], state)
    return "<tr>" + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>"


def figure(value: dict, unit: str) -> str:
    """A median with its unit; seconds below one as milliseconds.

    >>> figure({"median": 0.00123}, "s"), figure({"median": 81234.5}, "rows/s"), figure({"median": 0.98}, "%")
    ('1.23 ms', '81,234 rows/s', '0.98 %')
    """
    x = value["median"]
    if unit == "s" and x < 1:
        return f"{plots.number(float(f'{x * 1e3:.3g}'))} ms"
    return f"{plots.number(float(f'{x:.3g}') if abs(x) < 100 else x)} {unit}".strip()


def ratio(r: dict) -> str:
    """The median ratio, and from where to where the rounds went.

    >>> ratio({"ratio": {"median": 0.456, "low": 0.4, "high": 0.5, "n": 7}}), ratio({"ratio": None})
    ('0.456 (0.4 to 0.5)', '')
    """
    if r["ratio"] is None:
        return ""
    median, low, high = (f"{r['ratio'][k]:.3g}" for k in ("median", "low", "high"))
    return median if low == high else f"{median} ({low} to {high})"


def _counts(station: dict) -> str:
    return "; ".join(f"{k.replace('_', ' ')} {v}" for k, v in station["counts"].items() if not isinstance(v, dict))


# --- figures ------------------------------------------------------------------------------------------------------------------

def figures(result: dict) -> list[tuple]:
    """(figure, note) for what the result holds."""
    found, stations = [], result["stations"]
    bound = [r for r in result["rows"] if r["reached"] is not None]
    if bound:
        found.append((bounds(bound), "1 is the bound; right of it is kept. A bar is the median of the rounds, its line their spread."))
    if "memory" in stations:
        found.append((memory(stations["memory"]["points"]), "Points are measured, lines are the formula of feedlab.core.cost."))
    if "page" in stations:
        found.append((latencies(stations["page"]["points"]), "The bare pair checks nothing: neither the user, nor deletes, nor follows."))
    if "scaling" in stations:
        found.append((scaling(stations["scaling"]), "Engines and consumers share the cores of this machine."))
    if "growth" in stations:
        found.append((growth(stations["growth"]["points"]), "Times over that at the smallest size; a flat line does not grow."))
    return found


def margin(r: dict, which: str = "median") -> float:
    """How far a row is on the right side of its bound: 1 is on it, 2 twice as good."""
    limit, value = float(r["bound"].split()[1]), r["ratio"][which]
    return value / limit if r["bound"].startswith(">=") else limit / max(value, 1e-9)


def bounds(rows: list[dict]):
    """Every bound in one picture, logarithmic."""
    kept = sum(r["reached"] for r in rows)
    fig = plots.figure(f"{kept} of {len(rows)} bounds are kept", "times better than the bound (log)", "")
    for state, colour, shape in ((True, plots.BLUE, ""), (False, plots.VERMILLION, "/")):
        some = [r for r in rows if r["reached"] is state]
        x = [margin(r) for r in some]
        ends = [sorted((margin(r, "low"), margin(r, "high"))) for r in some]
        fig.add_bar(x=x, y=[f"{r['station']}: {r['what']} / {r['beside']}"[:70] for r in some], orientation="h",
                    name="kept" if state else "not kept", marker={"color": colour, "pattern": {"shape": shape}},
                    error_x={"type": "data", "array": [max(0, e[1] - v) for e, v in zip(ends, x, strict=True)],
                             "arrayminus": [max(0, v - e[0]) for e, v in zip(ends, x, strict=True)]},
                    hovertemplate="%{y}: %{x:.2f}<extra></extra>")
    fig.add_vline(1, line={"dash": "dash", "width": 2})
    return fig.update_xaxes(type="log").update_yaxes(autorange="reversed", showgrid=False).update_layout(
        height=140 + 30 * len(rows), margin={"l": 330})


def memory(points: list[dict]):
    """Bytes of a feed by its length, a curve an encoding limit."""
    at = next((p for p in points if p["feed_max"] == 500 and p["encoding"] == "skiplist"), points[-1])
    title = f"A feed of {at['feed_max']} takes {at['bytes'] / at['feed_max']:.0f} B an entry as {at['encoding']}"
    fig = plots.figure(title, "entries in the feed", "bytes of the feed")
    for limit, colour, symbol in zip(sorted({p["limit"] for p in points}), (plots.BLUE, plots.GREEN), ("circle", "square"), strict=False):
        some = [p for p in points if p["limit"] == limit]
        x = [p["feed_max"] for p in some]
        fig.add_scatter(x=x, y=[p["bytes"] for p in some], mode="markers", marker={"color": colour, "size": 9, "symbol": symbol},
                        name=f"measured, listpack up to {limit:,}", text=[p["encoding"] for p in some],
                        hovertemplate="%{x} entries: %{y:,} B, %{text}<extra></extra>")
        fig.add_scatter(x=x, y=[p["formula"] for p in some], mode="lines", line={"color": colour, "dash": "dot"}, name="formula",
                        hovertemplate="%{x} entries: %{y:,.0f} B by the formula<extra></extra>")
    fig.add_scatter(x=[0, max(p["feed_max"] for p in points)], y=[0, 60 * max(p["feed_max"] for p in points)], mode="lines",
                    line={"color": plots.GREY, "dash": "dash"}, name="the article's 60 B an entry")
    return fig


def latencies(points: dict[str, dict]):
    """p50 and p99 of each way of making page one."""
    names = list(points)
    fig = plots.figure("Page one: " + ", ".join(f"{n} {points[n]['p50_ms']:.3g} ms" for n in names[:3]), "milliseconds (log)", "")
    for what, colour, shape in (("p50_ms", plots.BLUE, ""), ("p99_ms", plots.GREY, "/")):
        fig.add_bar(x=[points[n][what] for n in names], y=names, orientation="h", name=what[:3],
                    marker={"color": colour, "pattern": {"shape": shape}}, hovertemplate="%{y}: %{x:.3g} ms<extra></extra>")
    return fig.update_xaxes(type="log").update_yaxes(autorange="reversed", showgrid=False).update_layout(
        height=140 + 40 * len(names), margin={"l": 120})


def scaling(station: dict):
    """Deliveries a second by consumer processes."""
    points = station["points"]
    n = [int(k) for k in points]
    rates = [points[str(k)]["deliveries_a_second"]["median"] for k in n]
    fig = plots.figure(f"{n[-1]} consumers deliver {rates[-1] / rates[0]:.2g} times as much as one; it stops at: "
                       f"{station['stopped_by'][str(n[-1])]}", "consumer processes", "deliveries a second")
    fig.add_scatter(x=n, y=[rates[0] * k for k in n], mode="lines", line={"dash": "dot", "color": plots.GREY}, name="ideal")
    fig.add_scatter(x=n, y=rates, mode="lines+markers", marker={"size": 9}, name="measured",
                    hovertemplate="%{x}: %{y:,.0f}<extra></extra>")
    return fig.update_yaxes(rangemode="tozero")


def growth(points: dict[str, dict]):
    """Each curve over its smallest size, both axes logarithmic."""
    fig = plots.figure("What grows with size, and what does not", "times the smallest size (log)", "times as long (log)")
    dashes = ("solid", "dot", "dash", "longdash", "dashdot", "longdashdot")
    for (name, p), dash in zip(points.items(), dashes, strict=False):
        fig.add_scatter(x=[s / p["sizes"][0] for s in p["sizes"]], y=[t / p["ms"][0] for t in p["ms"]], mode="lines+markers",
                        name=f"{name}: {p['exponent']:.2f}", line={"dash": dash}, hovertemplate="%{x:g}x: %{y:.2f}<extra></extra>")
    return fig.update_xaxes(type="log", dtick=1).update_yaxes(type="log")


_STYLE = ".ratios td:nth-child(n+3) { font-variant-numeric: tabular-nums; }"

_BODY = """<h2>Ours, and what one would use instead</h2>
<div class="wide" tabindex="0" role="region" aria-label="Ratios">
<table class="ratios">
<thead><tr><th scope="col">Station</th><th scope="col">Measured</th><th scope="col">Ours</th><th scope="col">Beside</th>
<th scope="col">That one</th><th scope="col">Ratio (rounds)</th><th scope="col">Must be</th><th scope="col">Kept</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
{figures}
<h2>Conditions and exact counts</h2>
<div class="wide" tabindex="0" role="region" aria-label="Conditions">
<table><thead><tr><th scope="col">Station</th><th scope="col">Conditions</th><th scope="col">Counts</th></tr></thead>
<tbody>
{conditions}
</tbody>
</table>
</div>
<h2>Engines</h2>
{engines}
<h2>Run it again</h2>
<pre><code>.venv/bin/feedlab bench --json bench.json --report bench.html</code></pre>"""

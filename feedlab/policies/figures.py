"""Pictures of a study: from plain outcomes to plotly figures whose titles say the finding."""
import plotly.graph_objects as go

from ..draw import plots
from ..draw.plots import BLUE, GREEN, ORANGE, VERMILLION
from .simulate import Costs, Outcome

SHORT = {"cost of a delivery (H), or posts a day": "H or posts", "cost of a pull (L), or reads a day": "L or reads",
         "the time that the largest author may take": "time allowed"}


def cpu(found: list[Outcome], costs: Costs) -> go.Figure:
    """CPU seconds a day of each policy, by writes and by pulls."""
    best = min(found, key=lambda o: o.cpu_seconds_per_day)
    names = [o.policy for o in found]
    fig = plots.figure(f"{best.policy} takes the least CPU: {plots.number(best.cpu_seconds_per_day)} s a day", "CPU seconds a day", "")
    fig.add_bar(y=names, x=[o.deliveries_per_day * costs.delivery_s for o in found], name="writes (deliveries x H)", orientation="h",
                marker_color=BLUE)
    fig.add_bar(y=names, x=[o.pulls_per_day * costs.l_s for o in found], name="pulls (pulls x L)", orientation="h", marker_color=ORANGE,
                marker_pattern_shape="/")
    return fig.update_layout(barmode="stack", height=140 + 32 * len(found)).update_yaxes(autorange="reversed")


def front(found: list[Outcome], on_front: list[Outcome], advised: Outcome | None) -> go.Figure:
    """CPU against the fan-out time of the largest pushed author; the front is joined by a line."""
    fig = plots.figure(f"{len(on_front)} of {len(found)} policies are on the front of CPU, memory and fan-out time", "CPU seconds a day",
                       "s for the largest author")
    least = 1e-3
    for chosen, name, colour, mark in ((found, "all", BLUE, "circle-open"), (on_front, "on the front", GREEN, "circle"),
                                       ([advised] if advised else [], "advised", VERMILLION, "star")):
        fig.add_scatter(x=[max(o.cpu_seconds_per_day, least) for o in chosen],
                        y=[max(o.largest_fan_out_seconds, least) for o in chosen],
                        mode="markers+text" if name == "on the front" else "markers", text=[o.policy for o in chosen],
                        textposition="top center", name=name,
                        marker={"color": colour, "symbol": mark, "size": 12 if name != "advised" else 16},
                        hovertemplate="%{text}: %{x:,.3g} s of CPU, %{y:,.3g} s<extra></extra>")
    return fig.update_xaxes(type="log").update_yaxes(type="log").update_layout(height=420)


def flips(rows: list[dict], advised: str | None) -> go.Figure | None:
    """By which factor an input must change before another policy is advised."""
    if not rows or advised is None:
        return None
    near = rows[0]
    fig = plots.figure(f"{advised} stays advised until {near['input']} changes by x {plots.number(near['factor'])}, then {near['to']}",
                       "factor, logarithmic", "")
    names = [f"{SHORT.get(r['input'], r['input'])} → {r['to']}" for r in rows]
    fig.add_bar(y=names, x=[r["factor"] for r in rows], orientation="h", base=0,
                marker_color=[BLUE if r["factor"] > 1 else ORANGE for r in rows], text=[f"x {plots.number(r['factor'])}" for r in rows],
                showlegend=False)
    fig.add_vline(x=1, line_dash="dot")
    return fig.update_xaxes(type="log").update_yaxes(autorange="reversed").update_layout(height=160 + 40 * len(rows))


def sweep(rows: list[dict], costs: Costs, live: list[dict] = ()) -> go.Figure:
    """CPU a day over the threshold: writes, pulls, both; live points as {threshold, cpu_seconds_per_day} on top."""
    feed_max = rows[0]["feed_max"]
    rows = [r for r in rows if r["feed_max"] == feed_max]
    best = min(rows, key=lambda r: r["cpu_seconds_per_day"])
    fig = plots.figure(f"The threshold with the least CPU is {best['threshold']:,} followers", "threshold, followers", "CPU seconds a day")
    x = [r["threshold"] for r in rows]
    for name, y, dash in (("writes", [r["deliveries_per_day"] * costs.delivery_s for r in rows], "dot"),
                          ("pulls", [r["pulls_per_day"] * costs.l_s for r in rows], "dash"),
                          ("both", [r["cpu_seconds_per_day"] for r in rows], "solid")):
        fig.add_scatter(x=x, y=y, name=name, mode="lines", line={"dash": dash, "width": 2.5})
    if live:
        fig.add_scatter(x=[p["threshold"] for p in live], y=[p["cpu_seconds_per_day"] for p in live], mode="markers", name="measured",
                        marker={"color": VERMILLION, "size": 11, "symbol": "x"})
    return fig.update_xaxes(type="log")


def memory(rows: list[tuple[int, float]], layout: str, mark: int | None = None) -> go.Figure:
    """Bytes of one feed over its entries: the cliff and the sawtooth."""
    entries, size = next((r for r in rows if r[0] == mark), rows[-1])
    fig = plots.figure(f"A feed of {entries:,} entries takes {size:,.0f} B, {size / max(entries, 1):.0f} B an entry ({layout})",
                       "entries", "bytes of one feed")
    fig.add_scatter(x=[n for n, _ in rows], y=[b for _, b in rows], mode="lines", name=layout, line={"width": 2.5})
    if mark is not None:
        fig.add_vline(x=mark, line_dash="dot")
    return fig


def compared(rows: list[dict]) -> go.Figure:
    """Measured over predicted, one bar a quantity."""
    good = sum(r["within"] for r in rows)
    fig = plots.figure(f"{good} of {len(rows)} predictions are within their bound", "measured / predicted", "")
    ratios = [r["measured"] / r["predicted"] if r["predicted"] else 1.0 for r in rows]
    fig.add_bar(y=[r["quantity"] for r in rows], x=ratios, orientation="h",
                marker_color=[GREEN if r["within"] else VERMILLION for r in rows], showlegend=False,
                text=["within" if r["within"] else f"off by {r['off']:.0%}" for r in rows])
    fig.add_vline(x=1, line_dash="dot")
    return fig.update_yaxes(autorange="reversed").update_layout(height=140 + 36 * len(rows))

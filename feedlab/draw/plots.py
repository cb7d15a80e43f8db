"""Plotly figures of a run. Each builder takes plain data and returns a figure whose title says the finding.

    show(write_amplification(ours=57.2, push=148.0, threshold=200))    # in a notebook

Colours are those of Okabe and Ito (Color Universal Design, 2008), which people with any colour vision tell apart; no
figure depends on colour alone. The template is our own: plotly's adds 6.5 KB to every figure, this one 0.7 KB.
"""
import json
import textwrap
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, GREY = "#56B4E9", "#CC79A7", "#7F7F7F"

TITLE_WIDTH = 92        # characters of a title line at 16 px in a notebook's 800 px

_AXIS = {"gridcolor": "rgba(127,127,127,0.25)", "zeroline": False, "automargin": True, "ticks": "outside",
         "tickcolor": "rgba(127,127,127,0.5)"}
TEMPLATE = go.layout.Template(layout={
    "colorway": [BLUE, VERMILLION, GREEN, ORANGE, SKY, PURPLE],
    "font": {"family": "system-ui, sans-serif", "size": 13},
    "title": {"x": 0, "xref": "paper", "y": 0.97, "yanchor": "top", "font": {"size": 16}},
    "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "xaxis": _AXIS, "yaxis": _AXIS,
    "margin": {"l": 60, "r": 20, "t": 60, "b": 50}, "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
    "bargap": 0.35, "height": 360})


def lag_over_time(samples: Sequence[dict]) -> go.Figure:
    """How far the way of a post lags. `samples`: dicts of t_s (seconds since the start), outbox (rows not yet sent) and
    lag (records not yet consumed), in order of time."""
    t = [s["t_s"] for s in samples]
    waiting = [(s.get("outbox") or 0) + (s.get("lag") or 0) for s in samples]
    if samples:
        top = int(np.argmax(waiting))
        end = "nothing waits at the end" if not waiting[-1] else f"{waiting[-1]:,} still wait at the end"
        title = f"At most {waiting[top]:,} events waited, {t[top]:.1f} s in; {end}"
    else:
        title = "No lag was sampled"
    fig = figure(title, "seconds since the start", "events waiting")
    for name, key, dash in (("outbox: rows not yet in Kafka", "outbox", "solid"),
                            ("Kafka: records not yet delivered", "lag", "dot")):
        fig.add_scatter(x=t, y=[s.get(key) for s in samples], name=name, mode="lines",
                        line={"dash": dash, "width": 2.5}, hovertemplate="%{y:,} after %{x:.1f} s")
    return fig.update_yaxes(rangemode="tozero")


def write_amplification(ours: float, push: float, pull: float = 0.0, threshold: int | None = None) -> go.Figure:
    """Feed writes a post: measured (hybrid), and what pure push and pure pull would take on the same posts."""
    how = "The hybrid" if threshold is None else f"Push below {threshold:,} followers"
    title = f"{how} writes {number(ours)} feeds a post; pure push {number(push)}"
    return bars(title, ["pure pull", "measured", "pure push"], [pull, ours, push], "feed writes a post")


def sources_per_page(ours: float, pull: float, push: float = 1.0) -> go.Figure:
    """Sources touched to answer one page, mean: measured (own feed and celebrities), pure pull (every followee),
    pure push (one feed). The price of writing less."""
    title = f"A page asks {number(ours)} sources; pure pull {number(pull)}"
    return bars(title, ["pure push", "measured", "pure pull"], [push, ours, pull], "sources a page (mean)")


def memory_bars(rows: Sequence[tuple[str, float]]) -> go.Figure:
    """Redis bytes an entry. `rows`: (label, bytes an entry), the measured one first, the others to compare with."""
    title = f"A feed entry takes {number(rows[0][1])} bytes" if rows else "No memory was measured"
    if len(rows) > 1:
        title += f"; {rows[1][0]} {number(rows[1][1])}"
    return bars(title, [r[0] for r in rows], [r[1] for r in rows], "bytes an entry", measured=0)


def visible_hist(ms: Sequence[float]) -> go.Figure:
    """From writing a post to its last feed, milliseconds, logarithmic axis; p50 and p99 marked."""
    x = np.asarray([m for m in ms if m is not None], float)
    x = np.maximum(x[np.isfinite(x)], 0.1)  # a logarithm needs more than 0; nothing here is faster than 0.1 ms
    if not len(x):
        return figure("No post was timed", "ms from writing a post to its last feed", "posts")
    p50, p99 = np.percentile(x, [50, 99])
    # ten bins a power of ten, edges common to all figures so that two runs compare
    low, high = np.floor(np.log10(x.min()) * 10) / 10, np.floor(np.log10(x.max()) * 10) / 10 + 0.1
    edges = 10 ** np.linspace(low, high, round((high - low) * 10) + 1)
    counts, edges = np.histogram(x, edges)
    fig = figure(f"Half of the posts are visible within {millis(p50)}, 99 % within {millis(p99)}",
                  "ms from writing a post to its last feed (log)", "posts")
    fig.add_bar(x=rounded((edges[:-1] * edges[1:]) ** 0.5), y=counts.tolist(), width=rounded(np.diff(edges)),
                customdata=[f"{millis(a)} to {millis(b)}" for a, b in zip(edges[:-1], edges[1:], strict=True)],
                hovertemplate="%{y:,} posts: %{customdata}<extra></extra>", showlegend=False)
    for value, name, side, dash in ((p50, "p50", "right", "dash"), (p99, "p99", "left", "dot")):
        fig.add_vline(value, line={"color": VERMILLION, "dash": dash, "width": 2})
        fig.add_annotation(x=float(np.log10(value)), y=1, yref="paper", yanchor="bottom", showarrow=False,
                           xanchor=side, text=name)  # short, the title has the values: it must not leave a phone
    return fig.update_xaxes(type="log", dtick=1).update_layout(bargap=0.05)


def degree_ccdf(followers: Sequence[int], threshold: int | None = None) -> go.Figure:
    """Share of users with at least x followers, both axes logarithmic; `followers`: one count a user, or a Graph.

    Users without a follower count in the share, but have no place on the axis.
    """
    x, counts = np.unique(np.asarray(getattr(followers, "followers", followers), np.int64), return_counts=True)
    return ccdf_of_counts(x, counts, threshold)


def ccdf_of_counts(values: Sequence[int], counts: Sequence[int], threshold: int | None = None) -> go.Figure:
    """The same from a histogram: `counts[i]` users have `values[i]` followers; values in rising order."""
    x, counts = np.asarray(values, float), np.asarray(counts, float)
    total = counts.sum()
    share = counts[::-1].cumsum()[::-1] / total if total else counts
    title = "No follower counts"
    if total:
        title = f"The largest account has {number(x[counts > 0].max())} followers, the mean " \
                f"{number((x * counts).sum() / total)}"
        if threshold is not None:
            above = int(counts[x >= threshold].sum())
            title = f"{above:,} of {int(total):,} accounts reach the threshold of {threshold:,} followers"
    keep = np.flatnonzero(x > 0)
    if len(keep) > 400:  # a log-log curve looks the same with 400 points
        keep = keep[np.unique(np.round(np.geomspace(1, len(keep), 400)).astype(int) - 1)]
    fig = figure(title, "followers, at least (log)", "share of users (log)")
    fig.add_scatter(x=rounded(x[keep]), y=rounded(share[keep]), mode="lines", line={"shape": "hv", "width": 2.5},
                    showlegend=False, hovertemplate="%{y:.2%} of users have %{x:,} or more<extra></extra>")
    if threshold and total:
        fig.add_vline(threshold, line={"color": VERMILLION, "dash": "dash", "width": 2})
        fig.add_annotation(x=float(np.log10(threshold)), y=1, yref="paper", yanchor="bottom", showarrow=False,
                           text=f"threshold {threshold:,}")
    # an explicit range: plotly would make room for the threshold's label, a power of ten too much on a phone
    right = max([*x[keep][-1:], threshold or 1, 10])
    low = float(np.log10(min([*share[keep][-1:], 0.1])))
    return fig.update_xaxes(type="log", dtick=1, range=[-0.05, float(np.log10(right)) + 0.1]).update_yaxes(
        type="log", dtick=1, tickformat=".2~%", range=[low - 0.2, 0.1])


def way_of_a_post(steps: Sequence[tuple[str, int | None]]) -> go.Figure:
    """When one post reached each station: `steps` are (name, milliseconds since it was written), None for not reached."""
    reached = [(name, ms) for name, ms in steps if ms is not None]
    last = f"{millis(reached[-1][1])} after it was written: {reached[-1][0]}" if reached else "nowhere yet"
    fig = figure(f"The way of a post; {last}", "ms since the post was written", "")
    fig.add_scatter(x=[ms for _, ms in reached], y=[name for name, _ in reached], mode="lines+markers+text", showlegend=False,
                    text=[millis(ms) for _, ms in reached], textposition="top right", cliponaxis=False,
                    marker={"size": 12}, line={"dash": "dot"}, hovertemplate="%{y}: %{x} ms<extra></extra>")
    return fig.update_yaxes(autorange="reversed").update_xaxes(
        range=[0, max([ms for _, ms in reached] + [1]) * 1.2]).update_layout(height=280, margin={"l": 130})


def mimebundle(fig: go.Figure) -> dict:
    """What a notebook front end shows: the figure as plotly JSON, and its title as text where there is no plotly.

    Fits `ipywidgets.Output().outputs` too. Never a FigureWidget: each ships 5 MB and is gone after a reload.
    """
    drawn, title = json.loads(fig.to_json()), fig.layout.title.text or ""
    lines = textwrap.wrap(title, TITLE_WIDTH)         # plotly does not wrap; a long title would run over the edge
    drawn["layout"]["title"] = drawn["layout"].get("title", {}) | {"text": "<br>".join(lines)}
    margin = {"t": 34 + 21 * max(1, len(lines))}
    if sum(bool(t.name) and t.showlegend is not False for t in fig.data) > 1 and fig.layout.showlegend is not False:
        margin["b"] = 95                              # the legend stands at the very bottom, below the axis title: two lines of it
    drawn["layout"]["margin"] = drawn["layout"].get("margin", {}) | margin
    return {"application/vnd.plotly.v1+json": drawn | {"config": {"displayModeBar": False}}, "text/plain": f"Figure: {title}"}


class show:
    """`show(fig)` as the last line of a cell displays the figure."""

    def __init__(self, fig: go.Figure):
        self.fig = fig

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return mimebundle(self.fig)

    def __repr__(self) -> str:
        return f"Figure: {self.fig.layout.title.text}"


# ---------------------------------------------------------------------------------------------------- parts

def figure(title: str, x: str, y: str) -> go.Figure:
    return go.Figure(layout={"template": TEMPLATE, "title": {"text": title}, "xaxis": {"title": {"text": x}},
                             "yaxis": {"title": {"text": y}}})


def bars(title: str, names: list[str], values: list[float], unit: str, measured: int = 1) -> go.Figure:
    """Horizontal bars, so that labels have room on a phone; the measured one in colour, the others hatched grey."""
    fig = figure(title, unit, "")
    fig.add_bar(x=rounded(np.asarray(values, float)), y=names, orientation="h", text=[number(v) for v in values],
                textposition="outside", cliponaxis=False, showlegend=False,
                hovertemplate="%{y}: %{text}<extra></extra>",
                marker={"color": [BLUE if i == measured else GREY for i in range(len(names))],
                        "pattern": {"shape": ["" if i == measured else "/" for i in range(len(names))]}})
    top = max(values, default=0) or 1
    return fig.update_yaxes(autorange="reversed", ticks="", showgrid=False).update_xaxes(range=[0, top * 1.15]) \
        .update_layout(height=120 + 50 * len(names))


def rounded(x: np.ndarray) -> list[float]:
    """Four significant digits: no eye sees more, and the JSON stays small."""
    return [float(f"{v:.4g}") for v in x.tolist()]


def number(x: float) -> str:
    """1,234 or 43.7 or 0.53: three significant digits, or all before the point."""
    return f"{x:,.0f}" if abs(x) >= 100 or x == int(x) else f"{x:.3g}"


def millis(ms: float) -> str:
    return f"{ms / 1000:.3g} s" if ms >= 1000 else f"{ms:.3g} ms"

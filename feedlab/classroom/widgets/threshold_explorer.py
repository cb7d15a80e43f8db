"""The threshold explorer: what pushing less saves, and what it costs the reader."""
from html import escape

import numpy as np
import plotly.graph_objects as go

from ... import db
from ...core import cost
from ...draw import plots
from ...lab import world
from ...lab.graph import Graph
from .. import live_run
from .base import MEASURED, NOW, Frame, two_panels

THRESHOLDS = [10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000]
ACTIVE = [0.2, 0.4, 0.6, 0.8, 1.0]
# the share that the busiest tenth writes -> sigma of the log-normal: share = Phi(sigma - 1.2816), see world
SKEW = {0.10: 0.0, 0.20: 0.44, 0.40: 1.03, 0.60: 1.53, 0.80: world.POST_SIGMA, 0.90: 2.56}
PIN_MARKS = (("A", plots.GREEN, "square"), ("B", plots.PURPLE, "triangle-up"))


class Model:
    """Feed writes a post and pulls a page by threshold, for a graph; core.cost on its follower counts."""

    def __init__(self, graph: Graph, seed: int = 1):
        self.followers, self.users = graph.followers, len(graph.users)
        self.activity = world.activity(graph, seed)

    def at(self, threshold: int, active: float, skew: float) -> tuple[float, float]:
        """(feed writes a post, pulls a page)."""
        act, pushed = live_run.skewed(self.activity, SKEW[skew]), self.followers < threshold
        writes = cost.write_amplification(act.posts, self.followers * active, pushed)
        return writes, cost.pulls_a_page(self.followers, ~pushed, self.users)

    def curves(self, active: float, skew: float) -> tuple[list[float], list[float]]:
        rows = [self.at(t, active, skew) for t in THRESHOLDS]
        return [r[0] for r in rows], [r[1] for r in rows]


class ThresholdExplorer(Frame):
    kind, height = "threshold", 400
    title = "Threshold explorer"
    hint = ("Authors with fewer followers than the threshold are pushed, the others are pulled. Lines are the model, at once; "
            "diamonds are measured while the workload runs.")

    def __init__(self, b):
        super().__init__(b)
        self.model, self.run, self.live, self.pins = Model(self._graph()), None, [], []
        self.threshold = self.slider("threshold (followers)", THRESHOLDS, 500, self.on_threshold, "{:,}".format)
        self.active = self.slider("active users", ACTIVE, 1.0, self.on_active, "{:.0%}".format)
        self.skew = self.slider("busiest tenth writes", list(SKEW), 0.80, self.on_skew, "{:.0%}".format)
        self.go = self.button("Start the workload", self.on_start, "Posts and reads on the live engines", main=True)
        self.halt_button = self.button("Stop", self.on_stop, "Stop workload, relay and consumer")
        self.pin = self.button("Pin this setting", self.on_pin, "Keep it to compare; two at a time")
        self.unpin = self.button("Clear pins", self.on_unpin, "Remove both pins")
        self.show([self.threshold, self.active, self.skew], [self.go, self.halt_button, self.pin, self.unpin])
        self.redraw()

    def _graph(self) -> Graph:
        """The follows that this notebook has loaded, else those of data/, which the workload would load."""
        with db.connect(self.b.addresses.postgres_url, self.b.settings.namespace) as conn:
            if conn.execute("select to_regclass('follows')").fetchone()[0] is None:
                return live_run.default_graph()
            return live_run.graph_in(conn) or live_run.default_graph()

    # --- handlers ---------------------------------------------------------------------------------------------------------

    def on_threshold(self, value: int) -> None:
        """Move the knob of whatever consumer runs in this namespace, and redraw."""
        if value != self.threshold.value:
            self.threshold.value = value           # comes back here
            return
        if self.run is not None and self.run.running:
            self.run.ask(threshold=value)
        else:
            with db.connect(self.b.addresses.postgres_url, self.b.settings.namespace) as conn:
                if conn.execute("select to_regclass('knobs')").fetchone()[0] is not None:
                    db.set_knobs(conn, threshold=value)
        self.redraw()

    def on_active(self, value: float) -> None:
        if value != self.active.value:
            self.active.value = value
            return
        if self.run is not None:
            self.run.ask(active=value)
        self.redraw()

    def on_skew(self, value: float) -> None:
        if value != self.skew.value:
            self.skew.value = value
            return
        if self.run is not None:
            self.run.ask(sigma=SKEW[value])
        self.redraw()

    def on_start(self) -> None:
        self.task(self._work)

    def _work(self) -> None:
        self.b.put_down()
        self.run = live_run.Rounds(self.b.settings, self.b.addresses, on_sample=self.on_sample, say=self.say, on_error=self.fail)
        self.run.ask(threshold=self.threshold.value, active=self.active.value, sigma=SKEW[self.skew.value])
        self.run.start()
        self.run.thread.join()

    def on_stop(self) -> None:
        if self.run is not None:
            self.run.stop()
            self.wait()

    halt = on_stop

    def on_sample(self, sample: live_run.Sample) -> None:
        if self.live and (self.live[-1].threshold, self.live[-1].active) == (sample.threshold, sample.active):
            self.live.pop()                        # the same setting goes on: its counts have grown
        self.live = [*self.live, sample][-8:]
        self.redraw()

    def on_pin(self) -> None:
        self.pins = [*self.pins, (self.setting(), self.model.at(*self.setting()), self.measured())][-2:]
        self.redraw()

    def on_unpin(self) -> None:
        self.pins = []
        self.redraw()

    # --- what is shown ------------------------------------------------------------------------------------------------------

    def setting(self) -> tuple[int, float, float]:
        return self.threshold.value, self.active.value, self.skew.value

    def measured(self) -> live_run.Sample | None:
        """The last sample of the setting that the sliders show."""
        at = [s for s in self.live if (s.threshold, s.active) == self.setting()[:2]]
        return at[-1] if at else None

    def redraw(self) -> None:
        self.draw(self._chart())
        self.info.value = self._table() + self._gauge()

    def _chart(self) -> go.Figure:
        threshold, active, skew = self.setting()
        writes, pulls = self.model.curves(active, skew)
        w, p = self.model.at(threshold, active, skew)
        fig = two_panels(f"Threshold {threshold:,}: {plots.number(round(w, 1))} feed writes a post, {plots.number(round(p, 2))} pulls "
                         "a page (model)", "threshold (followers, log)", "feed writes a post", "pulls a page", type="log", dtick=1,
                         range=[0.95, 4.05])
        for n, (axes, curve) in enumerate((({}, writes), ({"xaxis": "x2", "yaxis": "y2"}, pulls))):
            def add(name, x, y, **look):
                name += ": pulls" * n  # noqa: B023
                fig.add_scatter(name=name, x=x, y=plots.rounded(np.array(y, float)), showlegend=not n, **axes, **look)  # noqa: B023
            add("model", THRESHOLDS, curve, mode="lines", line={"color": plots.BLUE, "width": 2.5}, hovertemplate="%{y} at %{x}")
            add("now", [threshold], [(w, p)[n]], mode="markers", marker=NOW)
            live = [(s.threshold, (s.writes_a_post, s.pulls_a_page)[n]) for s in self.live if s.posts]
            if live:
                add("measured", [t for t, _ in live], [y for _, y in live], mode="markers", marker=MEASURED)
            for (mark, colour, symbol), (setting, model, seen) in zip(PIN_MARKS, self.pins, strict=False):
                y = (seen.writes_a_post, seen.pulls_a_page)[n] if seen else model[n]
                add(f"pin {mark}", [setting[0]], [y], mode="markers+text", text=[mark], textposition="top center",
                    marker={"size": 11, "color": colour, "symbol": symbol})
        return fig

    def _table(self) -> str:
        columns = [("model", self.setting(), self.model.at(*self.setting()), None),
                   ("measured", self.setting(), None, self.measured())]
        columns += [(f"pin {mark[0]}, {'measured' if pin[2] else 'model'}", *pin) for mark, pin in zip(PIN_MARKS, self.pins, strict=False)]
        rows = {"threshold": lambda s, m, x: f"{s[0]:,}", "active users": lambda s, m, x: f"{s[1]:.0%}",
                "feed writes a post": lambda s, m, x: f"{x.writes_a_post:.1f}" if x and x.posts else f"{m[0]:.1f}" if m else "-",
                "pulls a page": lambda s, m, x: f"{x.pulls_a_page:.2f}" if x else f"{m[1]:.2f}" if m else "-",
                "Redis, timelines": lambda s, m, x: f"{x.redis_bytes / 1e6:.2f} MB" if x else "-",
                "lag, largest": lambda s, m, x: f"{x.lag:,} event{'s' * (x.lag != 1)}" if x else "-",
                "page p50 / p99": lambda s, m, x: f"{x.p50_ms:.1f} / {x.p99_ms:.1f} ms" if x else "-"}
        head = "".join(f"<th scope='col'>{escape(c[0])}</th>" for c in columns)
        body = "".join(f"<tr><th scope='row'>{name}</th>" + "".join(f"<td>{cell(*c[1:])}</td>" for c in columns) + "</tr>"
                       for name, cell in rows.items())
        return f"<table class='fl'><tr><th></th>{head}</tr>{body}</table>"

    def _gauge(self) -> str:
        s, (threshold, active, _) = self.measured(), self.setting()
        sheet = cost.Sheet()
        median, sigma = cost.fit_lognormal(sheet.followers, sheet.largest, sheet.users)
        alpha, xmin = cost.fit_pareto(sheet.followers, sheet.largest, sheet.users)
        left = [sheet.followers * active * (1 - share) for share in (
            cost.lognormal_share(threshold, median, sigma), cost.pareto_share(threshold, alpha, xmin, sheet.largest))]
        text = f"modelled at 300 M users, this threshold: {min(left):.0f} to {max(left):.0f} feed writes a post, by the tail assumed"
        if s and s.posts:
            exact = "equal to" if s.deliveries == s.expected else "NOT equal to"
            off = self.model.at(*self.setting())[0] / s.writes_a_post - 1 if s.writes_a_post else 0.0
            text = (f"measured at {s.users:,} users: {s.deliveries:,} feed writes for {s.posts:,} posts, {exact} the graph's count of "
                    f"{s.expected:,}; the model says {abs(off):.1%} {'less' if off < 0 else 'more'} ({s.posts:,} posts are a sample) · "
                    + text)
        return f"<div class='fl-gauge'>{text}</div>"

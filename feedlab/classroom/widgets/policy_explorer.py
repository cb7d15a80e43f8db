"""The policy lab as a widget: a graph in, sliders, the model's curves at once, and live points that land on them.

    from feedlab.classroom.widgets.policy_explorer import PolicyLab
    PolicyLab(b, follows, rates)       # b: an open book; the last line of a cell
"""
from dataclasses import replace

import numpy as np

from ...core import policy
from ...core.policy import Rates
from ...draw import plots
from ...lab import calibrate, policy_run
from ...policies import bursts, graphs, report, simulate
from ...policies.graphs import Follows
from ...policies.simulate import Assumptions, Costs
from .base import MEASURED, NOW, Frame, two_panels

AWAY_DAYS = 12.0      # mean time since the last visit that is drawn when nobody knows better (exponential; an assumption)
WINDOWS = [2, 4, 7, 14, 30, 60]
BURSTS = [1, 2, 5, 10, 20]


class PolicyLab(Frame):
    kind, height = "policy", 400
    title = "Policy lab"
    hint = ("Push below the threshold, pull at or above it, only to readers seen within the window. The curves are the model's; Measure "
            "sends posts through the real pipeline at this threshold and puts what was counted beside them.")

    def __init__(self, b, follows: Follows | None = None, rates: Rates | None = None, scale: float = 300e6):
        super().__init__(b)
        self.follows = follows or graphs.generated(users=600, follows=20, seed=4)
        rates = rates or Rates.even()
        if rates.away_days is None:
            ids = self.follows.ids
            away = np.random.default_rng(2).exponential(AWAY_DAYS, len(ids))
            rates = Rates(ids, rates.posts_of(ids), rates.reads_of(ids), away)
        self.rates, self.scale = rates, scale
        self.people = simulate.population(self.follows, rates)
        known = calibrate.stored(b.settings)
        self.costs = known.costs if known else Costs()
        self.points: dict[tuple, list[dict]] = {}
        self.curves: dict[int, list] = {}
        top = int(self.follows.followers.max())
        self.steps = sorted({*np.geomspace(1, top + 1, 16).round().astype(int).tolist(), top + 1})
        middle = self.steps[len(self.steps) * 2 // 3]
        self.threshold = self.slider("threshold (followers)", self.steps, middle, lambda _: self.redraw(), "{:,}".format)
        self.feed_max = self.slider("FEED_MAX (entries)", [50, 100, 126, 200, 300, 500, 800], 500, lambda _: self.redraw(), "{:,}".format)
        self.window = self.slider("active window (days)", WINDOWS, 30, lambda _: self.redraw())
        self.burst = self.slider("burst (times the mean)", BURSTS, 10, lambda _: self.redraw())
        self.limit = self.slider("encoding limit", [0, 128, 512, 1_000], 128, lambda _: self.redraw(), "{:,}".format)
        self.measure = self.button("Measure this threshold", self.on_measure, "300 posts and 60 pages on the live engines", main=True)
        self.show([self.threshold, self.feed_max, self.window, self.burst, self.limit], [self.measure])
        self.redraw()

    @property
    def assume(self) -> Assumptions:
        return Assumptions(costs=self.costs, scale=self.scale, feed_max=self.feed_max.value, listpack_limit=self.limit.value,
                           active_days=self.window.value)

    # --- live -----------------------------------------------------------------------------------------------------------------

    def on_measure(self) -> None:
        self.task(self._measure, self.threshold.value, self.window.value, self.feed_max.value)

    def _measure(self, threshold: int, window: int, feed_max: int) -> None:
        s = self.b.settings.model_copy(update={"active_days": window})
        rows = policy_run.check(s, self.b.addresses, self.follows, self.rates, policy.Threshold(threshold), self.costs, posts=300, pages=60,
                          feed_max=feed_max, settled=True, progress=self.say)
        self.points[threshold, window] = rows
        writes, size, sources = rows[:3]
        self.tell(f"Threshold {threshold:,}: {writes['measured']:.4g} feed writes a post measured, {writes['predicted']:.4g} predicted "
                  f"for these 300 posts; feeds took {size['off']:.1%} more or less than the model; "
                  f"{sources['measured']:.3g} sources a page.")
        self.redraw()

    # --- what is shown -----------------------------------------------------------------------------------------------------------

    def curve(self, window: int) -> list[tuple[int, float, float]]:
        """(threshold, feed writes a post, sources a page here) for the window; made once each."""
        if window not in self.curves:
            reach, pages = self.people.reads_of_followers(window), float(self.people.reads @ self.people.active(window))
            self.curves[window] = [(k, float(self.people.posts @ t.pushed) / self.people.posts_a_day,
                                    1 + float(reach[t.some_pull].sum()) / pages)
                                   for k in self.steps for t in [simulate.tally(self.people, policy.Threshold(k), window)]]
        return self.curves[window]

    def redraw(self) -> None:
        here, window = self.threshold.value, self.window.value
        curve = self.curve(window)
        now = next(row for row in curve if row[0] == here)
        fig = two_panels(f"Threshold {here:,}: {plots.number(now[1])} feed writes a post, {plots.number(now[2])} sources a page",
                         "threshold (followers)", "feed writes a post", "sources a page", type="log")
        for i, more in ((1, {}), (2, {"xaxis": "x2", "yaxis": "y2", "showlegend": False})):
            fig.add_scatter(x=[r[0] for r in curve], y=plots.rounded(np.array([r[i] for r in curve])), mode="lines", name="model",
                            line={"color": plots.BLUE, "width": 2.5}, **more)
            fig.add_scatter(x=[here], y=[float(f"{now[i]:.4g}")], mode="markers", name="now", marker=NOW, **more)
            points = [(k, rows[0 if i == 1 else 2]["measured"]) for (k, w), rows in self.points.items() if w == window]
            if points:
                fig.add_scatter(x=[k for k, _ in points], y=[y for _, y in points], mode="markers", name="measured", marker=MEASURED,
                                **more)
        self.draw(fig)
        self.info.value = self._table()

    def _table(self) -> str:
        rule, assume = policy.Threshold(self.threshold.value), self.assume
        t = simulate.tally(self.people, rule, assume.active_days)
        o = simulate.outcome(self.people, rule, t, assume, self.people.reads_of_followers(assume.active_days), repetitions=10)
        start, end, _ = bursts.BURST
        b = bursts.run(self.people, rule, t, replace(assume, scale=min(self.scale, 3e6)), burst=(start, end, self.burst.value),
                       repetitions=2)
        low, high = o.spread["write_amplification"]
        rows = [("feed writes a day", f"{report.number(o.deliveries_per_day)}, {low:.3g} to {high:.3g} a post over ten drawn days"),
                ("cores at the peak", report.number(o.cpu_cores)), ("Redis", report.number(o.redis_bytes, "b")),
                ("largest pushed author", f"{o.largest_fan_out_seconds:.3g} s"),
                (f"visible in a burst of {self.burst.value} x, p99",
                 f"{b['fresh_s_p99']:.3g} s, 3 M users, {b['consumers']} consumer{'s' * (b['consumers'] > 1)}")]
        body = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in rows)
        return (f"<table class='fl'>{body}</table><div class='fl-gauge'>measured on {self.follows.users:,} users, modelled for "
                f"{report.number(self.scale)} as copies of them; costs: {self.costs.source}</div>")

"""The burst console: a queue that grows, a threshold that gives way, a delay that readers see."""
import plotly.graph_objects as go

from ...draw import plots
from .. import live_run
from .base import Frame

RATES = [5, 10, 20, 40, 80]
BURSTS = [200, 500, 1_000, 2_000, 4_000]
WINDOW_S = 60


class BurstConsole(Frame):
    kind, height = "burst", 500
    title = "Burst console"
    hint = ("Posts come at a rate; a burst comes on top. While more events wait than the upper mark, the controller halves the threshold; "
            "once the queue is calm it doubles it again.")

    def __init__(self, b):
        super().__init__(b)
        self.run: live_run.Bursts | None = None
        self.ticks: list[live_run.Tick] = []
        self.rate = self.slider("posts a second", RATES, 20, self.on_rate)
        self.size = self.slider("size of a burst", BURSTS, 1_000, lambda value: None, "{:,}".format)
        self.go = self.button("Start the workload", self.on_start, "Posts on the live engines, relay and consumer as processes", main=True)
        self.inject = self.button("Inject the burst", self.on_burst, "So many posts as fast as they go")
        self.kill = self.button("Kill the consumer", self.on_kill, "kill -9; another is started at once")
        self.halt_button = self.button("Stop", self.on_stop, "Stop workload, relay and consumer")
        self.show([self.rate, self.size], [self.go, self.inject, self.kill, self.halt_button])
        self.redraw()

    # --- handlers -------------------------------------------------------------------------------------------------------------

    def on_rate(self, value: int) -> None:
        if value != self.rate.value:
            self.rate.value = value
            return
        if self.run is not None:
            self.run.ask(rate=float(value))

    def on_start(self) -> None:
        self.task(self._work)

    def _work(self) -> None:
        self.b.put_down()
        self.ticks = []
        self.run = live_run.Bursts(self.b.settings, self.b.addresses, on_sample=self.on_tick, say=self.say, on_error=self.fail)
        self.run.ask(rate=float(self.rate.value))
        self.run.start()
        self.run.thread.join()

    def _running(self) -> live_run.Bursts | None:
        if self.run is None or not self.run.running:
            self.tell("Nothing runs yet. Press Start the workload first.")
            return None
        return self.run

    def on_burst(self) -> None:
        if run := self._running():
            run.burst(self.size.value)

    def on_kill(self) -> None:
        if run := self._running():
            run.kill()

    def on_stop(self) -> None:
        if self.run is not None:
            self.run.stop()
            self.wait()

    halt = on_stop

    def on_tick(self, tick: live_run.Tick) -> None:
        self.ticks.append(tick)
        if len(self.ticks) % 4 == 1:               # a drawing a second: a browser on a busy machine must keep up
            self.redraw()

    # --- what is shown ----------------------------------------------------------------------------------------------------------

    def redraw(self) -> None:
        self.draw(self._chart())
        m = live_run.Bursts.marks
        self.info.value = (
            f"<div class='fl-gauge'>The controller halves the threshold above {m.high:,} waiting events and doubles it when fewer than "
            f"{m.low} have waited for {m.patience_s:g} s; never below {m.floor} or above {m.ceiling:,} followers. Events are outbox rows "
            "and Kafka records; the delay is from writing a post to its last feed.</div>")

    def _chart(self) -> go.Figure:
        ticks = [t for t in self.ticks if t.t_s > self.ticks[-1].t_s - WINDOW_S]
        if ticks:
            last, worst = ticks[-1], max(t.lag for t in ticks)
            title = f"{last.lag:,} events wait (at most {worst:,}), threshold {last.threshold:,}"
        else:
            title = "Nothing has run yet"
        fig = plots.figure(title, "seconds since the start", "")
        t = [round(x.t_s, 2) for x in ticks]
        panels = (("posts a second", "posts / s", [round(x.posts_a_second, 1) for x in ticks], plots.BLUE, "linear"),
                  ("events waiting", "waiting", [x.lag for x in ticks], plots.VERMILLION, "linear"),
                  ("threshold", "threshold", [x.threshold for x in ticks], plots.GREEN, "log"),
                  ("visible after", "visible, s", [round(x.delay_ms / 1000, 3) for x in ticks], plots.PURPLE, "linear"))
        base = plots.TEMPLATE.layout.yaxis.to_plotly_json()
        for n, (name, short, ys, colour, kind) in enumerate(panels, 1):
            axis = "" if n == 1 else str(n)
            fig.add_scatter(x=t, y=ys, name=name, mode="lines", yaxis=f"y{axis}", showlegend=False, connectgaps=True,
                            line={"color": colour, "width": 2.5, "shape": "hv" if name == "threshold" else "linear"})
            top = 1 - (n - 1) * 0.26
            fig.update_layout({f"yaxis{axis}": base | {"domain": [top - 0.21, top], "title": {"text": short},
                                                       "type": kind} | ({"rangemode": "tozero"} if kind == "linear" else
                                                                        {"range": [1.5, 3.5], "tickvals": [50, 200, 1000, 2000]})})
        begin = t[0] if t else 0
        for h in (self.run.happened if self.run else []):
            if h.t_s >= begin:
                fig.add_vline(h.t_s, line={"color": plots.GREY, "dash": "dot", "width": 1.5})
                fig.add_annotation(x=h.t_s, y=1, yref="paper", yanchor="bottom", showarrow=False, text=h.text, font={"size": 11})
        return fig.update_xaxes(range=[begin, max(begin + 10, t[-1] if t else 10)], anchor="y4")

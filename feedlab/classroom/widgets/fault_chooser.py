"""The fault chooser: F1 to F12 on the textbook and on ours, the same history, side by side."""
import re
from dataclasses import dataclass, field
from html import escape

import plotly.graph_objects as go

from ... import pull
from ...core import check
from ...draw import plots
from ...verify import faults
from ...verify.histories import History
from ...verify.runner import Runner
from ...verify.systems import SYSTEMS
from .base import Frame

NAMES = [f"F{n}" for n in range(1, 13)]
WORDS = {
    "tick": "{0} ms pass", "post": "user {0} posts", "pump": "deliver everything", "evict": "Redis loses the feed of user {0}",
    "burst": "user {0} posts {1} times in one millisecond", "threshold": "the threshold moves to {0}",
    "page": "user {0} reads a page of {1}", "follow": "user {0} follows user {1}", "unfollow": "user {0} unfollows user {1}",
    "rebuild": "the feed of user {0} begins to be rebuilt", "rebuild_on": "the rebuild goes on",
    "late": "user {0} posts, and the transaction stays open", "commit": "that transaction commits",
    "hold": "a consumer has read the followers of that post, and is held up", "hold_on": "that consumer writes now",
    "delete": "post {0} is deleted"}
# a probe's finding as a number: how to find it in the sentence, and its unit
PROBED = {"F9": (r"(\d+) of 10", "of 10 malformed cursors, refused with 400"), "F11": (r"(\d+) B an entry", "bytes an entry"),
          "F12": (r"count (\d+)", "followers counted after two followed")}


def in_words(history: History) -> list[str]:
    """The steps as one would tell them; posts in a row are one line, and time that passes is none.

    >>> in_words(History([["tick", 10], ["post", 1], ["tick", 10], ["post", 1], ["pump"], ["evict", 0]]))
    ['user 1 posts 2 times', 'deliver everything', 'Redis loses the feed of user 0']
    """
    rows: list[list] = []         # [author or None, how many, text]
    for name, *args in history.steps:
        if name == "tick":
            continue
        if name == "post":
            if rows and rows[-1][0] == args[0]:
                rows[-1][1] += 1
            else:
                rows.append([args[0], 1, ""])
        else:
            rows.append([None, 0, WORDS[name].format(*(a + 1 if name == "delete" else a for a in args))])
    return [text or f"user {author} posts" + (f" {n} times" if n > 1 else "") for author, n, text in rows]


@dataclass
class Side:
    """What one system did: verdicts, the pages of one scroll, and the SQL answer; post numbers, newest first. `said`: a probe's words."""
    verdicts: list[check.Verdict] = field(default_factory=list)
    pages: list[list[int]] = field(default_factory=list)
    answer: list[int] = field(default_factory=list)
    said: str = ""

    @property
    def shown(self) -> list[int]:
        return [i for page in self.pages for i in page]

    @property
    def sentence(self) -> str:
        return self.said or (str(self.verdicts[0]) if self.verdicts else "every page equals the SQL answer")


class FaultChooser(Frame):
    kind, height = "faults", 280
    title = "Fault chooser"
    hint = "One history, step by step, on the design as it is usually printed and on ours. The checker holds every page against SQL."

    def __init__(self, b):
        super().__init__(b)
        self.sides: dict[str, Side] = {}
        self.fault = self.choice("fault", [(n, n) for n in NAMES], "F2", self.on_fault, [faults.CATALOGUE[n].title for n in NAMES])
        self.go = self.button("Run it on both", self.on_run, "On the live engines, in namespaces of its own", main=True)
        self.show([self.fault], [self.go])
        self.redraw()

    # --- handlers ------------------------------------------------------------------------------------------------------------

    def on_fault(self, name: str) -> None:
        if name != self.fault.value:
            self.fault.value = name
            return
        self.sides = {}
        self.tell("")
        self.redraw()

    def on_run(self) -> None:
        self.task(self._run, self.fault.value)

    def _run(self, name: str) -> None:
        fault, sides, wanted = faults.CATALOGUE[name], {}, None
        if fault.probe:
            self.say(f"{name} on both")
            sides = {system: Side(said=text) for system, text in self.b.fault(name).said.items()}
        else:
            for n, system in enumerate(("textbook", "ours")):
                self.say(f"{name} on {system}", n, 2)
                if self.ending.is_set():
                    return
                sides[system], wanted = self._history(fault.history, system, wanted)
        if self.fault.value == name:               # else another was chosen meanwhile
            self.sides = sides
            self.redraw()

    def _history(self, history: History, system: str, wanted: tuple | None) -> tuple[Side, tuple]:
        """Run it. The scroll that is shown is the first that the checker finds something in; ours shows the same kind of scroll."""
        name = self.b.also(f"{self.b.settings.namespace[:16]}_check_{system}")
        s = self.b.settings.model_copy(update={"namespace": name, "partitions": 2, "batch": 2})
        with Runner(s, self.b.addresses, SYSTEMS[system]) as runner:
            verdicts = runner.run(history).smallest()
            rank = {i: n for n, i in enumerate(sorted(p.id for p in runner.made), 1)}
            answer = [rank[e.id] for e in pull.everything(runner.lab.conn, 0)]
            scrolls: dict[int, list[check.Read]] = {}
            for read in runner.facts.reads:
                if read.drained and read.user == 0:
                    scrolls.setdefault(read.scroll, []).append(read)
            found = {n: check.check(runner.facts, reads=reads).verdicts for n, reads in scrolls.items()}
            # the scroll that the first sentence speaks of, if it is one of these
            bad = sorted((n for n in found if found[n]), key=lambda n: verdicts[0] not in found[n])
        same = [n for n, reads in scrolls.items() if (reads[0].label, reads[0].limit) == wanted]
        reads = scrolls[(bad or same or list(scrolls))[0]]
        return Side(verdicts, [[e.id for e in r.entries] for r in reads], answer), (reads[0].label, reads[0].limit)

    # --- what is shown ----------------------------------------------------------------------------------------------------------

    def redraw(self) -> None:
        self.draw(self._chart())
        self.info.value = self._words()

    def _words(self) -> str:
        fault = faults.CATALOGUE[self.fault.value]
        cards = "".join(f"<div class='{'fl-error' if side.verdicts else 'fl-note'}'><b>{escape(name)}</b><br>{escape(side.sentence)}</div>"
                        for name, side in self.sides.items())
        if fault.probe:
            about = escape(" ".join(fault.probe.__doc__.split(": ", 1)[-1].split()))
        else:
            h = fault.history
            about = (f"The history (user 0 reads; threshold {h.threshold} followers, FEED_MAX {h.feed_max}): "
                     + "; ".join(map(escape, in_words(h))) + ".")
        return f"<div class='fl-two'>{cards}</div><div class='fl-gauge'><b>{escape(fault.name)}: {escape(fault.title)}.</b> {about}</div>"

    def _chart(self) -> go.Figure:
        fault = faults.CATALOGUE[self.fault.value]
        if not self.sides:
            fig = plots.figure(f"{fault.name}: {fault.title} (not run yet)", "", "")
            return fig.update_xaxes(visible=False).update_yaxes(visible=False)
        if fault.probe:
            return self._bars(fault)
        return self._lanes(fault)

    def _bars(self, fault) -> go.Figure:
        pattern, unit = PROBED[fault.name]
        found = {name: float(m[1]) for name, side in self.sides.items() if (m := re.search(pattern, side.said))}
        return plots.bars(f"{fault.name}: {fault.title}", list(found), list(found.values()), unit, measured=list(found).index("ours")
                          if "ours" in found else 0)

    def _lanes(self, fault) -> go.Figure:
        answer = next(iter(self.sides.values())).answer
        lost = {name: [i for i in answer if i not in side.shown] for name, side in self.sides.items()}
        gone = lost.get("textbook", [])
        title = f"{fault.name}: the textbook loses {len(gone)} of {len(answer)} posts" if gone else \
            f"{fault.name}: on the textbook {self.sides['textbook'].verdicts[0].kind}" if self.sides["textbook"].verdicts else fault.name
        fig = plots.figure(f"{title}; ours {'shows all' if not lost['ours'] else 'too'}", "place in the SQL answer, newest first", "")
        lanes = {"SQL answer": [answer]} | {name: side.pages for name, side in self.sides.items()}
        place = {post: n for n, post in enumerate(answer, 1)}
        for row, (name, pages) in enumerate(lanes.items()):
            shown = [i for page in pages for i in page]
            order = len(answer)
            for i in shown:                       # what SQL does not answer stands to the right
                if i not in place:
                    order += 1
                    place[i] = order
            missing = [i for i in answer if i not in shown]
            for kind, ids, mark in (("shown", shown, "circle"), ("missing", missing, "x-open")):
                colour = plots.VERMILLION if kind == "missing" else {"SQL answer": plots.GREY}.get(name, plots.BLUE)
                if ids:
                    fig.add_scatter(
                        x=[place[i] for i in ids], y=[row] * len(ids), text=[str(i) for i in ids], name=f"{name}: {kind}", showlegend=False,
                        mode="markers+text", textposition="top center", textfont={"size": 11}, cliponaxis=False,
                        marker={"size": 13, "color": colour, "symbol": mark, "line": {"width": 2, "color": colour}},
                        hovertemplate=f"post %{{text}}, {kind}<extra>{name}</extra>")
            for page in pages:
                if page and name != "SQL answer":
                    at = [place[i] for i in page]
                    fig.add_shape(type="rect", x0=min(at) - 0.4, x1=max(at) + 0.4, y0=row - 0.42, y1=row + 0.3, layer="below",
                                  line={"width": 1, "color": plots.GREY}, fillcolor="rgba(127,127,127,0.08)")
        fig.update_yaxes(tickvals=list(range(len(lanes))), ticktext=list(lanes), range=[len(lanes) - 0.5, -0.6], showgrid=False, ticks="")
        return fig.update_xaxes(range=[0.3, max(place.values(), default=1) + 0.7], dtick=1 if len(place) < 30 else 5, showgrid=False)

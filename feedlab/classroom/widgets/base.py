"""What all widgets have: labelled controls, a chart, a box for errors, a progress line, threads that end, and a static picture.

A chart is an `ipywidgets.Output` whose `outputs` are set: never a FigureWidget (5 MB each, gone after a reload). Callbacks print
nothing and raise nothing: what goes wrong is said in the box.
"""
import atexit
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from html import escape

import ipywidgets as w
import plotly.graph_objects as go

from ...draw import plots
from ...errors import Conflict, FeedlabError
from ...fanout import Done
from ...lab.session import Lab, open_lab, remove
from ...lab.stations import Stations

_live: dict[tuple[str, str], "Frame"] = {}     # (namespace, kind) -> the widget that stands there now

STYLE = """<style>
.fl-widget {border: 1px solid var(--jp-border-color2, #bbb); border-radius: 6px; padding: 10px 14px 12px; max-width: 1080px;
  box-sizing: border-box}
.fl-widget .widget-html-content, .fl-widget .jupyter-widgets.widget-html > div {line-height: 1.45}
.fl-head b {font-size: 15px} .fl-head span {color: var(--jp-ui-font-color2, #555)}
.fl-error {border-left: 4px solid #D55E00; background: rgba(213,94,0,.10); padding: 6px 10px; margin: 4px 0}
.fl-note {border-left: 4px solid #0072B2; background: rgba(0,114,178,.08); padding: 6px 10px; margin: 4px 0}
.fl-busy progress {width: 220px; vertical-align: middle}
.fl-widget table.fl {border-collapse: collapse; margin: 4px 0; font-size: 13px}
.fl-widget table.fl th, .fl-widget table.fl td {padding: 3px 14px 3px 0; text-align: right; border-bottom: 1px solid
  var(--jp-border-color3, #ddd); font-variant-numeric: tabular-nums; white-space: nowrap}
.fl-widget table.fl th:first-child, .fl-widget table.fl td:first-child {text-align: left}
.fl-gauge {font-size: 12px; color: var(--jp-ui-font-color2, #555)}
.fl-cards {display: flex; gap: 4px; align-items: stretch; margin: 6px 0}
.fl-card {flex: 1 1 0; min-width: 0; border: 1px solid var(--jp-border-color2, #bbb); border-radius: 6px; padding: 6px 8px; font-size: 12px;
  line-height: 1.35}
.fl-card b {display: block; font-size: 13px} .fl-card.on {border: 2px solid #0072B2; background: rgba(0,114,178,.10); padding: 5px 7px}
.fl-card.done {border-color: #009E73} .fl-arrow {align-self: center; color: var(--jp-ui-font-color2, #555)}
.fl-two {display: flex; gap: 12px; flex-wrap: wrap} .fl-two > div {flex: 1 1 320px}
.fl-widget .jupyter-widget-toggle-buttons, .fl-widget .widget-toggle-buttons {display: flex; flex-flow: row nowrap; align-items: center}
.fl-widget .widget-toggle-buttons .widget-label {flex: none; margin-right: 8px}
.fl-widget .widget-toggle-buttons .mod-active {background: #0072B2; color: #fff}
.fl-widget button:focus-visible, .fl-widget select:focus-visible, .fl-widget .noUi-handle:focus-visible {outline: 3px solid #E69F00;
  outline-offset: 1px}
</style>"""

NOW = {"size": 11, "color": plots.BLUE, "symbol": "circle-open", "line": {"width": 3}}      # where the controls stand, on a model's curve
MEASURED = {"size": 11, "color": plots.VERMILLION, "symbol": "diamond"}


def two_panels(title: str, x: str, left: str, right: str, **xaxis) -> go.Figure:
    """A figure of two panels with the same x. The right one has the axes x2 and y2."""
    fig = plots.figure(title, "", "")
    x_base, y_base = (axis.to_plotly_json() for axis in (plots.TEMPLATE.layout.xaxis, plots.TEMPLATE.layout.yaxis))
    return fig.update_layout(
        xaxis=xaxis | {"title": {"text": x}, "domain": [0, 0.45]},
        xaxis2=x_base | xaxis | {"title": {"text": x}, "domain": [0.56, 1], "anchor": "y2"},
        yaxis={"title": {"text": left}, "rangemode": "tozero"},
        yaxis2=y_base | {"title": {"text": right}, "rangemode": "tozero", "anchor": "x2"})


class Frame:
    """A widget. A subclass sets `kind`, `title` and `hint`, makes its controls with `slider`, `choice` and `button`, and ends its
    constructor with `self.show(...)`. Usable from any thread; `task` runs one piece of work at a time beside the notebook. Buttons
    are not greyed meanwhile (a grey button loses the keyboard's focus): a press too many is answered by a sentence."""

    kind, title, hint, height = "", "", "", 380

    def __init__(self, b):
        key = (b.settings.namespace, self.kind)
        earlier = _live.pop(key, None)
        if earlier is not None:
            earlier.stop()
        self.b, self.lock, self.stack = b, threading.RLock(), ExitStack()
        self.ending, self.worker, self._key, self._said = threading.Event(), None, key, 0.0
        self._controls: list[w.Widget] = []
        self.figure: go.Figure | None = None
        self.lab: Lab | None = None
        self.hand: Stations | None = None
        self.chart = w.Output(layout=w.Layout(height=f"{self.height + 12}px", overflow="hidden", width="100%"))
        self.message, self.busy, self.info = w.HTML(), w.HTML(), w.HTML()
        self.box = w.VBox([])
        self.box.add_class("fl-widget")
        _live[key] = self
        b.on_end(self.stop)
        atexit.register(self.stop)

    # --- parts ---------------------------------------------------------------------------------------------------------

    def slider(self, label: str, options: list, value, handler: Callable, shown: Callable = str) -> w.SelectionSlider:
        """A slider over these values, moved by arrow keys, one value a key; `handler(value)` on each move that ends."""
        s = w.SelectionSlider(options=[(shown(o), o) for o in options], value=value, description=label, continuous_update=False,
                              style={"description_width": "150px"}, layout=w.Layout(width="440px"))
        return self._listen(s, handler)

    def choice(self, label: str, options: list[tuple], value, handler: Callable = lambda value: None,
               tips: list[str] = ()) -> w.ToggleButtons:
        """One of a few, as buttons side by side; options are (text, value). No drop-down list: JupyterLab takes its arrow keys away."""
        t = w.ToggleButtons(options=options, value=value, description=label, tooltips=list(tips),
                            style={"description_width": "initial", "button_width": "auto"}, layout=w.Layout(width="auto"))
        return self._listen(t, handler)

    def check(self, label: str, value: bool, handler: Callable) -> w.Checkbox:
        return self._listen(w.Checkbox(value=value, description=label, indent=False, layout=w.Layout(width="auto")), handler)

    def button(self, label: str, handler: Callable, tip: str, main: bool = False) -> w.Button:
        """A button; `handler()` without arguments. The `main` one is filled."""
        made = w.Button(description=label, tooltip=tip, button_style="primary" if main else "", layout=w.Layout(width="max-content"))
        made.on_click(lambda _: self.guarded(handler))
        self._controls.append(made)
        return made

    def _listen(self, control, handler):
        control.observe(lambda change: self.guarded(handler, change["new"]), "value")
        self._controls.append(control)
        return control

    def rows(self, *rows) -> list[w.Widget]:
        """Each row of controls side by side, broken into several lines where the page is narrow."""
        flow = {"flex_flow": "row wrap", "grid_gap": "4px 8px"}
        return [w.HBox(list(row), layout=w.Layout(**flow)) if isinstance(row, (list, tuple)) else row for row in rows]

    def show(self, *rows) -> None:
        """Put everything together: head, rows of controls, progress, box, chart, what is known in words."""
        head = w.HTML(f"{STYLE}<div class='fl-head'><b>{escape(self.title)}</b><br><span>{self.hint}</span></div>")
        self.box.children = (head, *self.rows(*rows), self.busy, self.message, self.chart, self.info)

    # --- saying and drawing -----------------------------------------------------------------------------------------------

    def draw(self, fig: go.Figure) -> None:
        """Show a figure; one that is the same as before is not sent again."""
        fig.update_layout(height=self.height, title_font_size=15).update_xaxes(title_font_size=13).update_yaxes(title_font_size=13)
        bundle = plots.mimebundle(fig)
        self.figure = fig
        if not self.chart.outputs or self.chart.outputs[0]["data"] != bundle:
            self.chart.outputs = ({"output_type": "display_data", "data": bundle, "metadata": {}},)

    def tell(self, text: str) -> None:
        """A sentence in the box: what was done or found."""
        self.message.value = f"<div class='fl-note' role='status'>{escape(text)}</div>" if text else ""

    def fail(self, error: BaseException) -> None:
        """An error in the box, with what to do next."""
        text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if not isinstance(error, FeedlabError):
            text = f"{type(error).__name__}: {text} Run this cell again; `feedlab doctor` says whether the engines are well."
        self.message.value = f"<div class='fl-error' role='alert'>{escape(text)}</div>"

    def say(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Progress of a task; "" takes the line away."""
        now = time.monotonic()
        if done is not None and done != total and now - self._said < 0.15:
            return
        self._said = now
        bar = "" if done is None else f"<progress value='{done}' max='{max(1, total)}'></progress> {done:,} of {total:,}"
        self.busy.value = f"<div class='fl-busy' role='status'>{escape(text)} {bar}</div>" if text else ""

    # --- running ------------------------------------------------------------------------------------------------------------

    def guarded(self, work: Callable, *args):
        """Call, with everything that is raised said in the box. What it returned, or None."""
        try:
            with self.lock:
                return work(*args)
        except Exception as e:
            self.fail(e)
            return None

    def task(self, work: Callable, *args) -> None:
        """Run in a thread beside the notebook. Raises Conflict when something runs already."""
        if self.ending.is_set():
            raise Conflict("this widget was stopped. Run its cell again.")
        if self.worker is not None and self.worker.is_alive():
            raise Conflict("this widget is still at work. Wait until its progress line is gone.")

        def run() -> None:
            try:
                work(*args)
            except Exception as e:
                if not self.ending.is_set():
                    self.fail(e)
            finally:
                self.say("")
        self.worker = threading.Thread(target=run, name=f"feedlab widget {self.kind}", daemon=True)
        self.worker.start()

    def wait(self, timeout_s: float = 60) -> None:
        """Until the task is over, for scripts and tests. Raises TimeoutError."""
        if self.worker is not None:
            self.worker.join(timeout_s)
            if self.worker.is_alive():
                raise TimeoutError(f"the widget is still at work after {timeout_s:.0f} s")

    def own_lab(self, **changes) -> Lab:
        """A lab in a namespace of this widget alone, emptied first, removed by `stop`. The same one when asked again."""
        if self.lab is None:
            if self.ending.is_set():
                raise Conflict("this widget was stopped. Run its cell again.")
            name = self.b.also(f"{self.b.settings.namespace[:16]}_{self.kind}")
            s = self.b.settings.model_copy(update={"namespace": name, "partitions": 2, "local_copy_s": 0.0} | changes)
            remove(s, self.b.addresses)
            self.stack.callback(remove, s, self.b.addresses)
            self.lab = self.stack.enter_context(open_lab(s, self.b.addresses))
        return self.lab

    def stations(self) -> Stations:
        """Relay and consumer of the own lab, in this process, to be stepped by hand. The same ones when asked again."""
        if self.hand is None:
            self.hand = self.stack.enter_context(Stations(self.own_lab()))
        return self.hand

    def pump(self) -> Done:
        """Step both stations until nothing waits. What the consumer did."""
        return self.stations().pump(30)[1]

    def waiting(self) -> int:
        """Outbox rows and records of the own lab that have not reached Redis."""
        return self.stations().waiting()

    def stop(self) -> None:
        """End what runs, close what is open, remove what was made. Harmless when repeated."""
        if self.ending.is_set():
            return
        self.ending.set()
        atexit.unregister(self.stop)
        if _live.get(self._key) is self:
            del _live[self._key]
        try:
            self.halt()
            if self.worker is not None and self.worker is not threading.current_thread():
                self.worker.join(30)
            with self.lock:
                self.stack.close()
        except Exception as e:
            self.fail(e)
        for control in self._controls:
            control.disabled = True
        self.say("")

    def halt(self) -> None:
        """What a subclass ends before its task is waited for."""

    # --- where it is shown ------------------------------------------------------------------------------------------------------

    def static(self) -> go.Figure:
        """The chart as it is now."""
        return self.figure

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle = self.box._repr_mimebundle_()
        return plots.mimebundle(self.static()) | (bundle[0] if isinstance(bundle, tuple) else bundle) | {"text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"{self.title}: {self.static().layout.title.text}"

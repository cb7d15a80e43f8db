"""A report as one HTML file that needs nothing else: plotly.js (5 MB) is inside, and its content security policy forbids every request.

    document.save("out.html", document.page("feedlab demo", "12 of 12", True, body, [(figure, "a note")]))

What a report says is its own affair: `lab.report`, `bench.report` and `policies.report` make the body, this makes the document.
"""
import json
from collections.abc import Iterable
from html import escape
from pathlib import Path

from ..atomic import write


def save(path, text: str, folders: bool = False) -> Path:
    """Write a report; an old one stays whole until the new one is. `folders`: make the folder too. Raises BadInput."""
    return write(path, text, "the report cannot be written to {path}: {why}. Choose another place.", folders)


def page(name: str, verdict: str, good: bool, about: Iterable[str], body: str, figures: list[tuple], style: str = "") -> str:
    """The whole document. `body` is HTML with FIGURES where the figures go; `figures` are (figure or None, note); the rest is text."""
    drawn = {f"figure-{i}": _spec(fig) for i, (fig, _) in enumerate(figures) if fig}
    return _HTML.format(
        name=escape(name), verdict=escape(verdict), state="good" if good else "bad", sign="✓" if good else "!", style=_STYLE + style,
        about="\n".join(f'<p class="about">{escape(text)}</p>' for text in about),
        body=body.replace(FIGURES, _FIGURES.format(figures="\n".join(_section(i, fig, note) for i, (fig, note) in enumerate(figures)))),
        plotly=plotly(), script=_SCRIPT, drawn=embedded(drawn))


FIGURES = "<!-- figures -->"      # escaped text cannot hold it


def plotly() -> str:
    """plotly.js, to stand in a script element."""
    from plotly.offline import get_plotlyjs
    return get_plotlyjs().replace("</script", "<\\/script")


def embedded(data) -> str:
    """JSON, to stand in a script element."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")


def _spec(fig) -> dict:
    spec = json.loads(fig.to_json())
    layout = spec["layout"]
    layout.pop("title", None)                       # it stands above as text, where it wraps
    top = 40 if "annotations" in layout else 10     # a label at a line stands above the plot
    layout["margin"] = layout.get("margin", {}) | {"t": top}
    for height in (layout, layout["template"]["layout"]):
        height.pop("height", None)                  # the element's own height rules, see _section
    return spec


def _section(i: int, fig, note: str) -> str:
    if fig is None:
        return f'<section class="figure"><h3>{escape(note)}</h3><p class="missing">not measured</p></section>'
    title, height = escape(fig.layout.title.text), (fig.layout.height or 360) - 40
    # a height on the element: without it plotly's responsive resize collapses it to nothing when a phone is turned
    # long labels at the axis need the width of the page
    broad = ' style="grid-column: 1 / -1"' if (fig.layout.margin.l or 0) > 300 else ""
    return (f'<section class="figure"{broad}><h3 id="title-{i}">{title}</h3>'
            f'<div id="figure-{i}" class="plot" style="height:{height}px" role="img" aria-labelledby="title-{i}">'
            "</div>"
            f"<p>{escape(note)}</p></section>")


_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #59636e; --back: #fbfbf9; --card: #fff; --line: #d9dde1;
  --good: #00684c; --bad: #a84700; }
@media (prefers-color-scheme: dark) { :root { --text: #e8eaed; --soft: #a6aeb8; --back: #14171b; --card: #1c2127;
  --line: #363d46; --good: #4fd3ab; --bad: #ffa25e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: clamp(1.4rem, 4.5vw, 2.1rem); line-height: 1.2; margin: 0 0 8px; display: flex; gap: 12px; }
h1.good .sign { color: var(--good); } h1.bad .sign { color: var(--bad); }
h2 { font-size: 1.25rem; margin: 40px 0 12px; } h3 { font-size: 1rem; margin: 0 0 4px; line-height: 1.35; }
p { margin: 4px 0; } .about, .figure p, .values td:last-child { color: var(--soft); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); }
.values th, .values td:nth-child(2) { white-space: nowrap; }
.values :is(th, td):nth-child(2) { text-align: right; }
.values td:nth-child(2) { font-variant-numeric: tabular-nums; font-weight: 600; }
.values td:nth-child(2).missing { font-weight: 400; } .missing { color: var(--soft); font-style: italic; }
.wide { overflow-x: auto; } .engines td { overflow-wrap: anywhere; font-size: 0.92rem; }
.engines :is(th, td:is([data-key="source"], [data-key="version"], [data-key="pid"], [data-key="memory"])) {
  white-space: nowrap; overflow-wrap: normal; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 16px; }
.figure { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 16px; min-width: 0; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px; margin: 8px 0;
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.9rem; }
@media (max-width: 600px) { .values thead { display: none; }
  .values tr { display: grid; grid-template-columns: 1fr auto; border-bottom: 1px solid var(--line); padding: 6px 0; }
  .values th, .values td { border: 0; padding: 0; }
  .engines thead { display: none; } .engines :is(th, td) { display: block; border: 0; padding: 0; }
  .engines tr { display: block; border-bottom: 1px solid var(--line); padding: 6px 0; }
  .engines td { display: grid; grid-template-columns: 7em minmax(0, 1fr); } .engines td:empty { display: none; }
  .engines td::before { content: attr(data-key); color: var(--soft); }
  .values td:nth-child(3) { grid-column: 1 / -1; font-size: 0.88rem; } .figure { padding: 12px; } }
"""

# colours follow the reader's light or dark setting (the page's own variables are the one source of them); on dark, sky
# blue for blue: 7 to 1 against the card instead of 3 to 1
_SCRIPT = """
const specs = document.getElementById("drawn").textContent, dark = matchMedia("(prefers-color-scheme: dark)");
function look(spec) {
  const css = getComputedStyle(document.documentElement), text = css.getPropertyValue("--text").trim();
  return {...spec.layout, autosize: true, font: {color: text},
          hoverlabel: {bgcolor: css.getPropertyValue("--card").trim(), font: {color: text}}};
}
function draw() {
  const drawn = JSON.parse(dark.matches ? specs.replaceAll("#0072B2", "#56B4E9") : specs);
  for (const [id, spec] of Object.entries(drawn))
    Plotly.react(id, spec.data, look(spec), {responsive: true, displayModeBar: false});
}
draw();
dark.addEventListener("change", draw);
"""

_FIGURES = """<h2>Pictures</h2>
<noscript><p>The pictures need JavaScript; every figure is in a table.</p></noscript>
<div class="figures">
{figures}
</div>"""

_HTML = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<link rel="icon" href="data:,">
<title>{name}: {verdict}</title>
<style>{style}</style>
</head>
<body>
<main>
<header>
<h1 class="{state}"><span class="sign" aria-hidden="true">{sign}</span><span>{verdict}</span></h1>
{about}
</header>
{body}
</main>
<script type="application/json" id="drawn">{drawn}</script>
<script>{plotly}</script>
<script>{script}</script>
</body>
</html>
"""

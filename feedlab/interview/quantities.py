"""The figures that are given as right: expressions over the article's quantities, computed by `feedlab.core.cost`.

A scenario never holds the answer, only the way to it. Names are the fields and properties of `cost.Sheet` (with the
scenario's own `[sheet]` on top), what the scenario states under `[given]`, the constants of the design, and the functions of
`cost`:

    >>> f = Figures()
    >>> round(f.value("reads_a_second")), f.value("redis_bytes / TB"), f.value("fan_out_seconds(largest, 100e3) / minute") > 8
    (34722, 6.0, True)
    >>> f.text("a post of the largest account is {fan_out_seconds(largest, 100e3) / minute | minutes} of work")
    'a post of the largest account is 8.33 minutes of work'
"""
import ast
import math
import operator
import re
from dataclasses import fields

from ..config import Settings
from ..core import cost
from ..core.model import MAX_ID, MAX_MS
from ..errors import BadInput
from ..reader import LIMIT, LIMIT_MAX
from .units import BYTES, say

SHEET = {f.name for f in fields(cost.Sheet)}
COMPUTED = {n for n, v in vars(cost.Sheet).items() if isinstance(v, property)}
FUNCTIONS = {f.__name__: f for f in (
    cost.fan_out_seconds, cost.deliveries, cost.timeline_bytes, cost.pulls_a_page, cost.sources_a_page, cost.cpu_seconds, cost.redis_cores,
    cost.nodes, cost.drain_seconds, cost.pareto_share, cost.lognormal_share, cost.write_amplification)} | {
    "fit_alpha": lambda mean, largest, users: cost.fit_pareto(mean, largest, users)[0],
    "fit_xmin": lambda mean, largest, users: cost.fit_pareto(mean, largest, users)[1],
    "fit_median": lambda mean, largest, users: cost.fit_lognormal(mean, largest, users)[0],
    "fit_sigma": lambda mean, largest, users: cost.fit_lognormal(mean, largest, users)[1],
    "ceil": math.ceil, "floor": math.floor, "round": round, "min": min, "max": max}
_DESIGN = {name: f.default for name, f in Settings.model_fields.items()}
CONSTANTS = {"threshold": _DESIGN["threshold"], "batch": _DESIGN["batch"], "active_days": _DESIGN["active_days"],
             "partitions": _DESIGN["partitions"], "local_copy_s": _DESIGN["local_copy_s"], "limit": LIMIT, "limit_max": LIMIT_MAX,
             "max_ms": MAX_MS, "max_id": MAX_ID, "article_reads_a_day": cost.Sheet().reads_a_day,
             "minute": 60, "hour": 3600, "day": cost.DAY} | {
    name: BYTES[name.lower()] for name in ("kB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB")}
_OPS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: operator.pow,
        ast.FloorDiv: operator.floordiv}
_HOLE = re.compile(r"\{([^{}|]+)\|([^{}|]*)\}")


class Figures:
    """The quantities of one scenario. `sheet` and `given` are its own numbers."""

    def __init__(self, sheet: dict[str, float] | None = None, given: dict[str, float] | None = None):
        sheet, given = sheet or {}, given or {}
        for name in sheet:
            if name not in SHEET:
                raise BadInput(f"the sheet has no {name!r}; it has {', '.join(sorted(SHEET))}")
        for name in given:
            if name in SHEET | COMPUTED | CONSTANTS.keys() | FUNCTIONS.keys():
                raise BadInput(f"{name!r} is taken already; choose another name")
        self.sheet = cost.Sheet(**sheet)
        self.names = CONSTANTS | {n: getattr(self.sheet, n) for n in SHEET | COMPUTED} | given

    def value(self, expression: str) -> float:
        """A finite number. Raises BadInput saying what is wrong with the expression."""
        try:
            tree = ast.parse(expression.strip(), mode="eval").body
        except SyntaxError:
            raise BadInput(f"{expression!r} is not an expression") from None
        if not any(isinstance(n, ast.Name) and n.id in self.names or isinstance(n, ast.Call) for n in ast.walk(tree)):
            unknown = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name)]
            raise BadInput(f"there is no quantity {unknown[0]!r}" if unknown else
                           f"{expression!r} is a literal; a figure given as right is an expression of quantities, such as "
                           "reads_a_second * peak")
        try:
            value = float(self._of(tree))
        except (ArithmeticError, ValueError, TypeError) as e:
            raise BadInput(f"{expression!r} cannot be computed: {e}") from None
        if not math.isfinite(value):
            raise BadInput(f"{expression!r} is not finite")
        return value

    def _of(self, node):
        match node:
            case ast.Constant(value=int() | float() | str() | bool()):
                return node.value
            case ast.Name(id=name):
                if name not in self.names:
                    raise BadInput(f"there is no quantity {name!r}")
                return self.names[name]
            case ast.BinOp() if type(node.op) in _OPS:
                left, right = self._of(node.left), self._of(node.right)
                if isinstance(node.op, ast.Pow) and abs(right) > 100:
                    raise BadInput("a power above 100 is not needed here")
                return _OPS[type(node.op)](left, right)
            case ast.UnaryOp(op=ast.USub()):
                return -self._of(node.operand)
            case ast.Call(func=ast.Name(id=name)):
                if name not in FUNCTIONS:
                    raise BadInput(f"there is no function {name!r}; there are {', '.join(sorted(FUNCTIONS))}")
                return FUNCTIONS[name](*map(self._of, node.args), **{k.arg: self._of(k.value) for k in node.keywords})
        raise BadInput("only numbers, quantities, + - * / ** and calls of cost functions may stand in an expression")

    def text(self, text: str, lines: bool = False) -> str:
        """A text with its `{expression | unit}` holes filled in. Braces without a bar are left alone. Line breaks of the
        file are spaces, an empty line is a new paragraph; with `lines` they are kept."""
        if not lines:
            text = re.sub(r"[ \t]*(?<!\n)\n(?!\n)[ \t]*", " ", text.strip())
        return _HOLE.sub(lambda m: say(self.value(m[1]), m[2].strip()), text.strip("\n"))

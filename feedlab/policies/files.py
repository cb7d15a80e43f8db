"""policy.toml: a policy to hand on, and to run the fan-out consumer with.

    files.write("policy.toml", policy.MinCost(0.17), rates)
    feedlab fanout --policy policy.toml
"""
import gzip
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from .. import atomic
from ..core import policy
from ..core.policy import Policy, Rates
from ..errors import BadInput
from . import rates as rate_files

HEAD = "# A fan-out policy, written by `feedlab policy export`. `feedlab fanout --policy {name}` decides by it.\n\n"


@dataclass(frozen=True)
class Loaded:
    policy: Policy
    rates: Rates
    basis: dict


def make(kind: str, **values) -> Policy:
    """A policy by kind and numbers. Raises BadInput naming what is wrong with them.

    >>> make("threshold", followers=500)
    Threshold(followers=500)
    """
    if kind not in policy.KINDS:
        raise BadInput(f"there is no policy {kind!r}; policies are {', '.join(policy.KINDS)}.")
    made, known = policy.KINDS[kind], {f.name: f for f in fields(policy.KINDS[kind])}
    for name, value in values.items():
        if name not in known:
            raise BadInput(f"{kind} has no {name!r}; it has {', '.join(known) or 'nothing to set'}.")
        whole = known[name].type in (int, "int")
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value < 2**63 or whole and not float(value).is_integer():
            raise BadInput(f"{name} of {kind} must be a {'whole ' if whole else ''}number from 0, got {value!r}.")
        values[name] = int(value) if whole else float(value)
    rule = made(**values)
    if isinstance(rule, policy.Slices) and rule.turn < 1:
        raise BadInput("turn of slices must be at least 1 follower.")
    if isinstance(rule, policy.LagDriven) and not (rule.calm < rule.flood and 0 < rule.floor <= rule.ceiling):
        raise BadInput("lag-driven needs calm below flood, and floor above 0 and at most ceiling.")
    return rule


def parse(text: str) -> Policy:
    """`kind` or `kind:number,number...` or `kind:name=number,...`, as the command line takes it.

    >>> parse("hysteresis:80,100"), parse("push-all"), parse("lossy:limit=50")
    (Hysteresis(low=80, high=100), PushAll(), Lossy(limit=50, followers=10000))
    """
    kind, _, rest = text.strip().partition(":")
    names = [f.name for f in fields(policy.KINDS[kind])] if kind in policy.KINDS else []
    values = {}
    for i, part in enumerate(p for p in rest.split(",") if p.strip()):
        name, equals, number = part.partition("=")
        if not equals:
            if i >= len(names):
                raise BadInput(f"{text!r}: {kind} takes {', '.join(names) or 'no numbers'}.") if names or kind in policy.KINDS else \
                    BadInput(f"there is no policy {kind!r}; policies are {', '.join(policy.KINDS)}.")
            name, number = names[i], part
        try:
            values[name.strip()] = int(number) if number.strip().lstrip("+-").isdigit() else float(number)
        except ValueError:
            raise BadInput(f"{text!r}: {number!r} is not a number.") from None
    return make(kind, **values)


def write(path, rule: Policy, rates: Rates | None = None, basis: dict | None = None) -> list[Path]:
    """Write policy.toml and, when the policy asks for posts or reads and `rates` has users, the rates beside it. Returns what was written.
    Raises BadInput for a policy that is a function of one's own, or a place that cannot be written."""
    import tomli_w
    path, rates = Path(path).expanduser(), rates or Rates.even()
    if type(rule) not in policy.KINDS.values():
        raise BadInput(f"{policy.name_of(rule)} is a function of your own: a file cannot hold it. Hand it to FanOut(decide=...) in Python, "
                       f"or export one of {', '.join(policy.KINDS)}.")
    document = {"policy": {"kind": rule.kind, **{f.name: getattr(rule, f.name) for f in fields(rule)}},
                "rates": {"posts_a_day": rates.default_posts, "reads_a_day": rates.default_reads}}
    beside = path.with_name(path.stem + ".rates.csv.gz")
    asked = len(rates.users) and policy.needs(rule) & {"posts", "reads"}
    if asked:
        document["rates"]["file"] = beside.name
    if basis:
        document["basis"] = basis
    parts = [(path, (HEAD.format(name=path.name) + tomli_w.dumps(document)).encode())]
    if asked:
        columns = zip(rates.users.tolist(), rates.posts.tolist(), rates.reads.tolist(), strict=True)
        rows = "".join(f"{u},{p!r},{r!r}\n" for u, p, r in columns)
        parts.insert(0, (beside, gzip.compress(f"user,posts_a_day,reads_a_day\n{rows}".encode(), 6, mtime=0)))
    for place, content in parts:
        atomic.write(place, content, "{path} cannot be written: {why}. Choose another place.")
    return [place for place, _ in parts]


def load(path) -> Loaded:
    """Read a policy.toml. Raises BadInput: file and reason."""
    path = Path(path).expanduser()
    try:
        if path.stat().st_size > 1 << 20:
            raise BadInput(f"{path} is larger than 1 MB: this is no policy file.")
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise BadInput(f"{path} cannot be read: {e.strerror}. `feedlab policy export --out {path.name}` writes one.") from None
    except ValueError as e:      # not UTF-8, not TOML
        raise BadInput(f"{path} is not a policy file: {e}. `feedlab policy export` writes one.") from None
    section, said = document.get("policy"), document.get("rates", {})
    if not isinstance(section, dict) or not isinstance(section.get("kind"), str):
        raise BadInput(f"{path} has no [policy] with a kind. `feedlab policy export` writes one.")
    extra = [k for k in document if k not in ("policy", "rates", "basis")] + \
            [k for k in said if k not in ("posts_a_day", "reads_a_day", "file")] if isinstance(said, dict) else ["rates"]
    if extra:
        raise BadInput(f"{path}: {extra[0]!r} is not known here; sections are policy, rates (posts_a_day, reads_a_day, file) and basis.")
    try:
        rule = make(section["kind"], **{k: v for k, v in section.items() if k != "kind"})
    except BadInput as e:
        raise BadInput(f"{path}: {e}") from None
    defaults = [said.get(k, d) for k, d in (("posts_a_day", 0.5), ("reads_a_day", 10.0))]
    if not all(isinstance(x, (int, float)) and not isinstance(x, bool) and 0 <= x < np.inf for x in defaults):
        raise BadInput(f"{path}: posts_a_day and reads_a_day must be numbers from 0, got {defaults[0]!r} and {defaults[1]!r}.")
    if "file" in said:
        found = rate_files.read(path.parent / str(said["file"]), *map(float, defaults))
    else:
        found = Rates.even(*map(float, defaults))
    return Loaded(rule, found, document.get("basis", {}))

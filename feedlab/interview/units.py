"""What people type where a number belongs, as a number in the unit that was asked for.

    >>> read("35k/s", "reads/s"), read("3.5e4", "reads/s"), read("45 billion a day", "feed writes/day")
    (35000.0, 35000.0, 45000000000.0)
    >>> read("12.7 TiB", "TB") > 13.9, read("2^53", "") == 2**53, read("20:1", "")
    (True, True, 20.0)

A number without a unit is taken in the unit that was asked for; another unit of the same kind is converted; a unit of another
kind, and anything that is no number, is refused with a sentence (BadInput).
"""
import math
import re
from dataclasses import dataclass

from ..errors import BadInput

LONGEST, LARGEST = 80, 1e30      # characters typed; a value in base units: nothing in a feed is larger

_NUMBER = r"[0-9]{1,3}(?:[ ,_'’][0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+,[0-9]{1,2}(?![0-9,])|[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_TOKEN = re.compile(rf"\s*(?:(?P<number>(?:{_NUMBER})(?:e[+-]?[0-9]+)?)|(?P<op>\*\*|[*×·/^:%()])|(?P<word>[a-zµ]+))", re.I)

MAGNITUDES = {"k": 1e3, "thousand": 1e3, "m": 1e6, "mn": 1e6, "mio": 1e6, "million": 1e6, "millions": 1e6, "g": 1e9, "b": 1e9,
              "bn": 1e9, "billion": 1e9, "billions": 1e9, "t": 1e12, "tn": 1e12, "trillion": 1e12, "trillions": 1e12,
              "hundred": 100, "dozen": 12}
TIMES = {"s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1, "ms": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3,
         "us": 1e-6, "µs": 1e-6, "microsecond": 1e-6, "microseconds": 1e-6, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
         "h": 3600, "hr": 3600, "hrs": 3600, "hour": 3600, "hours": 3600, "d": 86_400, "day": 86_400, "days": 86_400,
         "week": 7 * 86_400, "weeks": 7 * 86_400, "month": 30 * 86_400, "months": 30 * 86_400,
         "year": 365 * 86_400, "years": 365 * 86_400}
BYTES = {"byte": 1, "bytes": 1, "bit": 1 / 8, "bits": 1 / 8} | {
    f"{p}{b}": base**n * size
    for n, p in enumerate(("", "k", "m", "g", "t", "p"))
    for b, base, size in (("b", 1000, 1), ("ib", 1024, 1), ("bit", 1000, 1 / 8), ("bits", 1000, 1 / 8)) if p or b != "ib"}
BYTES.pop("b")                            # "45B a day" is billions; "60 B" becomes bytes where bytes are asked for
SPEEDS = {f"{p}bps": 1000**n / 8 for n, p in enumerate(("", "k", "m", "g", "t"))}
# Things that are counted. Within a group they mean the same here; another group than the one asked for is another question.
NOUNS = [("read", "request", "query", "page", "call"), ("post", "event", "row", "record"),
         ("write", "delivery", "zadd", "insert", "update"), ("entry", "item", "id"), ("source",), ("partition",), ("follow", "edge"),
         ("rebuild",), ("score",), ("session",),
         ("user", "person", "people", "follower", "reader", "account", "author", "followee"),
         ("node", "machine", "server", "shard", "instance", "box", "broker"), ("core", "cpu", "vcpu")]
GROUP = {form: n for n, group in enumerate(NOUNS) for w in group
         for form in {w, w + "s", w[:-1] + "ies" if w.endswith("y") else w + "es"}}
PER_SECOND = {"qps": 1, "rps": 1, "tps": 1, "ops": 1, "iops": 1, "kqps": 1e3, "krps": 1e3}     # of anything
PER_TIME = {"daily": 86_400, "hourly": 3600, "weekly": 7 * 86_400}
FILLERS = {"about", "around", "roughly", "approximately", "approx", "circa", "ca", "maybe", "some", "of", "feed", "the", "is", "in",
           "operation", "operations", "op", "redis", "sql", "total", "peak", "piece", "or", "so", "times", "x", "fold"}
PER = {"per", "a", "an", "every", "each"}


@dataclass(frozen=True)
class Quantity:
    """`value` in base units (bytes, seconds); `bytes` and `seconds` are the powers of those; `group` of NOUNS, None when
    neutral."""
    value: float
    bytes: int = 0
    seconds: int = 0
    group: int | None = None
    bare: bool = True          # no unit and no noun was said

    @property
    def kind(self) -> str:
        return {(0, 0): "a count", (0, -1): "a rate (something a second or a day)", (1, 0): "an amount of memory (bytes)",
                (0, 1): "a time", (1, -1): "a bandwidth (bytes a second)"}.get((self.bytes, self.seconds), "an odd mixture of units")


def read(text: str, unit: str, zero: bool = False) -> float:
    """The number in `unit`. Raises BadInput with a sentence that says what to type instead.

    `zero`: whether 0 is an answer (a prediction may be 0, an estimate not).
    """
    asked = parse(f"1 {unit}")
    got = parse(text, asked)
    if got.bare:
        value = got.value
    elif (got.bytes, got.seconds) != (asked.bytes, asked.seconds):
        raise BadInput(f"{_quoted(text)} is {got.kind}, and {asked.kind} is asked for: {example(unit)}.")
    elif None not in (got.group, asked.group) and got.group != asked.group:
        raise BadInput(f"{_quoted(text)} counts {NOUNS[got.group][0]}s, or the like, and {unit} are asked for: {example(unit)}.")
    else:
        value = got.value / asked.value
    if value == 0 and not zero:
        raise BadInput(f"Zero cannot be right here; type a number above it: {example(unit)}.")
    return value


def parse(text: str, asked: Quantity | None = None) -> Quantity:
    """Text as a quantity. `asked` settles what is ambiguous: "5m" is minutes where a time is asked for, else millions; "60 B" and
    "6 T" are bytes where bytes are, else billions and a count. Raises BadInput."""
    said = " ".join(str(text).split()).strip(" ~≈=").rstrip(".")
    if not said:
        raise BadInput("There is no answer yet; type a number, for example 35k/s, 3.5e4 or 6 TB.")
    if len(said) > LONGEST:
        raise BadInput(f"That is {len(said)} characters long; a number will do, for example 35k/s, 3.5e4 or 6 TB.")
    said = re.sub("[−–]", "-", said)
    if re.match(r"-\s*[0-9.]", said):
        raise BadInput(f"{_quoted(text)} is negative, and nothing here can be. Leave out the sign.")
    if re.search(r"[0-9kmgtb]\s*(?:-|\.\.+|\bto\b)\s*[0-9]", re.sub(r"(?<=[0-9])e[+-]", "e", said, flags=re.I), re.I):
        raise BadInput(f"{_quoted(text)} is a range; commit yourself to one number in it.")
    return _Parser(said, text, asked).whole()


class _Parser:
    """Terms, multiplied and divided: `150M x 300 / day`. A term is a number, a magnitude, units."""

    def __init__(self, said: str, text: str, asked: Quantity | None):
        self.text, self.at, self.tokens = text, 0, []
        self.wants_bytes, self.wants_time = bool(asked and asked.bytes), bool(asked and asked.seconds > 0)
        said = _plain(said)
        while said:
            m = _TOKEN.match(said)
            if m is None:
                raise self.refusal()
            self.tokens.append((m.lastgroup, m.group(m.lastgroup).lower()))
            said = said[m.end():].strip()
        self.bytes = self.seconds = 0
        self.group: int | None = None
        self.bare, self.letter = True, False

    def refusal(self, why: str = "") -> BadInput:
        return BadInput(f"{_quoted(self.text)} is not a number that I understand{why}. "
                        "Write one such as 35k/s, 3.5e4, 45 billion a day, 6 TB or 2^53.")

    def next(self, ahead: int = 0) -> tuple[str, str]:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else ("end", "")

    def whole(self) -> Quantity:
        while self.next()[0] == "word" and self.next()[1] in FILLERS:
            self.at += 1
        value = self.term(1)
        while self.next()[0] != "end":
            kind, op = self.next()
            if op not in ("*", "×", "·", "x", "times", "/", ":") or self.next(1)[0] != "number":
                raise self.refusal()
            self.at += 1
            sign = -1 if op in "/:" else 1
            by = self.term(sign)
            if sign < 0 and by == 0:
                raise self.refusal(": nothing can be divided by 0")
            value = value * by if sign > 0 else value / by
        if self.bare and self.letter and self.wants_bytes:       # "6 T" where TB are asked for
            self.bytes, self.bare = 1, False
        if not math.isfinite(value) or value > LARGEST:
            raise BadInput(f"{_quoted(self.text)} is more than anything in a feed could be. Check the zeros.")
        return Quantity(value, self.bytes, self.seconds, self.group, self.bare)

    def term(self, sign: int) -> float:
        """A number with what belongs to it; its units count `sign` times."""
        value = self.number()
        while self.next()[0] == "word" or self.next()[1] in ("/", "%"):
            kind, word = self.next()
            if word in ("x", "times", "/") and self.next(1)[0] == "number":
                break                                            # the next term
            self.at += 1
            value *= 0.01 if word == "%" else self.per(sign) if word == "/" else self.word(word, sign)
        return value

    def number(self) -> float:
        kind, text = self.next()
        if kind != "number":
            raise self.refusal()
        self.at += 1
        value = float(re.sub(r"[ _'’,]", "", _decimal(text)))
        if self.next()[1] in ("^", "**"):
            power = self.next(1)[1]
            if not power.isdigit() or int(power) > 200:
                raise self.refusal(": after ^ comes a whole number up to 200")
            self.at += 2
            try:
                value = value ** int(power)
            except OverflowError:
                value = math.inf
        return value

    def per(self, sign: int) -> float:
        """`/s`, `a day`, `/user`: by a time, or by something that is counted. The factor."""
        word = self.next()[1]
        self.at += 1
        if word in TIMES:
            return self.unit(1 / TIMES[word], sign, seconds=-1)
        if word in GROUP:
            return self.unit(1, sign)
        raise self.refusal(f": {word!r} is no unit" if word else "")

    def word(self, word: str, sign: int) -> float:
        """The factor that a word stands for."""
        if word in PER and self.next()[1] in TIMES | GROUP:
            return self.per(sign)
        if word in PER or word in FILLERS:
            return 1
        if word == "b" and self.wants_bytes and not self.bytes:
            return self.unit(1, sign, bytes=1)
        if word == "m" and self.wants_time:
            return self.unit(60, sign, seconds=1)
        if word in MAGNITUDES:
            self.letter = self.letter or len(word) == 1
            return MAGNITUDES[word]
        if word in SPEEDS:
            return self.unit(SPEEDS[word], sign, bytes=1, seconds=-1)
        if word in BYTES:
            return self.unit(BYTES[word], sign, bytes=1)
        if word in TIMES:
            return self.unit(TIMES[word], sign, seconds=1)
        if word in PER_TIME:
            return self.unit(1 / PER_TIME[word], sign, seconds=-1)
        if word in PER_SECOND:
            return self.unit(PER_SECOND[word], sign, seconds=-1)
        if word in GROUP:
            self.group = GROUP[word] if self.group is None else self.group
            return self.unit(1, sign)
        raise self.refusal(f": {word[:20]!r} is no unit")

    def unit(self, factor: float, sign: int, bytes: int = 0, seconds: int = 0) -> float:
        self.bare = False
        self.bytes, self.seconds = self.bytes + sign * bytes, self.seconds + sign * seconds
        return factor


def _plain(said: str) -> str:
    """Superscripts as powers, "3.5 e 4" in one piece.

    >>> _plain("3.5 × 10⁴"), _plain("3.5 e4")
    ('3.5 × 10^4', '3.5e4')
    """
    said = said.replace("per cent", "%").replace("percent", "%")
    said = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda m: "^" + "".join(str("⁰¹²³⁴⁵⁶⁷⁸⁹".index(c)) for c in m[0]), said)
    return re.sub(r"(?<=[0-9])\s*e\s*(?=[+-]?[0-9])", "e", said, flags=re.I)


def _decimal(number: str) -> str:
    """A comma before other than three digits is a decimal one: "1,7" is 1.7, "35,000" is 35000.

    >>> _decimal("1,7"), _decimal("35,000"), _decimal("1.7")
    ('1.7', '35,000', '1.7')
    """
    return number.replace(",", ".") if re.fullmatch(r"\d+,(?:\d{1,2}|\d{4,})", number) else number


def _quoted(text: str) -> str:
    text = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    return f"“{text if len(text) <= 40 else text[:37] + '...'}”"


# --- and back -----------------------------------------------------------------------------------------------------------

def example(unit: str) -> str:
    """An answer as it might be typed, in words for a refusal.

    >>> example("reads/s"), example("TB"), example("minutes"), example("nodes")
    ('for example 20k/s or 2e9 a day', 'for example 3 TB or 2.5 TiB', 'for example 90 s or 4 min', 'for example 30 or 1.5k')
    """
    q = parse(f"1 {unit}")
    return {(0, -1): "for example 20k/s or 2e9 a day", (1, 0): "for example 3 TB or 2.5 TiB", (0, 1): "for example 90 s or 4 min",
            (1, -1): "for example 300 MB/s or 2 Gbit/s"}.get((q.bytes, q.seconds), "for example 30 or 1.5k")


def say(value: float, unit: str = "") -> str:
    """A number for reading, three significant digits.

    >>> say(34722.2, "reads/s"), say(45e9, "feed writes/day"), say(6, "TB"), say(0.5, "s"), say(1, "nodes")
    ('34,700 reads/s', '45 billion feed writes/day', '6 TB', '0.5 s', '1 node')
    """
    if value is None:
        return "not measured"
    size = abs(value)
    for limit, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if size >= limit * 0.9995:
            text = f"{value / limit:,.4g} {word}" if size >= limit * 1e6 else f"{_three(value / limit)} {word}"
            break
    else:
        text = _three(value)
    if text == "1" and re.fullmatch(r"[a-z ]*[a-rt-z]s", unit):
        unit = unit[:-1]
    return f"{text} {unit}".strip()


def _three(x: float) -> str:
    if x == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(x)))
    rounded = round(x, digits)
    return f"{rounded:,.0f}" if digits <= 0 or rounded == int(rounded) else f"{rounded:,.{digits}f}".rstrip("0").rstrip(".")

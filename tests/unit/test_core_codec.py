"""Records: what was encoded comes back, and any other bytes are Poison, never another error: it would stop the
consumer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedlab.core.codec import KINDS, MEMBER_WIDTH, Event, Names, Poison, decode, member
from feedlab.core.model import MAX_ID, MAX_MS

IDS = st.integers(0, MAX_ID)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
GOOD = {"kind": "posted", "author": 1, "post": 2, "ms": 3}


def event(kind, ids, ms, after, pulls):
    fields = {"author": ids[0], "user": ids[1], "post": ids[2], "ms": ms}
    return Event(
        kind, **{k: v for k, v in fields.items() if k in KINDS[kind]} | {"author": ids[0]}, after=after, pulls=pulls
    )


def poison(record: bytes | None) -> str:
    with pytest.raises(Poison) as e:
        decode(record)
    return str(e.value)


@given(
    st.builds(
        event,
        st.sampled_from(sorted(KINDS)),
        st.tuples(IDS, IDS, IDS),
        st.integers(0, MAX_MS),
        st.integers(-1, MAX_ID),
        st.integers(-1, MAX_ID),
    )
)
def test_round_trip(e):
    assert decode(e.encode().encode()) == e


@given(st.binary(max_size=60))
def test_any_bytes(record):
    try:
        assert isinstance(decode(record), Event)
    except Poison:
        pass


@given(
    st.dictionaries(
        st.sampled_from(["kind", "author", "user", "post", "ms", "after", "pulls"]),
        ANY | st.sampled_from(sorted(KINDS)) | IDS,
    )
)
def test_any_json_object(data):
    """Well-formed JSON with our own names and values of any kind."""
    try:
        e = decode(json.dumps(data).encode())
    except Poison as p:
        assert len(str(p)) < 200
        str(p).encode()  # it becomes a header: no lone surrogate in it
    else:
        assert all(0 <= getattr(e, name) <= MAX_ID for name in KINDS[e.kind])


@pytest.mark.parametrize(
    "record",
    [
        None,
        b"",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"null",
        b"[]",
        b"1",
        b'"posted"',
        b"{}",
        b"{",
        b"NaN",
        b"[" * 100_000,
        b'{"kind":[]}',
        b'{"kind":{}}',
        b'{"kind":null}',
        b'{"kind":"Posted"}',
        b'{"kind":"\\ud800"}',
        b'{"author":' + b"9" * 5_000 + b"}",
        b'{"kind":"demote","author":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"kind":"demote","author":"\\ud800"}',
        b'{"kind":"demote","author":"\\u0000"}',
    ],
    ids=lambda r: repr(r)[:40],
)
def test_hostile_records(record):
    poison(record).encode()


@pytest.mark.parametrize(
    "field,value",
    [
        ("author", -1),
        ("author", MAX_ID + 1),
        ("author", 1.0),
        ("author", "1"),
        ("author", True),
        ("author", None),
        ("post", -1),
        ("ms", MAX_MS + 1),
        ("ms", -1),
        ("after", -2),
        ("after", "0"),
        ("pulls", None),
        ("pulls", MAX_ID + 1),
    ],
)
def test_a_field_out_of_range_is_named(field, value):
    assert field in poison(json.dumps(GOOD | {field: value}).encode())


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_missing_field_is_named(kind):
    whole = {"kind": kind} | {name: 1 for name in KINDS[kind]}
    decode(json.dumps(whole).encode())
    for name in KINDS[kind]:
        assert name in poison(json.dumps({k: v for k, v in whole.items() if k != name}).encode())


def test_a_field_of_a_newer_feedlab_is_ignored():
    assert decode(json.dumps(GOOD | {"colour": "red"}).encode()) == Event("posted", author=1, post=2, ms=3)


@given(IDS, IDS)
def test_member_order_is_numeric_order(a, b):
    """Redis breaks ties by the member as bytes (F1, R37)."""
    assert (member(a) < member(b)) == (a < b) and int(member(a)) == a and len(member(a)) == MEMBER_WIDTH


def test_every_member_sorts_before_the_state_members():
    for state in ("b:0123456789abcdef", "floor"):
        assert member(MAX_ID) < state


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=2, unique=True))
def test_names_do_not_collide(pair):
    """No key of one id, kind or namespace is a key of another."""
    made = [f(i) for n in (Names("a"), Names("a_b")) for i in pair for f in (n.feed, n.celeb, n.post, n.trace)]
    made += [
        x for n in (Names("a"), Names("a_b")) for x in (n.progress, n.stats, *n.topics, n.dead, n.group, n.channel)
    ]
    assert len(set(made)) == len(made)

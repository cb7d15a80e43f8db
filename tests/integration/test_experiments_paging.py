"""What the notebook on cursor and merge runs: counts that hold at every run, figures whose titles say them, bad input in a sentence."""
import pytest

from feedlab.classroom import book as books
from feedlab.classroom.chapters import cursor_and_merge
from feedlab.core.merge import merge
from feedlab.core.model import START, Entry
from feedlab.errors import BadInput


@pytest.fixture(scope="module")
def book(addresses):
    made = books.begin("t_paging")
    yield made
    made.end()


def test_an_offset_repeats_what_a_cursor_does_not(book):
    scrolls = cursor_and_merge.while_posts_arrive(book, pages=3, limit=4, arriving=1)
    assert scrolls["cursor"] == [[12, 11, 10, 9], [8, 7, 6, 5], [4, 3, 2, 1]]
    assert scrolls["offset"] == [[12, 11, 10, 9], [9, 8, 7, 6], [6, 5, 4, 3]]
    assert cursor_and_merge.repeats(scrolls["offset"]) == [9, 6] and cursor_and_merge.repeats(scrolls["cursor"]) == []
    fig = cursor_and_merge.scrolls_figure(scrolls)
    assert fig.layout.title.text == "Posts shown twice: offset 2, cursor 0"
    assert list(fig.data[0].marker.symbol).count("x") == 2 and "x" not in fig.data[1].marker.symbol


def test_section_8_live_is_section_8_on_paper(book):
    held = cursor_and_merge.section_8(book)
    assert {name: [(e.id, e.ms) for e in entries] for name, entries in held.items()} == {
        "pushed": [(5, 5000), (3, 3000), (1, 1000)], "pulled": [(4, 4000), (3, 3000), (2, 2000)]}
    lab = book.open()
    one = lab.page(0, limit=3)
    two = lab.page(0, one.next_cursor, 3)
    assert (one.ids, one.next_cursor, two.ids, two.next_cursor) == ([5, 4, 3], "3000:3", [2, 1], None)
    assert one.ids == [e.id for e in merge(held["pushed"], held["pulled"], START, 3)]
    assert two.ids == [e.id for e in merge(held["pushed"], held["pulled"], Entry(3000, 3), 3)]
    assert not one.explain.below_floor and one.explain.flagged == 1
    fig = cursor_and_merge.lanes(held, [one, two])
    assert fig.layout.title.text == "5 4 3 then 2 1; cursor 3000:3"
    assert [t.y[0] for t in fig.data] == ["pushed", "pulled", "page 1", "page 2"] and fig.layout.shapes[0].x0 == 3000


@pytest.mark.parametrize(("celebs", "limit", "first"), [(3, 10, 60), (5, 4, 80)])
def test_the_merge_draws_a_page_and_one_a_source(book, celebs, limit, first):
    page, counts = cursor_and_merge.drawn(book, celebs=celebs, each=8, limit=limit, first=first)
    assert len(page.posts) == limit
    chunk = max(limit + 1, 10)                # one more than the page tells whether there is a next; the filter asks for ten at least
    assert counts == {"held": 8 * (celebs + 1), "drawn": chunk + celebs}
    assert page.explain.flagged == celebs and not page.explain.below_floor
    assert f"draws {counts['drawn']} entries of {counts['held']}" in cursor_and_merge.taken_figure(page, counts).layout.title.text


def test_ties_end_the_textbook_s_scroll(book):
    pages = {name: cursor_and_merge.ties(book, name, ties=7, older=8, limit=3) for name in ("textbook", "ours")}
    assert pages["ours"] == [[15, 14, 13], [12, 11, 10], [9, 8, 7], [6, 5, 4], [3, 2, 1]]
    assert pages["textbook"] == [[15, 14, 13], [12, 11], []]
    fig = cursor_and_merge.seen_figure(pages, 15)
    assert fig.layout.title.text == "textbook shows 5, ours shows 15 of 15 posts"
    assert sum(len(t.x) for t in fig.data) == 30


def test_without_ties_the_textbook_scrolls_to_the_end(book):
    """What it is blamed for is its faults, not a scroll that never worked."""
    assert cursor_and_merge.ties(book, "textbook", ties=1, older=8, limit=3) == [[9, 8, 7], [6, 5, 4], [3, 2, 1]]
    assert cursor_and_merge.ties(book, "textbook", ties=1, older=9, limit=3) == [[10, 9, 8], [7, 6, 5], [4, 3, 2], [1]]


def test_a_filter_after_the_cut_gives_empty_pages(book):
    pages = {name: cursor_and_merge.hidden(book, name, visible=5, deleted=9, limit=3) for name in ("textbook", "ours")}
    assert [p["posts"] for p in pages["ours"]] == [3, 2] and pages["ours"][0]["hidden"] == 9
    assert [p["posts"] for p in pages["textbook"]] == [0, 0, 0, 3, 2]
    assert {name: cursor_and_merge.requests_to_first(ps) for name, ps in pages.items()} == {"textbook": 4, "ours": 1}
    assert cursor_and_merge.lengths_figure(pages).layout.title.text == "Empty pages with a next page: textbook 3, ours 0"


def test_members_as_text_are_in_text_order(book):
    assert cursor_and_merge.tie_order(book) == {"textbook": [9, 10], "ours": [10, 9]}
    assert cursor_and_merge.tie_order(book, (99, 100, 101)) == {"textbook": [99, 101, 100], "ours": [101, 100, 99]}
    assert not book.open().redis.exists(f"{book.settings.namespace}:ties")


@pytest.mark.parametrize(("condition", "shown"), [
    ("(created_at_ms, id) < (%(ms)s, %(id)s)", 13),
    ("created_at_ms < %(ms)s or created_at_ms = %(ms)s and id < %(id)s", 13),
    ("created_at_ms < %(ms)s", 9)])
def test_a_learner_s_condition(book, condition, shown):
    pages = cursor_and_merge.scroll_where(book, condition)
    assert len({p for page in pages for p in page}) == shown and not cursor_and_merge.repeats(pages)


def test_a_condition_that_repeats_for_ever_is_stopped(book):
    assert len(cursor_and_merge.repeats(cursor_and_merge.scroll_where(book, "created_at_ms <= %(ms)s"))) > 100


@pytest.mark.parametrize("condition", ["older", "created_at_ms <", "created_at_ms < %(time)s", "%(ms)s"])
def test_a_condition_that_is_none_is_a_sentence(book, condition):
    before = book.open().conn.execute("select count(*) from posts").fetchone()
    with pytest.raises(BadInput, match="the condition cannot be used: .+ what stands after `where`"):
        cursor_and_merge.scroll_where(book, condition)
    assert book.open().conn.execute("select count(*) from posts").fetchone() == before


def test_an_unknown_system_is_a_sentence(book):
    with pytest.raises(BadInput, match="there is no system 'theirs'; they are: ours, textbook"):
        cursor_and_merge.ties(book, "theirs")


def test_the_numbers_follow_the_order_of_writing():
    class Made:
        def __init__(self, i):
            self.id = i
    assert cursor_and_merge.numbers([Made(70), Made(5)]) == {70: 1, 5: 2}
    assert cursor_and_merge.repeats([[3, 2], [2, 1], [3]]) == [2, 3]
    assert cursor_and_merge.requests_to_first([{"posts": 0}, {"posts": 0}]) == 2

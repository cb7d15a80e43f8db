"""`user`, `follow`, `unfollow`, `post`, `delete`, `feed`: what users do."""

from typing import Annotated

import typer

from ..core.model import MAX_MS
from .app import FEED, AsJson, PostId, User, command, number_option, text, user_argument, whole


@command(FEED, "feedlab user 7", "feedlab user 7 Ada")
def user(
    id: Annotated[int, user_argument("ID", "The new user's id.")],
    name: Annotated[
        str | None, typer.Argument(parser=text, metavar="[NAME]", show_default=False, help="Left out: `user ID`.")
    ] = None,
) -> None:
    """Create a user."""
    from .. import posts
    from . import show
    from .opened import store

    with store() as s:
        posts.create_user(s.conn, id, name or f"user {id}")
    show.line(f"user {id} exists now; `feedlab follow {id} AUTHOR` gives it a feed")


Author = Annotated[int, user_argument("AUTHOR", "The user who is followed.")]


@command(FEED, "feedlab follow 7 42")
def follow(user: User, author: Author) -> None:
    """USER follows AUTHOR from now on, and sees the author's older posts as well."""
    from .. import follows
    from . import show
    from .opened import store

    with store() as s:
        new = follows.follow(s.conn, s.redis, s.names, user, author)
    show.line(f"user {user} follows {author} now" if new else f"user {user} follows {author} already")


@command(FEED, "feedlab unfollow 7 42")
def unfollow(user: User, author: Author) -> None:
    """USER no longer follows AUTHOR; the posts are gone from the feed at once."""
    from .. import follows
    from . import show
    from .opened import store

    with store() as s:
        gone = follows.unfollow(s.conn, s.redis, s.names, user, author)
    show.line(f"user {user} no longer follows {author}" if gone else f"user {user} does not follow {author} anyway")


@command(
    FEED,
    'feedlab post 42 "Hello, all of you"',
    'feedlab post 42 "A picture" --image https://example.org/a.jpg --json',
    'feedlab post 42 "From the archive" --at 1760245800123',
    'feedlab post 42 -- "-1 is a number"',
)
def post(
    user: Annotated[int, user_argument(help="The author.")],
    content: Annotated[
        str, typer.Argument(parser=text, metavar="TEXT", help="At most 5,000 characters.", show_default=False)
    ],
    image: Annotated[
        list[str] | None,
        typer.Option("--image", parser=text, metavar="URL", show_default=False, help="May be given several times."),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(
            "--at",
            parser=whole("a time in epoch milliseconds", 0, MAX_MS),
            metavar="MS",
            help="Back-date it: epoch milliseconds.",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Step 1: write a post. Needs PostgreSQL only; the outbox holds it until `feedlab relay` takes it to Kafka."""
    from .. import db, posts
    from . import show
    from .opened import store

    with store() as s:
        p = posts.create(s.conn, db.ids(s.conn), s.names, user, content, created_at_ms=at, images=image or [])
    if json:
        show.document(_as_dict(p))
    else:
        show.line(f"post {p.id} written at {show.when(p.created_at_ms)}; `feedlab trace {p.id}` says where it is")


@command(FEED, "feedlab delete 42 337512345678901248")
def delete(user: Annotated[int, user_argument(help="The author.")], post: PostId) -> None:
    """Delete a post of USER: it is hidden from every feed at once. Twice is harmless."""
    from .. import posts
    from . import show
    from .opened import store

    with store() as s:
        posts.delete(s.conn, s.names, user, post)
    show.line(f"post {post} is deleted")


@command(
    FEED,
    "feedlab feed 7",
    "feedlab feed 7 --limit 5 --explain",
    "feedlab feed 7 --cursor 1760245800123:7253",
    "feedlab feed 7 --json",
)
def feed(
    user: User,
    cursor: Annotated[
        str | None,
        typer.Option("--cursor", metavar="MS:ID", show_default=False, help="The place where the page before ended."),
    ] = None,
    limit: Annotated[
        int, number_option("--limit", "a number of posts", "Posts on the page; more than 50 is 50.", least=1)
    ] = 20,
    explain: Annotated[
        bool, typer.Option("--explain", metavar="", help="How the page was made, and what it cost.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Step 7: one page of a user's feed, newest first, and the cursor of the next."""
    from ..core import cursor as cursors
    from ..reader import Reader, check_limit
    from . import show
    from .opened import store

    cursors.parse(cursor)  # before an engine is asked
    asked, limit = limit, check_limit(limit)
    if asked > limit:
        show.line(f"--limit {asked} is cut to {limit}, the most that a page holds", err=True)
    with store() as s:
        page = Reader(s.settings).page(s.conn, s.redis, user, cursor, limit)
    if json:
        show.document(
            {"user": str(user), "posts": [_as_dict(p) for p in page.posts], "next_cursor": page.next_cursor}
            | ({"explain": _explained(page.explain)} if explain else {})
        )
        return
    if page.posts:
        t = show.table(None, "Time", "Post", "Author", "Text", keep=("Time", "Post", "Author"))
        for p in page.posts:
            pictures = f"  ({show.count(len(p.images), 'image')})" if p.images else ""
            t.add_row(show.when(p.created_at_ms), str(p.id), str(p.author_id), show.clean(p.content) + pictures)
        show.console().print(t)
    else:
        show.line("no posts" + (" below this cursor" if cursor else " in this feed"))
    show.line(
        f"next page: feedlab feed {user} --limit {limit} --cursor {page.next_cursor}"
        if page.next_cursor
        else "the feed ends here"
    )
    if explain:
        _print_explain(page.explain)


def _as_dict(p) -> dict:
    # ids as strings: JavaScript's numbers end at 2^53
    return {
        "id": str(p.id),
        "author": str(p.author_id),
        "created_at_ms": p.created_at_ms,
        "text": p.content,
        "images": list(p.images),
    }


def _explained(ex) -> dict:
    """The Explain as JSON can hold it: a floor of minus infinity becomes `whole: true`."""
    from dataclasses import asdict

    from ..core.model import NO_FLOOR

    data = asdict(ex)
    floor = data.pop("floor")
    whole_feed = floor == NO_FLOOR
    return data | {
        "floor_ms": None if floor is None or whole_feed else int(floor),
        "whole": whole_feed,
        "sources": ex.sources,
    }


FEED_STATES = {
    "pushed": "read from the timeline in Redis",
    "rebuilt": "was not there, rebuilt from SQL",
    "building": "is being built by somebody; SQL answered",
    "unreachable": "Redis is away; SQL answered",
    "none": "not asked",
}


def _print_explain(ex) -> None:
    from . import show

    e = _explained(ex)
    floor = (
        "none: the timeline is complete"
        if e["whole"]
        else "unknown"
        if e["floor_ms"] is None
        else f"{show.when(e['floor_ms'])}; at or below it SQL answers"
    )
    taken = ", ".join(f"{n} from {source}" for source, n in e["taken"].items()) or "none"
    t = show.table("How this page was made", "What", "Answer", keep=("What",))
    for row in (
        ("feed", f"{e['feed']}: {FEED_STATES.get(e['feed'], '')}"),
        ("floor", floor),
        ("pulled authors", f"{e['flagged']}, of which {e['local_hits']} from this process's own copy"),
        ("entries drawn", taken),
        ("hidden by the filter", f"{e['hidden']} (deleted, or no longer followed)"),
        ("went below the floor", "yes" if e["below_floor"] else "no"),
        ("sources touched", str(e["sources"])),
        ("round trips", f"{e['redis_trips']} to Redis, {show.count(e['sql_queries'], 'query')} to PostgreSQL"),
    ):
        t.add_row(*row)
    show.console().print(t)

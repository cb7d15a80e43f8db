"""feedlab: a Facebook-like news feed on live PostgreSQL, Redis and Kafka, to build, break and tune.

The way of a post, one module a step:

1. `posts`        the write: the post and its outbox row in one transaction
2. `relay`        outbox -> Kafka, no committed row skipped, per-author order kept
3. `fanout`       Kafka -> timelines: push below the threshold, pull flag at or above it
4. `timeline`     a timeline in Redis and its floor (`timeline.lua` is the part that runs inside Redis)
5. `celebrities`  celeb:{author}:recent, its local copy, the pull flag
6. `pull`         the SQL answer: the source below every floor, and the oracle that pages are held against
7. `reader`       one page: sources, lazy merge, filter, hydrate, cursor
8. `http.app`     the same over HTTP
"""

__version__ = "0.1.0"


def load_ipython_extension(shell) -> None:
    """`%load_ext feedlab`: the cell magics %%sql and %%redis."""
    from .classroom import magics
    magics.register(shell)

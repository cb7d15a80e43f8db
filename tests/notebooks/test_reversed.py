"""All notebooks from the last to the first, on the same engines, each in a fresh kernel; `make test` then runs them from the first to
the last by nbval. So each passes twice, in both orders, and nothing of it is left in between.

Two kernels at a time: much of a notebook is waiting, and two that run beside each other must not meet either.
"""
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from book_parts import BOOKS, FOLDER, checked_outputs

from feedlab import db, kafka, timeline
from feedlab.classroom import edition


def left_in_engines(addresses) -> list[str]:
    """Schemas, keys and topics of notebooks."""
    with db.connect(addresses.postgres_url, "public") as conn:
        found = [name for name, in conn.execute("select nspname from pg_namespace where nspname ~ '^nb[0-9]*_'")]
    r = timeline.connect(addresses.redis_url)
    found += list(r.scan_iter(match="nb*", count=1000))
    r.close()
    return found + [t for t in kafka.admin(addresses.kafka_bootstrap).list_topics(timeout=10).topics if re.match(r"nb\d*_", t)]


@pytest.fixture(scope="module")
def runs(addresses):
    """path -> a future of the notebook as it ran."""
    with ThreadPoolExecutor(2) as pool:
        yield {path: pool.submit(lambda path=path: edition.execute(edition.read(path), FOLDER)) for path in BOOKS[::-1]}


@pytest.mark.parametrize("path", BOOKS[::-1], ids=lambda p: p.stem)
def test_runs(path, runs):
    assert checked_outputs(runs[path].result()) == checked_outputs(edition.read(path))


@pytest.mark.parametrize("path", BOOKS, ids=lambda p: p.stem)
def test_a_rerun_shows_no_noise(path, runs):
    """What would be committed after this run is what is committed, to the byte."""
    assert edition.text(edition.clean(runs[path].result())) == path.read_text()


def test_nothing_is_left(addresses):
    assert left_in_engines(addresses) == []

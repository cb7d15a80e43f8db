"""All notebooks from the last to the first, on the same engines, each in a fresh kernel; `make test` then runs them from the first to
the last by nbval. So each passes twice, in both orders, and nothing of it is left in between."""
import re

import pytest
from book_parts import BOOKS, FOLDER, checked_outputs

from feedlab import db, kafka, timeline
from feedlab.lab import edition


def left_in_engines(addresses) -> list[str]:
    """Schemas, keys and topics of notebooks."""
    with db.connect(addresses.postgres_url, "public") as conn:
        found = [name for name, in conn.execute("select nspname from pg_namespace where nspname like 'nb\\_%'")]
    r = timeline.connect(addresses.redis_url)
    found += list(r.scan_iter(match="nb_*", count=1000))
    r.close()
    return found + [t for t in kafka.admin(addresses.kafka_bootstrap).list_topics(timeout=10).topics if re.match(r"nb_", t)]


@pytest.mark.parametrize("path", BOOKS[::-1], ids=lambda p: p.stem)
def test_runs(path, addresses):
    committed = edition.read(path)
    ran = edition.execute(edition.read(path), FOLDER)
    assert checked_outputs(ran) == checked_outputs(committed)


def test_a_rerun_shows_no_noise(addresses):
    """What would be committed after a re-run is what is committed."""
    path = BOOKS[0]
    again = edition.clean(edition.execute(edition.read(path), FOLDER))
    assert again == edition.clean(edition.read(path))


def test_nothing_is_left(addresses):
    assert left_in_engines(addresses) == []

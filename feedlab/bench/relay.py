"""Outbox rows a second to acknowledged records, beside a producer that sends the same bytes from memory."""
from .. import kafka, outbox
from ..addresses import Addresses
from ..config import Settings
from ..core.codec import Event
from ..relay import Relay
from .ground import FIRST_ID, FIRST_MS, fill_outbox, ground
from .measure import Counts, against, clock, counted_sql, interleaved, row

PEAK_POSTS = 5_000     # a second: the article, section 2


def run(settings: Settings, addresses: Addresses, *, rounds: int = 7, rows: int = 10_000, say=lambda *a: None) -> dict:
    """`rounds` of `rows` committed outbox rows, one relay, in this process; rates are rows (records) a second."""
    with clock() as took, ground(settings, addresses, "relay") as lab:
        relay, counts = Relay(lab.settings, addresses.postgres_url, addresses.kafka_bootstrap), Counts()
        relay.open()
        counted_sql(relay.conn, counts)
        memory, batches, moved = kafka.producer(addresses.kafka_bootstrap), 0, 0
        events = [Event("posted", author=n % 997, post=FIRST_ID + n, ms=FIRST_MS + n) for n in range(rows)]
        records = [(e["topic"], e["key"], e["payload"]) for e in (outbox.row(lab.names, e) for e in events)]

        def ours() -> float:
            nonlocal batches, moved
            fill_outbox(lab, records)
            with clock() as spent:
                while n := relay.once():
                    batches, moved = batches + 1, moved + n
            return rows / spent()

        def bare() -> float:
            failures: list = []

            def acked(error, _message):
                if error:
                    failures.append(error)
            with clock() as spent:
                for topic, key, payload in records:
                    memory.produce(topic, payload.encode(), str(key).encode(), on_delivery=acked,
                                   headers={"outbox-ms": str(FIRST_MS)})
                    memory.poll(0)
                kafka.wait_acked(memory, failures)
            return rows / spent()

        rates = interleaved({"ours": ours, "bare": bare}, rounds, lambda n: say("relay: rounds", n, rounds))
        relay.close()
        in_kafka = sum(n for f, n in kafka.end_offsets(lab.admin, [lab.names.created]).items())
        exact = {"rows": moved, "records_in_kafka": in_kafka, "of_them_ours": in_kafka - rows * (rounds + 1),
                 "left_in_outbox": outbox.depth(lab.conn), "batches": batches,
                 # the last ask of each round finds nothing: two statements, no delete
                 "statements_a_batch": (counts.queries - 2 * (rounds + 1)) / batches}
    table = [row("relay", rates["ours"], "a producer, same bytes from memory", rates["bare"], "rows/s", at_least=0.25),
             against("relay", rates["ours"], "the design's peak", PEAK_POSTS, "posts/s", at_least=1)]
    return {"station": "relay", "rows": table, "counts": exact, "seconds": took(),
            "conditions": f"{rows:,} rows a round, batches of 1,000, one relay, {rounds} rounds"}

"""Relay and consumer in this process, to be stepped by hand."""
import time

from .. import kafka, outbox
from ..errors import EngineDown
from ..fanout import Done, FanOut
from ..relay import Relay
from .session import Lab


class Stations:
    """The two of one lab; open from the start, closed by `close` or at the end of a `with`. `fanout`: options of FanOut.

        with Stations(lab) as at:
            at.relay.once(), at.fanout.once()
            at.pump()                      # until nothing waits
    """

    def __init__(self, lab: Lab, **fanout):
        a, s = lab.addresses, lab.settings
        self.lab = lab
        self.relay = Relay(s, a.postgres_url, a.kafka_bootstrap)
        self.fanout = FanOut(s, a.postgres_url, a.redis_url, a.kafka_bootstrap, **fanout)
        try:
            self.relay.open()
            self.fanout.open()
            end = time.monotonic() + 30
            while not self.fanout.consumer.assignment() or self.fanout.stale:
                self.fanout.once(0.05)
                if time.monotonic() > end:
                    raise EngineDown("the consumer was given no partitions in 30 s. Does another one of this namespace run? "
                                     "`feedlab doctor` looks at Kafka.")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Stations":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        self.fanout.close()
        self.relay.close()

    def waiting(self) -> int:
        """Outbox rows and records that have not reached Redis."""
        return outbox.depth(self.lab.conn) + kafka.lag(self.lab.admin, self.lab.redis, self.lab.names)

    def move(self) -> int:
        """All outbox rows to Kafka; how many."""
        rows = 0
        while n := self.relay.once():
            rows += n
        return rows

    def pump(self, timeout_s: float = 60) -> tuple[int, Done]:
        """Step both until nothing waits: rows moved, and what the consumer did. Raises EngineDown at the deadline."""
        moved, total, end = 0, Done(), time.monotonic() + timeout_s
        while True:
            sent, done = self.relay.once(), self.fanout.once(0.02)
            moved += sent
            total.add(done)
            if not sent and not done.records and not self.waiting():
                return moved, total
            if time.monotonic() > end:
                raise EngineDown(f"not drained after {timeout_s:.0f} s. Do other workers of this namespace run?")

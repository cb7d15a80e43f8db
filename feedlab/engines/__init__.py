"""The engines: real PostgreSQL, Redis and Kafka, yours by URL, in containers, or embedded as child processes.

    from feedlab import config, engines
    s = config.settings()
    a = engines.up(s)          # idempotent: starts what does not run, returns when all three answer
    a.postgres_url, a.redis_url, a.kafka_bootstrap
    engines.down(s)            # stops what `up` started, keeps the data

`up`, `down` and `kill` hold the lock of the state folder, so two commands at once are safe. All raise errors of
`feedlab.errors` only, each with one sentence that says what to do.
"""
from .base import EngineStatus
from .checkup import Finding, doctor
from .lifecycle import addresses, down, kill, status, up

__all__ = ["EngineStatus", "Finding", "addresses", "doctor", "down", "kill", "status", "up"]

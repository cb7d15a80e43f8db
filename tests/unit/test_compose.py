"""docker-compose.yml and environment.yml by their structure: there is no Docker engine and no conda to run them
here."""
import re
from pathlib import Path

import pytest
import yaml

from feedlab.addresses import NAMES
from feedlab.engines import containers, jars
from feedlab.engines.kafka_broker import PROPERTIES, Kafka

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def compose() -> dict:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def test_services_have_a_health_check_a_volume_and_a_loopback_port(compose):
    assert set(compose) == {"services", "volumes"}
    assert tuple(compose["services"]) == NAMES
    for name, service in compose["services"].items():
        assert re.fullmatch(r"[a-z]+(/[a-z]+)?:\d+(\.\d+)*", service["image"]), "a pinned tag, no latest"
        check = service["healthcheck"]
        assert check["test"][0] in ("CMD", "CMD-SHELL")
        assert {"interval", "timeout", "retries"} <= set(check)
        (volume,) = service["volumes"]
        source, target = volume.split(":")
        assert source in compose["volumes"]
        assert target.startswith("/")
        (port,) = service["ports"]
        assert re.fullmatch(r"127\.0\.0\.1:\$\{%s:-(\d+)\}:\1" % containers.PORT_VARIABLES[name], port)
    assert len(compose["volumes"]) == 3


def test_kafka_is_the_same_in_both_ways(compose):
    """What the embedded broker is told, the container is told as well."""
    service = compose["services"]["kafka"]
    assert service["image"] == f"apache/kafka:{jars.kafka_version()}"
    env = {k: str(v) for k, v in service["environment"].items()}
    embedded = dict(line.split("=", 1) for line in PROPERTIES.splitlines() if "=" in line and not line.startswith("#"))
    families = ("offsets", "transaction", "share", "min", "default", "group", "auto")
    more = ("num.partitions", "log.retention.hours", "log.segment.bytes", "process.roles", "node.id")
    shared = [k for k in embedded if k.split(".")[0] in families or k in more]
    assert len(shared) > 14
    for key in shared:
        assert env["KAFKA_" + key.replace(".", "_").upper()] == embedded[key], key
    assert env["KAFKA_BROKER_SESSION_TIMEOUT_MS"] == str(Kafka.session_ms)
    # clients on the host and in other containers are each sent to where they can reach it
    names = [x.split("://")[0] for x in env["KAFKA_LISTENERS"].split(",")]
    assert sorted(names) == ["CONTAINER", "CONTROLLER", "HOST"]
    assert all(f"{n}:PLAINTEXT" in env["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"] for n in names)
    assert env["KAFKA_ADVERTISED_LISTENERS"] == "HOST://127.0.0.1:${FEEDLAB_KAFKA_PORT:-9092},CONTAINER://kafka:19092"
    assert service["hostname"] == "kafka"
    assert len(env["CLUSTER_ID"]) == 22


def test_redis_forgets_after_a_crash_and_keeps_after_a_stop(compose, tmp_path):
    """The start line of the container, run by the shell with the server replaced by `true`."""
    import os
    import subprocess
    shell, flag, script = compose["services"]["redis"]["command"]
    assert (shell, flag) == ("sh", "-c")
    for option in ('--save ""', "--appendonly no", "--shutdown-on-sigterm save"):
        assert option in script
    start = script.split("exec ")[0].strip().rstrip(";")
    dump, started = tmp_path / "dump.rdb", tmp_path / "started"

    def run():
        subprocess.run([shell, flag, start], cwd=tmp_path, check=True)
        assert started.exists()

    run()
    dump.write_text("saved by a clean stop")
    os.utime(started, (1_000, 1_000))
    run()
    assert dump.exists()
    os.utime(dump, (1_000, 1_000))  # the next start finds the dump that the last one loaded
    run()
    assert not dump.exists()


def test_environment_yml():
    env = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert set(env) == {"name", "channels", "dependencies"}
    assert env["channels"] == ["conda-forge", "nodefaults"]
    plain = [d for d in env["dependencies"] if isinstance(d, str)]
    assert all(re.fullmatch(r"[a-z0-9-]+( [<>=0-9.,]+)?", d) for d in plain)
    assert any(d.startswith("python >=3.11") for d in plain)
    assert "pip" in plain, "conda warns and may fail without it"
    (pip,) = [d["pip"] for d in env["dependencies"] if isinstance(d, dict)]
    assert pip == ["-r constraints.txt", "-e ."]
    assert (ROOT / "constraints.txt").exists()

"""Embedded Kafka: one KRaft node, broker and controller in one JVM, from the jars of `kafka.lock`."""
import shutil
import subprocess
import uuid
from base64 import urlsafe_b64encode

from ..errors import EngineDown
from . import jars, java, procs
from .embedded import Embedded

PROPERTIES = """\
# Written by feedlab at each start; changes here are lost.
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
# relative to the folder that it is started in: a comma in a path would be two paths
log.dirs={data}

# After kill -9 the new broker is refused until the old one's session is over: this is what a return waits for.
broker.session.timeout.ms={session_ms}
broker.heartbeat.interval.ms={heartbeat_ms}

# one node: nothing can have more than one copy
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
min.insync.replicas=1
default.replication.factor=1

# 50 by default, which a laptop opens and recovers one by one
offsets.topic.num.partitions=8
transaction.state.log.num.partitions=8
share.coordinator.state.topic.num.partitions=8
num.partitions=8
auto.create.topics.enable=false

# a member that joins gets its partitions at once, not after 3 s
group.initial.rebalance.delay.ms=0
# lets a notebook show a consumer's death within seconds
group.min.session.timeout.ms=1000

log.retention.hours=168
log.segment.bytes=67108864
# a machine with two cores: fewer threads start faster and lose nothing at this rate
num.network.threads=2
num.io.threads=4
num.recovery.threads.per.data.dir=2
log.cleaner.dedupe.buffer.size=16777216
"""

LOG4J = """\
status=error
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName=../logs/kafka-server.log
appender.file.filePattern=../logs/kafka-server.log.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d %p %c{1}: %m%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=10MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=2
rootLogger.level=warn
rootLogger.appenderRef.file.ref=file
# says the version and when it is ready
logger.app.name=org.apache.kafka.common.utils.AppInfoParser
logger.app.level=info
"""


class Kafka(Embedded):
    name = "kafka"
    programs = ("java",)
    ports = ("port", "controller_port")
    session_ms = 3_000
    heartbeat_ms = 500

    @property
    def marker(self) -> str:
        return f"-Dfeedlab.state={self.state.dir}"

    def helpers(self) -> tuple[str, ...]:
        return (f"-Dfeedlab.format={self.state.dir}",)

    @property
    def config(self):
        return self.dir / "server.properties", {"port": r"^advertised\.listeners=.*:(\d+)$",
                                                "controller_port": r"^controller\.quorum\.voters=.*:(\d+)$"}

    def missing(self) -> str:
        return "" if java.find() else f"it needs Java {java.NEEDED} or later ({java.tried()})"

    def version(self) -> str:
        return jars.kafka_version()

    def address(self) -> str:
        return f"127.0.0.1:{self.record.get('port') or self.known_ports().get('port', 0)}"

    def jvm(self, *options: str) -> list[str]:
        classpath = ":".join(map(str, self.jars))
        return [str(self.java), *options, "-cp", classpath]

    def properties(self, name: str, data: str) -> None:
        text = PROPERTIES.format(port=self.record["port"], controller_port=self.record["controller_port"], data=data,
                                 session_ms=self.session_ms, heartbeat_ms=self.heartbeat_ms)
        (self.dir / name).write_text(text)

    def prepare(self, report) -> None:
        self.java = java.find()[1]
        self.jars = jars.classpath(report)
        (self.dir / "log4j2.properties").write_text(LOG4J)
        self.properties("server.properties", "data")
        if not (self.dir / "data" / "meta.properties").exists():
            self.format(report)

    def format(self, report) -> None:
        """Into a folder beside and renamed, so that a data folder with meta.properties is always a whole one."""
        report("Kafka: formatting its storage")
        for half in (self.dir / "data", self.dir / "data.new"):
            shutil.rmtree(half, ignore_errors=True)
        self.properties("format.properties", "data.new")
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        run = subprocess.run(
            [*self.jvm("-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dlog4j2.configurationFile=log4j2.properties",
                       *self.helpers()),
             "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--config=format.properties"],
            capture_output=True, text=True, cwd=self.dir, timeout=120, stdin=subprocess.DEVNULL)
        if run.returncode:
            raise EngineDown(f"Kafka: formatting its storage failed: {(run.stderr or run.stdout).strip()[-300:]}")
        (self.dir / "data.new").rename(self.dir / "data")

    def launch(self) -> int:
        return procs.start(
            [*self.jvm("-Xmx512m", "-Xms128m", "-XX:+ExitOnOutOfMemoryError", "-Djava.awt.headless=true",
                       "-Dlog4j2.configurationFile=log4j2.properties", self.marker),
             "kafka.Kafka", "server.properties"], self.log, self.dir)

"""A Kafka broker for tests and benchmarks: a real one (KRaft) on loopback, in a folder of its own.

    with EmbeddedKafka(Path("…/kafka")) as broker:
        print(broker.bootstrap)

It needs Java and nothing else; its jars are had once. The broker dies with the process that started it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tidegate.pipelines.errors import TidegateError
from tidegate.pipelines.jars import java, resolve
from tidegate.pipelines.progress import Progress, SilentProgress, step
from tidegate.pipelines.sources.mysql_cdc.server import WatchedProcess, free_ports

BROKER = "org.apache.kafka:kafka_2.13:4.1.0"
LOGGER = "org.slf4j:slf4j-simple:1.7.36"
STORE_PASSWORD = "changeit"
"""Of the made-up key and trust stores: they protect nothing."""

_CLUSTER = "4L6g3nShT-eMCtK--X86sw"
_START_SECONDS = 90.0
_STOP_SECONDS = 30.0
_PORT_TRIES = 3

DEFAULTS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAIN",
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # A record's time may be any; what is deleted goes at once. Buffers for a small heap.
    "log.retention.ms": "-1",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "0",
    "log.cleaner.backoff.ms": "500",
}


class BrokerUnavailable(TidegateError):
    """A broker that cannot be had or does not start."""


class EmbeddedKafka:
    """One broker, which is its own controller. `options` are laid over DEFAULTS.

    `directory` holds `data/` and `kafka.log`; an existing one is started again with its data, on its ports. With
    `users` (name -> password) there is a listener that asks for SASL/PLAIN, with `tls` one that speaks TLS.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        options: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        tls: bool = False,
        heap: str = "256m",
        progress: Progress | None = None,
    ) -> None:
        self.directory = Path(directory).absolute()
        self.host = "127.0.0.1"
        self.log = self.directory / "kafka.log"
        self.truststore = self.directory / "truststore.p12"
        self._options = {**DEFAULTS, **(options or {})}
        self._users = dict(users or {})
        self._names = ["PLAIN", "CONTROLLER", *(["SASL"] if self._users else []), *(["TLS"] if tls else [])]
        self._ports: dict[str, int] = {}
        self._heap = heap
        self._progress = progress or SilentProgress()
        self._process: WatchedProcess | None = None

    def __enter__(self) -> EmbeddedKafka:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    @property
    def bootstrap(self) -> str:
        """`host:port` of the listener without any protection. Raises BrokerUnavailable before the first start."""
        return self._address("PLAIN")

    @property
    def sasl_bootstrap(self) -> str:
        """`host:port` of the listener that asks for a user."""
        return self._address("SASL")

    @property
    def tls_bootstrap(self) -> str:
        """`host:port` of the listener that speaks TLS; `truststore` knows its certificate."""
        return self._address("TLS")

    def _address(self, listener: str) -> str:
        if listener not in self._ports:
            raise BrokerUnavailable(
                f"the broker has no listener {listener} (yet)",
                where=str(self.directory),
                next_command="call start() first, and ask for `users` or `tls` where they are needed",
            )
        return f"{self.host}:{self._ports[listener]}"

    def start(self) -> EmbeddedKafka:
        """Start and wait until the listeners answer. Does nothing if it runs. Raises BrokerUnavailable."""
        if self.running:
            return self
        self.directory.mkdir(parents=True, exist_ok=True)
        known = bool(self._ports)
        for attempt in range(_PORT_TRIES):
            if not known:
                self._ports = dict(zip(self._names, free_ports(self.host, len(self._names)), strict=True))
            try:
                self._launch()
                self._wait()
                return self
            except BrokerUnavailable:
                self._end()
                taken = "Address already in use" in self._logged()
                if known or not taken or attempt + 1 == _PORT_TRIES:
                    raise
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """Shut down in good order; a broker that does not go in time is killed."""
        if self._process is not None:
            self._process.stop(_STOP_SECONDS)
        self._end()

    def kill(self) -> None:
        """SIGKILL, as a crash would do."""
        self._end()

    def _launch(self) -> None:
        self._stores()
        settings = self.directory / "server.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        if not (self.directory / "data" / "meta.properties").exists():
            with step(self._progress, "format Kafka's folder"):
                self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings))
        self._process = WatchedProcess([*self._command("kafka.Kafka"), str(settings)], self.log, farewell="KILL")

    def _settings(self) -> dict[str, str]:
        protocols = {"PLAIN": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "SASL": "SASL_PLAINTEXT", "TLS": "SSL"}
        listeners = {name: f"{name}://{self.host}:{port}" for name, port in self._ports.items()}
        own = {
            "log.dirs": str(self.directory / "data"),
            "listeners": ",".join(listeners.values()),
            "advertised.listeners": ",".join(text for name, text in listeners.items() if name != "CONTROLLER"),
            "listener.security.protocol.map": ",".join(f"{name}:{protocols[name]}" for name in self._names),
            "controller.quorum.voters": f"1@{self.host}:{self._ports['CONTROLLER']}",
        }
        if self._users:
            users = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
            login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
            own |= {
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl.plain.sasl.jaas.config": f"{login} {users};",
            }
        if "TLS" in self._names:
            own |= {
                "ssl.keystore.location": str(self.directory / "keystore.p12"),
                "ssl.keystore.password": STORE_PASSWORD,
                "ssl.keystore.type": "PKCS12",
            }
        return {**self._options, **own}

    def _stores(self) -> None:
        """A made-up certificate for loopback, and a store that trusts it."""
        keys, certificate = self.directory / "keystore.p12", self.directory / "broker.pem"
        if "TLS" not in self._names or self.truststore.exists():
            return
        tool = str(Path(java()).resolve().parent / "keytool")
        store = ["-storetype", "PKCS12", "-storepass", STORE_PASSWORD, "-alias", "broker"]
        made = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=localhost", "-ext", f"san=ip:{self.host}"]
        _run([tool, *made, "-validity", "3650", "-keystore", str(keys), *store])
        _run([tool, "-exportcert", "-rfc", "-keystore", str(keys), "-file", str(certificate), *store])
        trusted = ["-importcert", "-noprompt", "-file", str(certificate)]
        _run([tool, *trusted, "-keystore", str(self.truststore), *store])

    def _command(self, main: str) -> list[str]:
        path = os.pathsep.join(map(str, resolve([BROKER, LOGGER], complete=True, progress=self._progress)))
        tuned = [f"-Xmx{self._heap}", f"-Xms{self._heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [java(), *tuned, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", path, main]

    def _java(self, main: str, *arguments: str) -> None:
        _run([*self._command(main), *arguments])

    def _wait(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            if not self.running:
                raise self._failed(f"the broker did not start: {_first_error(self._logged())}")
            # The broker opens its listeners once it is ready to answer.
            if all(_answers(self.host, port) for name, port in self._ports.items() if name != "CONTROLLER"):
                return
            time.sleep(0.05)
        raise self._failed(f"the broker was not ready after {_START_SECONDS:.0f} s")

    def _failed(self, what: str) -> BrokerUnavailable:
        return BrokerUnavailable(
            what,
            where=str(self.log),
            state="it was stopped again; its data is kept",
            next_command="read the log named above, and run the same command again",
        )

    def _logged(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def remove(self) -> None:
        """Stop, and take its folder away."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BrokerUnavailable(
            f"{Path(command[0]).name} failed: {_first_error(done.stdout + done.stderr)}",
            state="no broker was started",
            next_command="mend the cause, and run the same command again",
        )


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    reason = next((line for line in lines if "Exception" in line or "ERROR" in line or "error" in line), None)
    return (reason or (lines[-1] if lines else "it said nothing"))[:300]


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 0.5).close()
    except OSError:
        return False
    return True

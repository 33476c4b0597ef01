"""Services that tests share, and how a test says which it needs: by its fixtures.

A test that takes `spark`, `mariadb` or `broker` (itself, or through another fixture) is marked with the
service. One that starts something of its own, in its process or in another, takes `jvm` or `server` (a module of such
tests: `pytestmark = pytest.mark.usefixtures("jvm")`). Every other test runs in `make test-fast`, and is stopped where
it starts a JVM or a server all the same.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pymysql.connections import Connection
from pyspark.sql import SparkSession

from tests import cases
from tidegate.pipelines import paths
from tidegate.pipelines.sources.mysql_cdc.server import EmbeddedMariaDb, WatchedProcess
from tidegate.pipelines.syntax.types import quoted_string
from tidegate.pipelines.testing import spark_session

if TYPE_CHECKING:
    import dagster as dg  # takes seconds: tests that need it load it

_numbers = itertools.count(1)

os.environ.pop("SPARK_CONF_DIR", None)  # with files of its own, Java would not take its archive of Spark's classes
os.environ["SPARK_SUBMIT_OPTS"] = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC"
"""For the sessions of commands and Dagster runs that tests start: a process lives for some epochs of a few rows, and
half of its processor time would go into compiling them well. What Spark itself does is left as users have it."""

os.fsync = lambda opened: None  # type: ignore[assignment]
"""No test cuts the power of the machine, and a disk that others write to takes milliseconds for each. What is synced,
and when, `tests/power.py` sees; processes that tests start sync as users' do."""


@dataclass(frozen=True)
class Database:
    """A database of a test's own. `user` and `password` may read it and the binlog, over TCP."""

    server: EmbeddedMariaDb
    name: str
    user: str
    password: str

    def connect(self, **settings: Any) -> Connection:
        """A connection as root, in autocommit, with this database chosen."""
        return self.server.connect(**{"database": self.name, **settings})

    def execute(self, *statements: str) -> tuple[tuple[Any, ...], ...]:
        """Run statements as root and return the rows of the last one. The log stands still afterwards, see `settle`."""
        found = self.server.execute(*statements, database=self.name)
        if any(statement.startswith("FLUSH") for statement in statements):
            self.settle()
        return found

    @contextlib.contextmanager
    def settings(self, **values: str | int) -> Iterator[None]:
        """The server with other global settings, for the sessions that begin now; then with those that it had."""
        (had,) = self.execute(f"SELECT {', '.join(f'@@GLOBAL.{name}' for name in values)}")
        self.execute(*(f"SET GLOBAL {name} = {value!r}" for name, value in values.items()))
        try:
            yield
        finally:
            self.execute(*(f"SET GLOBAL {name} = {value!r}" for name, value in zip(values, had, strict=True)))

    def settle(self) -> None:
        """Wait for the last event that the server writes by itself into a log that has just begun: a checkpoint that
        names this log, once the engine has stored what the logs before it hold (about a second)."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            ((log, *_),) = self.server.execute("SHOW MASTER STATUS")
            events = self.server.execute(f"SHOW BINLOG EVENTS IN '{log}'")
            if any(event[2] == "Binlog_checkpoint" and event[5] == log for event in events):
                return
            time.sleep(0.02)
        raise TimeoutError(f"{log} has no checkpoint of its own after a minute")

    def options(self, table: str, **more: str) -> dict[str, str]:
        """The WITH options of a mysql-cdc table that reads `table`; in `more`, `_` stands for `-`."""
        return {
            "connector": "mysql-cdc",
            "hostname": self.server.host,
            "port": str(self.server.port),
            "username": self.user,
            "password": self.password,
            "database-name": self.name,
            "table-name": table,
            **{key.replace("_", "-"): value for key, value in more.items()},
        }

    def clause(self, table: str, chunk: int | None = None, **more: str) -> str:
        """The same, as a script has it in its brackets. `chunk`: rows in a chunk of the snapshot."""
        found = self.options(table, **more)
        if chunk is not None:
            found["scan.incremental.snapshot.chunk.size"] = str(chunk)
        return ", ".join(f"'{name}' = {quoted_string(value)}" for name, value in found.items())

    def environment(self, **more: object) -> dict[str, str]:
        """What the script of examples/clicks finds in the environment to get here, and `more`."""
        found = {
            "MYSQL_HOST": self.server.host,
            "MYSQL_PORT": self.server.port,
            "MYSQL_USER": self.user,
            "MYSQL_PASSWORD": self.password,
        }
        return {name: str(value) for name, value in {**found, **more}.items()}


SERVICES = {
    "spark": "spark",
    "jvm": "spark",
    "mariadb": "mariadb",
    "server": "server",
    "broker": "kafka",
}
"""Fixture -> the marker of what it starts."""
SHARED = {"mariadb": "mariadb", "kafka": "kafka"}
"""Marker -> the group of the tests that run in one worker, one after another: only that one starts the service."""
NO_JAVA = Path(__file__).parent / "fixtures" / "no_java"
"""A JAVA_HOME whose `java` only says that it is none."""


def pytest_configure(config: pytest.Config) -> None:
    """Without thorough tests, properties are searched for less long."""
    cases.AT_LENGTH = "not thorough" not in config.option.markexpr


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with the services that they start, and say which belong together on one worker: those of a shared
    service, else those of a file. What takes minutes comes first, the shared services above all: begun last, it would
    run alone in the end."""
    long = {item.path for item in items if item.get_closest_marker("long")}
    for item in items:
        names = {SERVICES[name] for name in getattr(item, "fixturenames", ()) if name in SERVICES}
        for name in sorted(names):
            item.add_marker(name)
        if names:
            item.add_marker("service")
        shared = next((group for name, group in SHARED.items() if name in names), None)
        item.add_marker(pytest.mark.xdist_group(shared or item.nodeid.partition("::")[0]))
    first = ("mariadb", "kafka")
    items.sort(key=lambda item: (*(item.get_closest_marker(name) is None for name in first), item.path not in long))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse a run whose workers do not see the groups: each would start every service, and fixtures of a module."""
    gc.freeze()  # thousands of tests are for ever: whoever collects garbage need not look at them
    grouped = getattr(session.config.option, "loadgroup", False)
    if grouped and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("pytest-xdist does not keep the tests of a group on one worker: see constraints.txt")


@pytest.fixture(scope="session")
def jvm() -> None:
    """Says that a test starts a JVM of its own, as commands and runs of Dagster do."""


@pytest.fixture(scope="session")
def server() -> None:
    """Says that a test starts a MariaDB or a Kafka of its own."""


@pytest.fixture(autouse=True)
def starts_only_what_it_asks_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a test without a service's fixture where it starts one."""
    if request.node.get_closest_marker("service") is not None:
        return

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("this test starts a server: let it take the fixture `mariadb`, `broker` or `server`")

    monkeypatch.setenv("JAVA_HOME", str(NO_JAVA))
    monkeypatch.setattr(WatchedProcess, "__init__", refuse)


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    session = spark_session()
    ask_once()
    leave_out_the_defaults_of_hadoop(session)
    return session


def leave_out_the_defaults_of_hadoop(session: SparkSession) -> None:
    """Take Hadoop's defaults out of what the session hands on. Each job copies them, and packs and unpacks them for its
    tasks: a thousand settings of YARN, S3 and others, a tenth of the JVM's time. Hadoop has in its code those that
    matter here, but for one."""
    needed = "fs.AbstractFileSystem.file.impl"
    _ = session._jvm.org.apache.hadoop.mapred.JobConf()  # brings defaults of its own
    session._jsparkSession.sessionState().newHadoopConf()  # and so does this, the first time
    settings: Any = session._jsc.hadoopConfiguration()
    value = settings.get(needed)
    settings.clear()
    settings.set(needed, value)


def ask_once() -> None:
    """Keep what the JVM has said of its classes. At each `F.lit(…)` pyspark asks what `functions` is, for which Java
    looks into all jars, and what `lit` is."""
    from py4j.java_gateway import JavaClass, JavaMember, JVMView

    def kept(asked: Callable[[Any, str], Any], kind: type) -> Callable[[Any, str], Any]:
        def ask(owner: Any, name: str) -> Any:
            found = asked(owner, name)
            if isinstance(found, kind):
                vars(owner)[name] = found  # so that Python does not ask `__getattr__` again
            return found

        return ask

    JVMView.__getattr__ = kept(JVMView.__getattr__, JavaClass)  # type: ignore[method-assign]
    JavaClass.__getattr__ = kept(JavaClass.__getattr__, JavaMember)  # type: ignore[method-assign]


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMariaDb]:
    """A server for the whole run. Tests that stop it, or change its settings, start one of their own."""
    with EmbeddedMariaDb(tmp_path_factory.mktemp("mariadb")) as server:
        server.create_user("reader", "reader-secret")
        yield server


@contextlib.contextmanager
def own_server(folder: Path, **options: str | int | bool | None) -> Iterator[Database]:
    """An empty database `shop` on a server of the test's own, which is started with `options`."""
    with EmbeddedMariaDb(folder, options=options) as server:
        server.create_user("reader", "reader-secret")
        server.execute("CREATE DATABASE shop")
        yield Database(server, "shop", "reader", "reader-secret")


SECRET = "s3c+et/per cent% &ünd€"
"""A password that is written otherwise wherever it is escaped or encoded."""
ACCOUNT = "reader-of-clicks-7"
"""A user's name that no page, script or table has."""


@pytest.fixture
def example_database(mariadb: EmbeddedMariaDb) -> Iterator[Database]:
    """The database of examples/clicks, under the name that it has there; its user is ACCOUNT, the password SECRET."""
    mariadb.execute("CREATE DATABASE example_database")
    mariadb.create_user(ACCOUNT, SECRET)
    try:
        yield Database(mariadb, "example_database", ACCOUNT, SECRET)
    finally:
        mariadb.execute("DROP DATABASE example_database", f"DROP USER '{ACCOUNT}'@'127.0.0.1'")


@pytest.fixture
def database(mariadb: EmbeddedMariaDb) -> Iterator[Database]:
    name = f"test_{next(_numbers)}"
    mariadb.execute(f"CREATE DATABASE {name}")
    try:
        yield Database(mariadb, name, "reader", "reader-secret")
    finally:
        with contextlib.suppress(Exception):
            mariadb.execute(f"DROP DATABASE `{name}`")


@pytest.fixture
def files_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's own folder, which is all that tables of files may lie in."""
    monkeypatch.setenv(paths.VARIABLE, str(tmp_path))
    return tmp_path


@pytest.fixture(scope="session")
def new_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A DAGSTER_HOME in which Dagster has made its tables, which takes longer than most tests do. Only to be copied."""
    import dagster as dg
    from alembic.script import ScriptDirectory

    from tidegate.orchestration.web_server import prepare

    home = tmp_path_factory.mktemp("dagster") / "home"
    prepare(home)
    with pytest.MonkeyPatch.context() as patch:
        # Whoever opens a home reads all of Dagster's migrations, to learn which is the newest.
        patch.setattr(ScriptDirectory, "from_config", functools.cache(ScriptDirectory.from_config))
        with dg.DagsterInstance.from_config(str(home)):
            pass
        yield home


@pytest.fixture
def home(tmp_path: Path, new_home: Path) -> Path:
    """A DAGSTER_HOME of the test's own."""
    return shutil.copytree(new_home, tmp_path / "dagster")


@pytest.fixture
def history(home: Path) -> Iterator[dg.DagsterInstance]:
    """Dagster's own history, on disk in `home`."""
    import dagster as dg

    with dg.DagsterInstance.from_config(str(home)) as found:
        yield found


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """Dagster's own history, in memory."""
    import dagster as dg

    with dg.DagsterInstance.ephemeral() as found:
        yield found

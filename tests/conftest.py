"""Real servers for tests: one PostgreSQL per test session, one NATS server per test, private ones to be killed.

All data lies under directories made for the session; every server is a child of the test process and is stopped with
the fixture that started it, also when the test fails.
"""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import structlog
from hypothesis import HealthCheck, settings
from psycopg import sql

from ops.embedded.broker_server import BrokerServer
from ops.embedded.directory import DirectoryLock, StackDirectory
from ops.embedded.postgres_server import PostgresServer
from ops.init import Organization, initialize
from ops.migrate import migrate
from services.process.database import connect
from tests.fault_proxy import FaultProxy

template = "weavehold_template"
memory = Path("/dev/shm")
memory_bytes_min = 4 * 1024**3
"""Bytes free in memory's file system below which nothing is laid there; a worker's databases need a twentieth."""
# How long an example takes says how busy the machine is.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
# What services log inside a test's own process. By default a fault is drawn with all variables of all frames, for which
# the event loop stands still for seconds: long enough to lose a lease.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.set_exc_info,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


@contextmanager
def watched_directory(parent: Path) -> Iterator[Path]:
    """A directory of this session's own, short enough for sockets, that PostgreSQL's own user may pass through."""
    directory = Path(tempfile.mkdtemp(prefix="weavehold-test-", dir=parent))
    directory.chmod(0o711)
    lock = DirectoryLock(StackDirectory(directory))
    assert lock.try_acquire("test")
    # Stops the servers and removes the directory when this process is killed.
    watchdog = subprocess.Popen(
        [sys.executable, "-m", "ops.embedded.watchdog", str(directory), "--remove"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    yield directory
    watchdog.communicate(b"stopped")
    lock.release()
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def servers_directory() -> Iterator[Path]:
    """Where servers that a test may kill have their data: on the disk."""
    with watched_directory(Path(tempfile.gettempdir())) as directory:
        yield directory


@pytest.fixture(scope="session")
def passing_directory(servers_directory: Path) -> Iterator[Path]:
    """Where data lie whose durability proves nothing: in memory, if there is plenty.

    Hundreds of databases are made there from a template, of hundreds of files each: on a disk that costs more than
    what the tests do with them.
    """
    if not (memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= memory_bytes_min):
        yield servers_directory
        return
    with watched_directory(memory) as directory:
        yield directory


def create_database(server: PostgresServer, name: str, template_name: str = "template1") -> str:
    """Create a database on the server and return its URL."""
    with closing(psycopg.connect(server.url(), autocommit=True)) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template_name))
        )
    return server.url(name)


def drop_database(server: PostgresServer, name: str) -> None:
    """Drop a database, ending what is still connected to it."""
    with closing(psycopg.connect(server.url(), autocommit=True)) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def postgres_server(passing_directory: Path) -> Iterator[PostgresServer]:
    """The session's PostgreSQL with a migrated template database. Never kill it: take `private_postgres`."""
    server = PostgresServer(passing_directory / "shared", fsync=False)
    server.start()
    try:
        migrate(create_database(server, template))
        yield server
    finally:
        server.stop()


@pytest.fixture
def empty_database_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database of this test's own without any migration."""
    name = f"empty_{secrets.token_hex(6)}"
    yield create_database(postgres_server, name)
    drop_database(postgres_server, name)


@pytest.fixture
def database_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A migrated database of this test's own."""
    name = f"test_{secrets.token_hex(6)}"
    yield create_database(postgres_server, name, template)
    drop_database(postgres_server, name)


@pytest.fixture
def nats_server(servers_directory: Path) -> Iterator[BrokerServer]:
    """A NATS server of this test's own, with JetStream in a directory of its own."""
    directory = servers_directory / f"nats-{secrets.token_hex(6)}"
    server = BrokerServer(directory)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


@pytest.fixture
def nats_url(nats_server: BrokerServer) -> str:
    """The address of this test's NATS server."""
    return nats_server.url


@pytest.fixture
async def organization(database_url: str, tmp_path: Path) -> Organization:
    """An Organization with 2 shards in `database_url`, as `weavehold init` makes it; keys are `.keys.operator` …"""
    connection = await connect(database_url, name="fixture")
    try:
        return await initialize(connection, name="test", keys_directory=tmp_path / "keys", shard_count=2)
    finally:
        await connection.close()


@dataclass(frozen=True)
class PrivatePostgres:
    """A server that a test may kill (`server.kill()`), stop, restart, and its migrated database."""

    server: PostgresServer
    database_url: str


@pytest.fixture
def private_postgres(servers_directory: Path) -> Iterator[PrivatePostgres]:
    """A PostgreSQL server of this test's own with fsync on; reach it through a proxy with `FaultProxy.to_database`."""
    directory = servers_directory / f"pg-{secrets.token_hex(6)}"
    server = PostgresServer(directory)
    server.start()
    try:
        url = create_database(server, "weavehold")
        migrate(url)
        yield PrivatePostgres(server, url)
    finally:
        server.stop()
        shutil.rmtree(directory)


@pytest.fixture
def private_nats(nats_server: BrokerServer) -> BrokerServer:
    """A NATS server that a test may `kill()`, `stop()`, `start()`, `restart()`; the URL stays."""
    return nats_server


@pytest.fixture
async def database_proxy(database_url: str) -> AsyncIterator[FaultProxy]:
    """A proxy to this test's database; connect to `database_proxy.database_url(database_url)`."""
    async with FaultProxy.to_database(database_url) as proxy:
        yield proxy


@pytest.fixture
async def broker_proxy(nats_url: str) -> AsyncIterator[FaultProxy]:
    """A proxy to this test's NATS server; connect to `broker_proxy.nats_url`."""
    async with FaultProxy.to_broker(nats_url) as proxy:
        yield proxy

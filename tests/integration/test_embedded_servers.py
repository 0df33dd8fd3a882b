"""The embedded PostgreSQL and NATS: kill -9, leftovers, stale files, taken ports, unwritable directories."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from ops.embedded.broker_server import BrokerServer
from ops.embedded.directory import DirectoryLock, StackDirectory
from ops.embedded.fault import EmbeddedFault
from ops.embedded.postgres_server import PostgresServer
from ops.embedded.processes import recognised, wait_until, working_in


@pytest.fixture
def directory(servers_directory: Path) -> Path:
    made = servers_directory / f"embedded-{os.urandom(4).hex()}"
    made.mkdir()
    return made


@pytest.fixture
def postgres(directory: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(directory)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def nats(directory: Path) -> Iterator[BrokerServer]:
    server = BrokerServer(directory, token="a-token-of-this-test")
    server.start()
    yield server
    server.stop()


def remember(server: PostgresServer, text: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS remembered (text text)")
        connection.execute("INSERT INTO remembered VALUES (%s)", [text])


def remembered(server: PostgresServer) -> list[str]:
    with psycopg.connect(server.url()) as connection:
        return [row[0] for row in connection.execute("SELECT text FROM remembered ORDER BY text")]


def test_a_killed_postgres_starts_again_with_all_that_was_committed(postgres: PostgresServer) -> None:
    """OPS-1, DUR-2: kill -9 of the server; same URL, nothing committed is lost."""
    url = postgres.url()
    for text in ("a", "b"):
        remember(postgres, text)
        postgres.kill()
        assert postgres.pid is None
        postgres.start()
    assert remembered(postgres) == ["a", "b"]
    assert postgres.url() == url


def test_durability_is_on(postgres: PostgresServer) -> None:
    """DUR-2: an acknowledged commit is on disk; damaged pages are noticed."""
    with psycopg.connect(postgres.url()) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes", "data_checksums"):
            assert connection.execute("SELECT current_setting(%s)", [setting]).fetchone() == ("on",), setting


def test_only_its_own_user_reaches_the_socket(postgres: PostgresServer) -> None:
    """Trust authentication is behind a socket that nobody else can open, and no TCP port is open."""
    sockets = [path for path in postgres.socket_directory.iterdir() if path.is_socket()]
    assert [path.stat().st_mode & 0o777 for path in sockets] == [0o700]
    listening = [found for found in psutil.Process(postgres.pid).net_connections() if found.laddr]
    assert [found for found in listening if found.family != socket.AF_UNIX] == []


def test_a_server_that_a_killed_starter_left_is_stopped_first(directory: Path) -> None:
    """OPS-1: a second start on the same data ends the left server and has its data."""
    program = f"""
import os, signal
from pathlib import Path
from ops.embedded.postgres_server import PostgresServer
server = PostgresServer(Path({str(directory)!r}))
server.start()
print(server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    starter = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    left = psutil.Process(int(starter.stdout))
    assert left.is_running()
    server = PostgresServer(directory)
    try:
        server.start()
        assert not left.is_running()
        assert server.pid != left.pid
        remember(server, "a")
    finally:
        server.stop()
    assert working_in(server.data) == []


def test_a_pid_file_that_names_another_process_is_stale(postgres: PostgresServer) -> None:
    """OPS-1: after a crash the recorded PID may be anybody's; a foreign process is neither believed nor touched."""
    postgres.kill()
    assert wait_until(lambda: not working_in(postgres.data), 10)
    pid_file = postgres.data / "postmaster.pid"
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        lines = pid_file.read_text().splitlines()
        pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        postgres.start()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_directory_that_is_no_data_directory_is_refused(directory: Path) -> None:
    """OPS-2: what, value, remedy; and nothing of it is touched."""
    (directory / "data").mkdir()
    (directory / "data" / "diary.txt").write_text("mine")
    with pytest.raises(EmbeddedFault, match=r"holds diary\.txt but no PG_VERSION.*Move it away"):
        PostgresServer(directory).start()
    assert (directory / "data" / "diary.txt").read_text() == "mine"


def test_a_start_that_fails_shows_the_servers_own_words(directory: Path) -> None:
    """OPS-2: the end of the server's log is in the message."""
    server = PostgresServer(directory, parameters={"shared_buffers": "nonsense"})
    with pytest.raises(EmbeddedFault, match=r"did not start on .*\n.*shared_buffers"):
        server.start()
    assert server.pid is None


def test_a_killed_nats_starts_again_at_the_same_address(nats: BrokerServer) -> None:
    """OPS-1: kill -9 of the broker; port and token stay."""
    url = nats.url
    nats.kill()
    nats.start()
    assert nats.url == url
    assert nats.pid is not None


def test_nats_on_a_taken_port_says_so(directory: Path) -> None:
    """OPS-2: the port, and what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedFault, match=rf"port {port} of 127\.0\.0\.1 is taken.*--nats-port"):
            BrokerServer(directory, port=port).start()


def test_two_brokers_never_share_a_store(nats: BrokerServer, directory: Path) -> None:
    """OPS-1: a broker that somebody left on the store is stopped before the next starts."""
    left = psutil.Process(nats.pid)
    second = BrokerServer(directory, port=nats.port, token=nats.token)
    try:
        second.start()
        assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE
        assert second.pid != left.pid
    finally:
        second.stop()


def test_a_place_that_cannot_be_written_is_named(directory: Path) -> None:
    """OPS-2: an unwritable place is told with path, reason and remedy, before anything runs."""
    (directory / "run").symlink_to("/proc/self")
    with pytest.raises(EmbeddedFault, match=r"cannot be written: .*--directory"):
        StackDirectory.at(directory).prepare()


def test_the_address_of_the_broker_is_kept(directory: Path) -> None:
    """OPS-1: port and token are picked once; a damaged file means a new pick, not a crash; secrets are private."""
    stack = StackDirectory.at(directory)
    stack.prepare()
    address = stack.broker_address()
    assert stack.broker_address() == address
    assert stack.broker_address(port=4999) == (4999, address[1])
    kept = stack.run / "broker.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_text("{")
    assert stack.broker_address()[1] != address[1]


def test_a_held_directory_names_its_holder(directory: Path) -> None:
    """OPS-2: another live `up` is named by its PID; when it dies in any way the directory is free at once."""
    stack = StackDirectory.at(directory)
    stack.prepare()
    program = f"""
import time
from pathlib import Path
from ops.embedded.directory import DirectoryLock, StackDirectory
assert DirectoryLock(StackDirectory.at(Path({str(directory)!r}))).try_acquire("up")
print("held", flush=True)
time.sleep(60)
"""
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(EmbeddedFault, match=f"in use by `weavehold up` with PID {holder.pid}"):
            DirectoryLock(stack).acquire()
    finally:
        holder.kill()
        holder.communicate()
    lock = DirectoryLock(stack)
    lock.acquire()
    assert json.loads((directory / "lock").read_text())["pid"] == os.getpid()
    lock.release()


def test_a_process_is_recognised_by_pid_and_start_time() -> None:
    """OPS-1: a PID alone proves nothing."""
    me = psutil.Process()
    assert recognised(me.pid, me.create_time()) == me
    assert recognised(me.pid, me.create_time() - 5) is None
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.send_signal(signal.SIGKILL)
    ended.wait()
    assert recognised(ended.pid, me.create_time()) is None

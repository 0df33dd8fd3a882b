"""The embedded stack as a whole: everything is killed with -9 in turn, and nothing is ever left running (OPS-1)."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from ops.embedded.fault import EmbeddedFault
from ops.embedded.processes import wait_until
from ops.embedded.services import authority, relay, standard_services
from ops.embedded.supervisor import StackOptions, Supervisor
from ops.embedded.unit import ServiceSpec
from tests.conftest import PrivatePostgres

nothing = {"WEAVEHOLD_DATABASE_URL": "", "WEAVEHOLD_NATS_URL": ""}


@pytest.fixture
def directory(servers_directory: Path) -> Path:
    return servers_directory / f"stack-{os.urandom(4).hex()}"


def processes_of(directory: Path) -> list[psutil.Process]:
    """Whatever runs with the directory in its command line or environment."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if process.status() != psutil.STATUS_ZOMBIE and any(str(directory) in word for word in words):
            found.append(process)
    return found


class RunningUp:
    """`weavehold up --json` as a process."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "ops.cli", "up", "--json", "--directory", str(directory), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **nothing},
        )

    def wait_ready(self) -> dict[str, int]:
        """PIDs by process name."""
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line, self.child.stderr and self.child.stderr.read().decode()
        return {each["name"]: each["pid"] for each in json.loads(line)["processes"]}

    def end(self) -> None:
        self.child.kill()
        self.child.communicate()


@pytest.fixture
def up(directory: Path) -> Iterator[RunningUp]:
    running = RunningUp(directory, "--authorities", "0")
    # The test may kill the supervisor; whatever it does, nothing may be left.
    yield running
    running.end()
    assert wait_until(lambda: processes_of(directory) == [], 45)


async def test_each_process_is_killed_and_comes_back(directory: Path) -> None:
    """OPS-1, DUR-4: database, broker, authority, relay, projector die by kill -9; the stack is healthy each time."""
    async with Supervisor(directory, standard_services(), variables=nothing) as stack:
        assert stack.unit_names == ["database", "broker", "authority-1", "relay-1", "projector"]
        before = stack.variables()
        for name in stack.unit_names:
            pid = await stack.kill(name)
            await stack.wait_healthy()
            assert stack.pid(name) not in (pid, None)
            assert stack.restarts(name) >= 1
        assert stack.variables() == before
        with psycopg.connect(stack.database_url) as connection:
            assert connection.execute("SELECT count(*) FROM signing_key").fetchone() == (4,)
    assert processes_of(directory) == []


async def test_a_process_can_be_held_down_and_started_again(directory: Path) -> None:
    """OPS-1: for drills: what was killed stays down until it is told, and the stack says who is missing."""
    async with Supervisor(directory, [relay(1)], variables=nothing) as stack:
        await stack.kill("broker", restart=False)
        await asyncio.sleep(0.5)
        assert stack.pid("broker") is None
        unready = await stack.unready()
        assert unready["broker"] == "it does not run"
        await stack.start_again("broker")
        await stack.wait_healthy()
        await stack.stop_service("relay-1")
        assert stack.service_names == []
        await stack.add_service(relay(2))
        await stack.wait_healthy()
    assert processes_of(directory) == []


async def test_a_service_that_cannot_use_its_settings_is_given_up(directory: Path) -> None:
    """OPS-2: exit code 2 is not retried for ever; the message has the service's own words."""
    broken = ServiceSpec("authority-1", ("authority",), {"WEAVEHOLD_LOG_LEVEL": "loud"})
    with pytest.raises(EmbeddedFault, match=r"authority-1: .*exit code 2"):
        async with Supervisor(directory, [broken], variables=nothing):
            pass
    assert "WEAVEHOLD_LOG_LEVEL is 'loud'" in (directory / "logs" / "authority-1.log").read_text()
    assert processes_of(directory) == []


@pytest.mark.fault
async def test_a_service_that_hangs_is_killed_and_restarted(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OPS-1: a stopped process does not answer /livez; the supervisor ends it with SIGKILL."""
    monkeypatch.setattr("ops.embedded.supervisor.liveness_interval_seconds", 0.2)
    monkeypatch.setattr("ops.embedded.http_probe.probe_seconds_max", 0.5)
    async with Supervisor(directory, [relay(1)], variables=nothing) as stack:
        pid = stack.pid("relay-1")
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(60):
            while stack.restarts("relay-1") == 0:
                await asyncio.sleep(0.1)
        await stack.wait_healthy()
        assert stack.pid("relay-1") != pid
    assert processes_of(directory) == []


async def test_real_servers_are_used_instead_of_embedded_ones(
    directory: Path, private_postgres: PrivatePostgres, nats_url: str
) -> None:
    """OPS-1: with both addresses given nothing is embedded, and the given servers are neither stopped nor touched."""
    variables = {"WEAVEHOLD_DATABASE_URL": private_postgres.database_url, "WEAVEHOLD_NATS_URL": nats_url}
    async with Supervisor(
        directory, [authority(1)], StackOptions(organization_name="given", shard_count=2), variables
    ) as stack:
        assert stack.unit_names == ["authority-1"]
        assert stack.database_url == private_postgres.database_url
        assert stack.organization.organization_id == "urn:weavehold:organization:given"
    assert private_postgres.server.pid is not None
    assert not (directory / "postgres").exists()
    assert processes_of(directory) == []


def test_a_killed_supervisor_leaves_nothing_and_the_next_start_has_everything(up: RunningUp, directory: Path) -> None:
    """OPS-1, DUR-2: kill -9 of `weavehold up`: services and servers stop by themselves; data and addresses stay."""
    first = up.wait_ready()
    variables = json.loads((directory / "run" / "stack.json").read_text())
    with psycopg.connect(variables["WEAVEHOLD_DATABASE_URL"], autocommit=True) as connection:
        connection.execute("CREATE TABLE remembered AS SELECT 'kept' AS text")
    up.end()
    # Without waiting for the clean-up: the next start waits by itself.
    second = RunningUp(directory, "--authorities", "0")
    try:
        assert set(second.wait_ready()) == {"database", "broker", "relay-1"}
        assert not [name for name, pid in first.items() if psutil.pid_exists(pid)]
        assert json.loads((directory / "run" / "stack.json").read_text()) == variables
        with psycopg.connect(variables["WEAVEHOLD_DATABASE_URL"]) as connection:
            assert connection.execute("SELECT text FROM remembered").fetchone() == ("kept",)
    finally:
        second.child.send_signal(signal.SIGINT)
        output, errors = second.child.communicate(timeout=120)
    assert second.child.returncode == 0, errors.decode()
    assert output == b""
    assert processes_of(directory) == []


@pytest.mark.fault
def test_what_survives_even_the_watchdog_is_stopped_by_the_next_start(up: RunningUp, directory: Path) -> None:
    """OPS-1: supervisor and watchdog killed together leave servers behind; the next start ends them first."""
    first = up.wait_ready()
    watchdogs = [each for each in processes_of(directory) if "ops.embedded.watchdog" in each.cmdline()]
    assert len(watchdogs) == 1
    watchdogs[0].kill()
    up.end()
    assert psutil.pid_exists(first["database"])
    assert psutil.pid_exists(first["broker"])
    second = RunningUp(directory, "--authorities", "0")
    try:
        pids = second.wait_ready()
        assert not psutil.pid_exists(first["database"])
        assert pids["broker"] != first["broker"]
    finally:
        second.child.send_signal(signal.SIGTERM)
        second.child.communicate(timeout=120)
    assert processes_of(directory) == []


@pytest.mark.parametrize("reached", ["lock", "postgres/data/base", "nats/nats.conf"])
def test_an_interrupted_start_leaves_nothing(up: RunningUp, directory: Path, reached: str) -> None:
    """OPS-1: Ctrl-C while the stack is coming up ends what has been started so far, in order."""
    assert wait_until((directory / reached).exists, 60)
    up.child.send_signal(signal.SIGINT)
    _output, errors = up.child.communicate(timeout=120)
    assert up.child.returncode == 0, errors.decode()
    assert processes_of(directory) == []


def test_a_second_up_is_refused_and_harms_nothing(up: RunningUp, directory: Path) -> None:
    """OPS-2: the directory in use is named with the PID of its holder; exit code 1; the first goes on."""
    up.wait_ready()
    second = subprocess.run(
        [sys.executable, "-m", "ops.cli", "up", "--json", "--directory", str(directory)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **nothing},
    )
    assert second.returncode == 1
    assert f"with PID {up.child.pid}" in second.stderr
    assert f"with PID {up.child.pid}" in json.loads(second.stdout)["fault"]
    assert (directory / "run" / "stack.json").exists()
    assert up.child.poll() is None

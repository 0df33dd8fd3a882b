"""A stack for benchmarks: PostgreSQL with fsync and synchronous commit on, the broker, an Organization, authorities."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from contracts import subjects
from contracts.bounds import command_bytes_max
from ops.bench.generate_load import write_commands
from ops.embedded.broker_server import BrokerServer
from ops.embedded.postgres_server import PostgresServer
from ops.init import Organization, initialize
from ops.migrate import migrate
from services.process.database import connect

start_seconds_max: Final = 30.0
"""Seconds until a service must be ready."""
load_seconds_max: Final = 300.0
"""Seconds that one run of the load generator may take."""


class Rig(Struct, frozen=True, kw_only=True):
    """A running stack. `directory` is temporary and its own."""

    directory: Path
    postgres: PostgresServer
    broker: BrokerServer
    organization: Organization

    @property
    def database_url(self) -> str:
        """The database that the authority writes to."""
        return self.postgres.url()

    async def load(self, commands: list[bytes], window: int, rate: float | None = None) -> dict[str, Any]:
        """Send Commands through the load generator, at most `rate` a second. Raises RuntimeError for a refusal."""
        file = self.directory / "load"
        write_commands(file, commands)
        subject = subjects.command_ingress(self.organization.organization_id)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ops.bench.generate_load", self.broker.url, subject, str(file), str(window),
            *([] if rate is None else [str(rate)]), stdout=subprocess.PIPE,
        )  # fmt: skip
        output, _ = await asyncio.wait_for(process.communicate(), load_seconds_max)
        report: dict[str, Any] = json.loads(output)
        if report["refused"]:
            raise RuntimeError(f"{report['refused']} Commands were refused, the first with {report['firstRefusal']}")
        return report


@asynccontextmanager
async def running_rig(
    shard_count: int,
    authorities: int = 1,
    relays: int = 0,
    database_settings: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[Rig]:
    """Start everything in a temporary directory, and leave nothing running behind."""
    directory = Path(tempfile.mkdtemp(prefix="weavehold-bench-"))
    await asyncio.to_thread(directory.chmod, 0o711)
    postgres, broker = (
        PostgresServer(directory / "postgres", parameters=database_settings),
        BrokerServer(directory / "broker"),
    )
    children: list[subprocess.Popen[bytes]] = []
    try:
        await asyncio.to_thread(postgres.start)
        await asyncio.to_thread(broker.start)
        await asyncio.to_thread(migrate, postgres.url())
        connection = await connect(postgres.url(), name="bench")
        keys = directory / "keys"
        organization = await initialize(connection, name="bench", keys_directory=keys, shard_count=shard_count)
        await connection.close()
        rig = Rig(directory=directory, postgres=postgres, broker=broker, organization=organization)
        services = ["services.authority.main"] * authorities + ["outbox_relay.main"] * relays
        children.extend([await _start_service(rig, module, number) for number, module in enumerate(services)])
        yield rig
    finally:
        for child in children:
            child.terminate()
        for child in children:
            await asyncio.to_thread(child.wait, 20)
        await asyncio.to_thread(broker.stop)
        await asyncio.to_thread(postgres.stop)
        shutil.rmtree(directory, ignore_errors=True)


async def _start_service(rig: Rig, module: str, number: int) -> "subprocess.Popen[bytes]":
    """Start a service of the product and wait until it is ready. `number` is one of its own in this rig."""
    name = f"{module.partition('.')[0]}-{number}"
    port_file, log_file = rig.directory / f"{name}.port", rig.directory / f"{name}.log"
    variables = os.environ | {
        "WEAVEHOLD_DATABASE_URL": rig.database_url,
        "WEAVEHOLD_NATS_URL": rig.broker.url,
        "WEAVEHOLD_ORGANIZATION": rig.organization.organization_id,
        "WEAVEHOLD_KEYS_DIR": str(rig.organization.keys_directory),
        "WEAVEHOLD_HEALTH_PORT": "0",
        "WEAVEHOLD_HEALTH_PORT_FILE": str(port_file),
        "WEAVEHOLD_LOG_LEVEL": "warning",
    }
    with log_file.open("wb") as log:
        child = subprocess.Popen(  # noqa: ASYNC220, S603 - our own program, awaited in a thread
            [sys.executable, "-m", module], env=variables, stdout=log, stderr=log
        )
    deadline = asyncio.get_running_loop().time() + start_seconds_max
    while asyncio.get_running_loop().time() < deadline:
        if port_file.exists() and await _is_ready(port_file.read_text().strip()):
            return child
        if child.poll() is not None:
            break
        await asyncio.sleep(0.1)
    text = log_file.read_text()[-command_bytes_max:]
    child.kill()
    raise RuntimeError(f"{module} did not become ready:\n{text}")


async def _is_ready(port: str) -> bool:
    """Whether /readyz of a health port answers 200."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        line = await reader.readline()
        writer.close()
    except (OSError, ValueError):
        return False
    return b" 200 " in line

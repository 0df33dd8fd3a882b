"""A NATS server that runs from what `weavehold nats provision` wrote, and clients with the keys that lie there."""

import json
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from nats.aio.client import Client

from contracts.identifiers import token
from ops.embedded.broker_server import binary, free_port, host, port_is_taken
from ops.provision.provision_broker import Provisioned, ServerPlace, provision_broker
from services.process import broker
from services.process.settings import BrokerCredentials

start_seconds_max = 60.0


class ProvisionedBroker:
    """A folder of one or more Organizations and the server on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"tls://{host}:{self.port}"

    @property
    def ca_file(self) -> Path:
        return self.directory / "tls" / "ca.pem"

    def provision(self, organization_id: str, agents: Sequence[str] = (), shard_count: int = 2) -> Provisioned:
        """Write or extend the folder."""
        place = ServerPlace(hosts=(host,), port=self.port, name="test", store=self.directory / "jetstream")
        return provision_broker(self.directory, organization_id, shard_count, place, agents=agents, clients=("test",))

    def start(self) -> None:
        with (self.directory / "nats.log").open("ab") as log:
            self._child = subprocess.Popen(
                [str(binary()), "-c", str(self.directory / "nats-server.conf")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        ends = time.monotonic() + start_seconds_max
        while not port_is_taken(self.port):
            assert self._child.poll() is None, (self.directory / "nats.log").read_text()
            assert time.monotonic() < ends
            time.sleep(0.05)

    def reload(self) -> None:
        """Make the server read its configuration again."""
        assert self._child is not None
        self._child.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)
            self._child.wait(60)

    def credentials(self, organization_id: str, user: str) -> BrokerCredentials:
        """What the user of a name shows."""
        seed = self.directory / "accounts" / token(organization_id) / f"{user}.nk"
        return BrokerCredentials(nkey_seed_file=seed, ca_file=self.ca_file)

    @asynccontextmanager
    async def client(self, organization_id: str, user: str) -> AsyncIterator[Client]:
        """A connection as a user."""
        connected = await broker.connect(self.url, name=user, credentials=self.credentials(organization_id, user))
        try:
            yield connected
        finally:
            await connected.close()


async def refusal(client: Client, action: Callable[[], Awaitable[object]]) -> str:
    """What the server says against an action, empty when it lets it pass."""
    client._err = None
    await action()
    # The answer to a ping comes after any refusal of what was sent before it.
    await client.flush(30)
    await client.flush(30)
    return str(client._err or "")


async def call(client: Client, subject: str, asked: object = None) -> dict[str, object]:
    """A call of the broker's API, as raw JSON."""
    body = b"" if asked is None else json.dumps(asked).encode()
    return json.loads((await client.request(f"$JS.API.{subject}", body, timeout=30)).data)

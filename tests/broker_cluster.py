"""Three NATS servers as one cluster on loopback, to be killed node by node.

Every node is a child of the test process with a store of its own. The watchdog of the session's directory ends what a
killed test leaves behind.
"""

import asyncio
import json
import secrets
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from ops.embedded.broker_server import binary, free_port, host

nodes = 3
start_seconds_max = 60.0


class Node:
    """One server of the cluster; its ports and its store stay when it is started again."""

    def __init__(self, directory: Path, name: str, ports: tuple[int, int, int]) -> None:
        self.name = name
        self.port, self.route_port, self.monitor_port = ports
        self.directory = directory / name
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://{host}:{self.port}"

    def configure(self, cluster: list["Node"]) -> None:
        """Write the node's configuration."""
        self.directory.mkdir()
        configuration = {
            "server_name": self.name,
            "listen": f"{host}:{self.port}",
            "http": f"{host}:{self.monitor_port}",
            "max_payload": 1024 * 1024,
            "log_file": str(self.directory / "nats.log"),
            "jetstream": {"store_dir": str(self.directory / "jetstream")},
            "cluster": {
                "name": "weavehold",
                "listen": f"{host}:{self.route_port}",
                "routes": [f"nats://{host}:{node.route_port}" for node in cluster if node is not self],
            },
        }
        (self.directory / "nats.conf").write_text(json.dumps(configuration))

    def start(self) -> None:
        output = (self.directory / "nats.out").open("ab")
        with output:
            self._child = subprocess.Popen(
                [str(binary()), "-c", str(self.directory / "nats.conf")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
            )

    def end(self, request: signal.Signals = signal.SIGTERM) -> None:
        if self._child is not None:
            self._child.send_signal(request)
            self._child.wait(20)
            self._child = None

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self.end(signal.SIGKILL)

    def monitor(self, path: str) -> dict[str, Any]:
        """What the node tells of itself."""
        with urllib.request.urlopen(f"http://{host}:{self.monitor_port}/{path}", timeout=2) as answer:
            return json.loads(answer.read())

    def is_current(self) -> bool:
        """Whether the node knows a meta leader and has all that it holds of streams up to date."""
        with suppress(OSError, ValueError):
            return self.monitor("healthz")["status"] == "ok" and bool(self.meta_leader())
        return False

    def meta_leader(self) -> str:
        """The leader of the cluster's own group as this node sees it, empty without one."""
        return str(self.monitor("jsz").get("meta_cluster", {}).get("leader", ""))


class Cluster:
    """All nodes."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        ports = iter([free_port() for _ in range(nodes * 3)])
        self.nodes = [
            Node(directory, f"n{number}", (next(ports), next(ports), next(ports))) for number in range(1, nodes + 1)
        ]
        for node in self.nodes:
            node.configure(self.nodes)

    @property
    def url(self) -> str:
        """All nodes' addresses, as a client is told them."""
        return ",".join(node.url for node in self.nodes)

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    async def start(self) -> None:
        for node in self.nodes:
            node.start()
        await self.settled()

    async def settled(self, seconds: float = start_seconds_max) -> None:
        """Wait until every node is up to date and all agree about the meta leader."""
        ends = time.monotonic() + seconds
        while not await asyncio.to_thread(self._is_settled):
            assert time.monotonic() < ends, f"the cluster is not settled within {seconds} s"
            await asyncio.sleep(0.1)

    def _is_settled(self) -> bool:
        return all(node.is_current() for node in self.nodes) and len({node.meta_leader() for node in self.nodes}) == 1

    async def meta_leader(self) -> Node:
        await self.settled()
        return self.node(await asyncio.to_thread(self.nodes[0].meta_leader))

    async def stop(self) -> None:
        for node in self.nodes:
            await asyncio.to_thread(node.end)


@asynccontextmanager
async def broker_cluster(directory: Path) -> AsyncIterator[Cluster]:
    """A settled cluster that ends with the block."""
    folder = directory / f"cluster-{secrets.token_hex(4)}"
    cluster = Cluster(folder)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()
        shutil.rmtree(folder)

"""A small service in a process of its own, for tests of what every service process does.

`python -m tests.service_rig BEHAVIOUR` runs it; `start_service` starts that and hands out its health endpoints.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ops.embedded.http_probe import probe
from services.process.health import Heartbeat
from services.process.logs import bind_correlation, get_log
from services.process.run import ServiceProcess, run_service

finish_file = "finish"
settings = {
    "WEAVEHOLD_ORGANIZATION": "urn:weavehold:organization:test",
    "WEAVEHOLD_DATABASE_URL": "postgresql://app:secret@127.0.0.1:1/none",
    "WEAVEHOLD_NATS_URL": "nats://127.0.0.1:1",
}


async def serve(process: ServiceProcess) -> None:
    behaviour = sys.argv[1]

    async def loop(heartbeat: Heartbeat) -> None:
        while not process.stopping.is_set():
            heartbeat.beat()
            await asyncio.sleep(0.05)
            if behaviour.startswith("loop-raises"):
                raise RuntimeError("the loop met a fault")
            if behaviour == "loop-returns":
                return

    async def finishing(_heartbeat: Heartbeat) -> None:
        # Until the test has seen enough.
        while not Path(os.environ["WEAVEHOLD_HEALTH_PORT_FILE"]).with_name(finish_file).exists():
            await asyncio.sleep(0.02)

    async def stubborn(_heartbeat: Heartbeat) -> None:
        while True:
            await asyncio.sleep(60)

    with bind_correlation("urn:uuid:correlated"):
        get_log(__name__).info("set_up", behaviour=behaviour)
    if behaviour == "waits-for-others":
        await asyncio.sleep(3_600)
    if behaviour == "loop-raises-while-another-finishes":
        process.start_loop("finishing", finishing, max_silence_seconds=60)
    process.start_loop("work", loop, max_silence_seconds=5)
    if behaviour == "ignores-stop":
        process.start_loop("stubborn", stubborn, max_silence_seconds=120)
    await process.stopping.wait()


class RunningService:
    """A started service process."""

    def __init__(self, child: "subprocess.Popen[bytes]", port_file: Path, log: Path) -> None:
        self.child = child
        self._port_file = port_file
        self.log = log

    def wait_port(self, seconds: float = 60) -> int:
        deadline = time.monotonic() + seconds
        while not self._port_file.exists():
            assert self.child.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return int(self._port_file.read_text())

    async def ask(self, path: str) -> tuple[int, Any] | None:
        return await probe(self.wait_port(), path)

    def wait_logged(self, words: str, seconds: float = 60) -> None:
        """Wait until it says so; once it says `set_up`, its loops run."""
        deadline = time.monotonic() + seconds
        while words not in self.log.read_text():
            assert self.child.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@contextmanager
def start_service(
    directory: Path, behaviour: str, variables: Mapping[str, str] | None = None, *, lifeline: int | None = None
) -> Iterator[RunningService]:
    """Run the service until the block ends; whatever happens it is gone afterwards."""
    port_file, log = directory / "port", directory / "log"
    environment = {**os.environ, **settings, "WEAVEHOLD_HEALTH_PORT_FILE": str(port_file), **(variables or {})}
    if lifeline is not None:
        environment["WEAVEHOLD_STOP_WHEN_CLOSED"] = str(lifeline)
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.service_rig", behaviour],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=output,
            pass_fds=() if lifeline is None else (lifeline,),
        )
    try:
        yield RunningService(child, port_file, log)
    finally:
        child.kill()
        child.communicate()


if __name__ == "__main__":
    sys.exit(run_service("rig", serve))

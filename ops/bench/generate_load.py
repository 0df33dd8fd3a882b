"""The load generator: a process of its own that sends signed Commands and counts what came back.

    python -m ops.bench.generate_load NATS_URL SUBJECT FILE WINDOW [RATE]

FILE holds Commands, each after its length as four bytes. At most WINDOW are in flight; with RATE each is sent at its
time, so many a second. Prints one JSON object: accepted, refused, seconds, cpuSeconds and, when there were refusals,
the first one.
"""

import asyncio
import json
import math
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

import nats
import uvloop

reply_seconds_max: Final = 60.0
"""Seconds to wait for one reply."""


def read_commands(path: Path) -> list[bytes]:
    """The Commands of a load file."""
    data, place, commands = path.read_bytes(), 0, []
    while place < len(data):
        size = int.from_bytes(data[place : place + 4])
        commands.append(data[place + 4 : place + 4 + size])
        place += 4 + size
    return commands


def write_commands(path: Path, commands: list[bytes]) -> None:
    """Write a load file."""
    path.write_bytes(b"".join(len(command).to_bytes(4) + command for command in commands))


async def send_all(
    url: str, subject: str, commands: list[bytes], window: int, rate: float = math.inf
) -> dict[str, object]:
    """Send every Command, at most `window` at a time and `rate` a second, and report."""
    broker = await nats.connect(url)
    waiting = enumerate(commands)
    counts: Counter[str] = Counter()
    first_refusal = ""

    async def sender() -> None:
        nonlocal first_refusal
        for number, command in waiting:
            if (early := started + number / rate - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            reply = (await broker.request(subject, command, timeout=reply_seconds_max)).data
            accepted = reply.startswith(b'{"receipt":')
            counts["accepted" if accepted else "refused"] += 1
            if not accepted and not first_refusal:
                first_refusal = reply.decode()

    started = time.perf_counter()
    await asyncio.gather(*(sender() for _ in range(window)))
    seconds = time.perf_counter() - started
    await broker.close()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "accepted": counts["accepted"],
        "refused": counts["refused"],
        "seconds": seconds,
        "cpuSeconds": usage.ru_utime + usage.ru_stime,
        "firstRefusal": first_refusal,
    }


def main() -> None:
    """Run from the command line."""
    url, subject, file, window, *rates = sys.argv[1:6]
    rate = float(rates[0]) if rates else math.inf
    report = uvloop.run(send_all(url, subject, read_commands(Path(file)), int(window), rate))
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()

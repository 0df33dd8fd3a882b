"""Asking a service's health endpoint on loopback."""

import asyncio
import json
from contextlib import suppress
from typing import Any, Final

answer_bytes_max: Final = 1024 * 1024
probe_seconds_max: Final = 3.0
"""Seconds for one answer."""


async def probe(port: int, path: str) -> tuple[int, Any] | None:
    """Status and JSON body of `GET path` on a loopback port; None when nothing sensible answers in time."""
    with suppress(OSError, ValueError, TimeoutError, IndexError, asyncio.LimitOverrunError):
        async with asyncio.timeout(probe_seconds_max):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                answer = await reader.read(answer_bytes_max)
                while part := await reader.read(answer_bytes_max):
                    answer += part
            finally:
                writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body)
    return None

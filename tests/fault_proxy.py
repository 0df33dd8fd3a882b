"""A TCP proxy on loopback that can cut, stall and refuse connections: the network's failures, for fault tests."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

chunk_bytes: Final = 64 * 1024

type Opener = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class FaultProxy:
    """Forwards every connection to one upstream; start it with `async with FaultProxy.to_tcp(host, port) as proxy`."""

    def __init__(self, connect_upstream: Opener) -> None:
        self._connect_upstream = connect_upstream
        self._server: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self._cut_after: Callable[[bytes], bool] | None = None
        self.host = "127.0.0.1"
        self.port = 0
        self.bytes_from_upstream = 0
        self.bytes_from_client = 0

    @classmethod
    def to_tcp(cls, host: str, port: int) -> "FaultProxy":
        return cls(lambda: asyncio.open_connection(host, port))

    @classmethod
    def to_socket(cls, path: Path) -> "FaultProxy":
        return cls(lambda: asyncio.open_unix_connection(path))

    @classmethod
    def to_database(cls, url: str) -> "FaultProxy":
        """To the server of a PostgreSQL URL that names a Unix socket directory; use `database_url` to go through."""
        query = parse_qs(urlsplit(url).query)
        return cls.to_socket(Path(query["host"][0]) / f".s.PGSQL.{query['port'][0]}")

    @classmethod
    def to_broker(cls, url: str) -> "FaultProxy":
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        return cls.to_tcp(parts.hostname, parts.port)

    def database_url(self, direct_url: str) -> str:
        """The same database as `direct_url`, through this proxy."""
        parts = urlsplit(direct_url)
        return f"postgresql://{parts.username or 'postgres'}@{self.host}:{self.port}{parts.path}?sslmode=disable"

    @property
    def nats_url(self) -> str:
        return f"nats://{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self.cut()
            await self._server.wait_closed()
            self._server = None

    async def cut(self) -> None:
        """Drop every open connection now; new ones are still accepted."""
        sessions = list(self._sessions)
        for session in sessions:
            session.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)

    def refuse(self) -> None:
        """Close new connections as soon as they arrive."""
        self._refusing = True

    def accept(self) -> None:
        """Forward new connections again."""
        self._refusing = False

    def stall(self) -> None:
        """Keep connections open but pass nothing on, in either direction: a network that swallows packets."""
        self._flowing.clear()

    def resume(self) -> None:
        """Pass on what was held and all that follows."""
        self._flowing.set()

    def cut_when_client_sends(self, matches: Callable[[bytes], bool]) -> None:
        """Pass on the first chunk from a client that `matches`, then cut that connection before any answer returns.

        The way to lose the acknowledgement of a commit: the server gets the request, the client never hears.
        """
        self._cut_after = matches

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._sessions.add(task)
        try:
            if not self._refusing:
                await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._sessions.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await self._connect_upstream()
        answers = asyncio.create_task(self._copy_answers(upstream_reader, writer))
        requests = asyncio.create_task(self._copy_requests(reader, upstream_writer, answers))
        try:
            await asyncio.wait({answers, requests}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for copying in (answers, requests):
                copying.cancel()
            try:
                await asyncio.gather(answers, requests, return_exceptions=True)
                # A short while for what the client sent last to leave: cutting must not unsend it.
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(1):
                        await upstream_writer.drain()
            finally:
                # Also when another cut comes meanwhile.
                upstream_writer.close()

    async def _copy_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(chunk_bytes):
            await self._flowing.wait()
            self.bytes_from_upstream += len(data)
            writer.write(data)
            await writer.drain()

    async def _copy_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: asyncio.Task[None]
    ) -> None:
        while data := await reader.read(chunk_bytes):
            await self._flowing.wait()
            self.bytes_from_client += len(data)
            matched = self._cut_after is not None and self._cut_after(data)
            if matched:
                self._cut_after = None
                answers.cancel()
            writer.write(data)
            await writer.drain()
            if matched:
                return

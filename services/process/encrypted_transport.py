"""A connection to the broker that is encrypted from its first byte.

The client library encrypts only after the broker has said in plain text that it wants to, and when that handshake fails
it waits for ever for the end of the connection. Here encryption comes first, and every wait ends.
"""

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Final
from urllib.parse import ParseResult

from nats.aio.transport import TcpTransport

close_seconds_max: Final = 2.0
"""Seconds to take leave of the other side before the connection is dropped."""


class EncryptedTransport(TcpTransport):
    """TLS from the start; the broker must take it that way (`handshake_first`)."""

    def __init__(self, context: ssl.SSLContext) -> None:
        """`context` says whom to trust."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._context = context

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Open the connection. Raises OSError, of which `ssl.SSLError` is one, and TimeoutError."""
        async with asyncio.timeout(connect_timeout):
            reader, writer = await asyncio.open_connection(
                uri.hostname, uri.port, limit=buffer_size, ssl=self._context, server_hostname=uri.hostname
            )
        self._bare_io_reader = self._io_reader = reader
        self._bare_io_writer = self._io_writer = writer

    async def connect_tls(self, *_given: Any, **_named: Any) -> None:
        """Nothing is left to do when the broker asks for encryption."""

    async def wait_closed(self) -> None:
        """Wait for the end, not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(close_seconds_max):
                await super().wait_closed()  # type: ignore[no-untyped-call]

    def __bool__(self) -> bool:
        """The client makes a transport of its own in place of one that is not there."""
        return True

"""Bytes of Artifacts and checkpoints, addressed by their hash (RULE-33).

Bytes are durable here before the Command that names them is sent, and their hash is checked on every read. Crash
points: before the rename nothing is visible but a temporary file; after it the content is whole, since the file was
flushed first. Writing the same content again changes nothing.
"""

import asyncio
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

artifact_bytes_max: Final = 64 * 1024 * 1024
"""Bytes of one Artifact."""

_SCHEME: Final = "sha256:"


class ArtifactFault(Exception):
    """Content that is missing, too large, or not what its hash says."""


def content_hash(content: bytes) -> str:
    """`sha256:<hex>` of the bytes."""
    return _SCHEME + hashlib.sha256(content).hexdigest()


def content_uri(named: str) -> str:
    """The location-free URI of content: any store that holds the hash can serve it."""
    return f"urn:{named}"


class ArtifactStore:
    """A content-addressed folder; several processes may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def write(self, content: bytes) -> str:
        """Store the bytes durably and return their hash. Raises ArtifactFault when there are too many."""
        if len(content) > artifact_bytes_max:
            raise ArtifactFault(f"content of {len(content)} bytes is larger than {artifact_bytes_max}")
        named = content_hash(content)
        await asyncio.to_thread(self._write, self._path(named), content)
        return named

    async def read(self, named: str) -> bytes:
        """The bytes of this hash. Raises ArtifactFault when they are missing or damaged."""
        path = self._path(named)
        try:
            content = await asyncio.to_thread(path.read_bytes)
        except FileNotFoundError as fault:
            raise ArtifactFault(f"no content {named} in {self._folder}") from fault
        if content_hash(content) != named:
            raise ArtifactFault(f"content of {path} is damaged: it hashes to {content_hash(content)}, not {named}")
        return content

    def _path(self, named: str) -> Path:
        digest = named.removeprefix(_SCHEME)
        if len(digest) != 64 or not all(character in "0123456789abcdef" for character in digest):
            raise ArtifactFault(f"{named[:80]!r} is not a sha256 content hash")
        return self._folder / digest[:2] / digest[2:]

    def _write(self, path: Path, content: bytes) -> None:
        if path.exists() and path.read_bytes() == content:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        _flush_folder(path.parent)
        _flush_folder(self._folder)


def _flush_folder(folder: Path) -> None:
    """Make the folder's entries durable: a rename alone may be lost with the power."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Reading a vector bundle: never a file outside its folder, and no listed file that was altered.

A bundle is a folder with `schemas/`, `conformance/`, `cryptography/` and `admission/`; every path in its manifests
starts at that folder. What is wrong with a file is a BundleFault, which fails whatever needed the file and no more.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Self

from contracts.canonical import ParseFault, parse_strict
from contracts.documents.common import Document
from contracts.identifiers import SafeInteger, Sha256
from ops.command_fault import UsageFault

file_bytes_max: Final = 16 * 1024 * 1024
"""Bytes of one file of a bundle."""
path_characters_max: Final = 512
"""Characters of a path in a manifest, as its schema says."""
_folders_with_schemas: Final = ("schemas", "cryptography", "admission")


class BundleFault(Exception):
    """A file of the bundle that cannot be used; the message begins with its path and says why."""

    def __init__(self, path: str, why: str) -> None:
        """`why` continues the sentence that the path begins."""
        super().__init__(f"{path} {why}")
        self.path = path


class Bundle:
    """One folder of vectors. Each file is read once."""

    def __init__(self, directory: Path) -> None:
        """Raises UsageFault when there is no such folder."""
        if not directory.is_dir():
            raise UsageFault(f"{directory} is no folder; --bundle names the one that holds the protocol's schemas/")
        self.directory: Final = directory
        self._root = directory.resolve()
        self._read: dict[str, bytes] = {}

    def has(self, path: str) -> bool:
        """Whether anything of this name is there."""
        return (self._root / path).exists()

    def read(self, path: str) -> bytes:
        """The bytes of a file inside the folder. Raises BundleFault."""
        if path not in self._read:
            self._read[path] = self._read_file(path)
        return self._read[path]

    def schema_files(self) -> list[str]:
        """Paths of all files that are named like a schema."""
        return sorted(
            f"{folder}/{file.name}"
            for folder in _folders_with_schemas
            for file in (self._root / folder).glob("*.schema.json")
        )

    def _read_file(self, path: str) -> bytes:
        # Backslashes and drives would mean something on some machines only.
        strange = any(part in {"", ".", ".."} or set(part) & set("\\:\0") for part in path.split("/"))
        if strange or len(path) > path_characters_max:
            raise BundleFault(repr(path[:path_characters_max]), "is no path inside the bundle; it was not read")
        try:
            file = (self._root / path).resolve()
            if not file.is_relative_to(self._root):
                raise BundleFault(path, "leads out of the bundle; it was not read")
            if not file.is_file():
                raise BundleFault(path, "is missing")
            with file.open("rb") as opened:
                data = opened.read(file_bytes_max + 1)
        except (OSError, RuntimeError, ValueError) as fault:  # also a loop of links, a name that is no UTF-8
            raise BundleFault(path, f"cannot be read: {fault}") from fault
        if len(data) > file_bytes_max:
            raise BundleFault(path, f"has more than {file_bytes_max} bytes")
        return data


class Artifact(Document, frozen=True, kw_only=True):
    """One file that a manifest lists; `byte_length` in bytes, `sha256` as `sha256:<hex>`."""

    path: str
    byte_length: SafeInteger
    sha256: Sha256


class Artifacts:
    """The files that a manifest lists, and those of another manifest that it builds on."""

    def __init__(self, bundle: Bundle, listed: Iterable[Artifact], beside: Self | None = None) -> None:
        """`beside` answers for what is not listed here."""
        self._bundle = bundle
        self._beside = beside
        self._listed: dict[str, set[tuple[int, str]]] = {}
        for artifact in listed:
            self._listed.setdefault(artifact.path, set()).add((artifact.byte_length, artifact.sha256))

    def read(self, path: str) -> bytes:
        """The bytes of a listed file as its manifest describes them. Raises BundleFault."""
        if path in self._listed:
            data = self._bundle.read(path)
            found = (len(data), sha256_text(data))
            for described in self._listed[path] - {found}:
                raise BundleFault(path, f"has {_described(*found)}; the manifest says {_described(*described)}")
            return data
        if self._beside is not None:
            return self._beside.read(path)
        raise BundleFault(path, "is not among the manifest's artifacts")

    def faults(self) -> list[BundleFault]:
        """What is wrong with the files that are listed here."""
        found = []
        for path in self._listed:
            try:
                self.read(path)
            except BundleFault as fault:
                found.append(fault)
        return found


def json_of(path: str, raw: bytes) -> Any:
    """The bytes of a file as strict JSON. Raises BundleFault."""
    try:
        return parse_strict(raw, file_bytes_max)
    except ParseFault as fault:
        raise BundleFault(path, f"is no JSON: {fault}") from fault


def sha256_text(data: bytes) -> str:
    """`sha256:` and the lower-case hex digest."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _described(length: int, digest: str) -> str:
    return f"{length} bytes with {digest}"

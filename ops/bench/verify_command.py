"""One Command through all six stages against what no verifier can do without: [verify-command].

The baseline is one strict parse of the same bytes and one bare verification by libsodium of the canonical bytes, which
it finds computed, behind the signature, as libsodium wants them. All that the subject does beyond that is its own: the
schema, the envelope, the key with its validity, the canonical bytes, the signing hash.

Every Command is verified once and parsed barely once, and none has the time of another, so that nothing remembered of
one serves the next.
"""

from typing import Final

from msgspec import Struct
from nacl.bindings import crypto_sign_open

from contracts.bounds import command_bytes_max
from contracts.canonical import parse_strict
from contracts.document_kinds import DocumentKind
from contracts.signature import base64url_bytes
from contracts.verification import Verified, verify_document
from ops.bench.interleave import interleave, pairs_counted, pairs_of_warming
from ops.bench.measurement import Measurement, measured
from ops.bench.signed_documents import Registry, sign_commands

slice_size: Final = 300
"""Commands of one slice: some 30 ms."""
target: Final = 1.5


class _Signed(Struct, frozen=True):
    """A Command as it travels, and what libsodium takes: 64 bytes of signature before the canonical bytes."""

    raw: bytes
    signed_message: bytes
    public_key: bytes


async def measure() -> Measurement:
    """In this process, without any server."""
    return compare(slice_size)


def compare(size: int) -> Measurement:
    """Compare on slices of `size` Commands, microseconds per Command."""
    commands = sign_commands(size * (pairs_of_warming + pairs_counted))
    registry = Registry(commands.keys)
    signed = [_prepare(raw, registry) for raw in commands.raws]
    slices = [signed[start : start + size] for start in range(0, len(signed), size)]

    def verify(item: _Signed) -> None:
        outcome = verify_document(DocumentKind.COMMAND, item.raw, registry, command_bytes_max)
        if type(outcome) is not Verified:
            raise RuntimeError(f"a Command of the benchmark is refused: {outcome}")

    def verify_barely(item: _Signed) -> None:
        parse_strict(item.raw, command_bytes_max)
        crypto_sign_open(item.signed_message, item.public_key)

    seconds = interleave([(items, items) for items in slices], verify, verify_barely)
    pairs = [(full * 1e6, bare * 1e6) for full, bare in seconds]
    notes = {"commandBytes": round(sum(map(len, commands.raws)) / len(commands.raws), 1)}
    return measured("verify-command", "µs", pairs, target, notes, better="lower")


def _prepare(raw: bytes, registry: Registry) -> _Signed:
    outcome = verify_document(DocumentKind.COMMAND, raw, registry, command_bytes_max)
    if not isinstance(outcome, Verified):
        raise TypeError(f"a Command of the benchmark is refused: {outcome}")
    value = base64url_bytes(outcome.document["signature"]["value"]) or b""
    key = registry.resolve(outcome.key_id)
    assert key is not None  # noqa: S101 - it has just verified
    return _Signed(raw, value + outcome.canonical, key.public_key)

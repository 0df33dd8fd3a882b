"""RFC 8785 bytes of parsed documents against the plain `rfc8785` package on the same values: [canonicalize].

The documents are those of the fast path: Commands and Events as they occur, without fractions.
"""

from typing import Any, Final

import rfc8785

from contracts.bounds import command_bytes_max, event_bytes_max
from contracts.canonical import canonical_bytes, parse_strict
from contracts.service_principals import authority
from contracts.signature import SigningKey
from ops.bench.history import sign_history
from ops.bench.interleave import interleave, pairs_counted, pairs_of_warming
from ops.bench.measurement import Measurement, measured
from ops.bench.signed_documents import sign_plain_commands

documents_of_each: Final = 60
"""Commands, and as many Events, in one slice."""
passes: Final = 24
"""How often the subject writes each of them in its slice, so that its slices last about as long as the baseline's."""
target: Final = 20.0


async def measure() -> Measurement:
    """In this process, without any server."""
    return compare(documents_of_each, passes)


def compare(count: int, repeats: int) -> Measurement:
    """Compare on slices of `count` Commands and `count` Events, documents per second."""
    documents = [*_commands(count), *_events(count)]
    for document in documents:
        if canonical_bytes(document) != rfc8785.dumps(document):
            raise RuntimeError("the two roads of the benchmark differ")
    slices = [(documents * repeats, documents)] * (pairs_of_warming + pairs_counted)
    pairs = [(1 / own, 1 / bare) for own, bare in interleave(slices, canonical_bytes, rfc8785.dumps)]
    size = sum(len(canonical_bytes(document)) for document in documents) / len(documents)
    return measured("canonicalize", "documents/s", pairs, target, {"documentBytes": round(size, 1)})


def _commands(count: int) -> list[Any]:
    return [parse_strict(raw, command_bytes_max) for raw in sign_plain_commands(count).raws]


def _events(count: int) -> list[Any]:
    key = SigningKey.generate(authority)
    return [parse_strict(raw, event_bytes_max) for raw in sign_history("urn:weavehold:bench:group", count, key)]

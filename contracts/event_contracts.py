"""The contract versions of Weavehold's own Event kinds, and an Event's payload as the current version has it (PRJ-5).

How a kind gets another version: its Struct in `contracts.payloads` takes the new shape, its number rises here, and an
upcaster that reads the version before is added. What was signed before is then read in the new shape everywhere, and
`tests/histories` shows that it still means the same.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import UNSET

from contracts.documents.common import Extension, JsonObject
from contracts.event import Event
from contracts.payloads.registry import event_payloads
from contracts.upcasting import EventContracts, contract_version, require_understood

versions: Final[Mapping[str, int]] = MappingProxyType(dict.fromkeys(event_payloads, 1))
"""Event kind → current contract version. No kind has a second one yet."""
event_contracts: Final = EventContracts(versions)
"""What this version of Weavehold reads."""

_no_extensions: Final[Mapping[str, Extension]] = MappingProxyType({})


def current_payload(event: Event, contracts: EventContracts = event_contracts) -> JsonObject:
    """The payload of an Event in the current version of its kind; that of an unknown kind as it stands.

    Raises EventUnread for a newer version, another shape, or a critical extension that is unknown here.
    """
    extensions = _no_extensions if event.extensions is UNSET else event.extensions
    require_understood(event.kind, extensions)
    if contracts.current(event.kind) is None:
        return event.payload
    return contracts.upcast(event.kind, contract_version(event.kind, extensions), event.payload)

"""An Event as a consumer gets it: its payload in the current version of its kind (PRJ-5).

The Event's place was computed from its own bytes before (`projections.arrival`): what is signed and hashed stays.
"""

from msgspec import Raw
from msgspec.structs import replace

from contracts.bounds import event_bytes_max
from contracts.canonical import canonical_bytes, parse_strict
from contracts.upcasting import ContractUnknown, EventContracts, contract_version, first_version
from projections.arrival import LoggedEvent
from projections.consumer import Consumer


def bring_up_event(event: LoggedEvent, consumer: Consumer, contracts: EventContracts) -> LoggedEvent:
    """The Event with its payload brought up; itself when it is of the current version.

    A kind that is unknown here comes as it stands to a consumer of all kinds; one that names it reads its first
    version. Raises EventUnread for what must not be read.
    """
    current = contracts.current(event.kind)
    if current is None and consumer.kinds is None:
        return event
    version = contract_version(event.kind, event.extensions)
    if version == (current or first_version):
        return event
    if current is None:
        raise ContractUnknown(event.kind, version, first_version)
    payload = contracts.upcast(event.kind, version, parse_strict(bytes(event.payload), event_bytes_max))
    return replace(event, payload=Raw(canonical_bytes(payload)))


def is_passed_over(event: LoggedEvent, consumer: Consumer, contracts: EventContracts) -> bool:
    """Whether nobody here knows the kind of an Event: neither the consumer nor the contracts."""
    return consumer.kinds is not None and event.kind not in consumer.kinds and contracts.current(event.kind) is None

"""Presence Record (`presence-record.schema.json`): what an Agent session says about its capacity, until it expires."""

from enum import Enum

from msgspec import UNSET, UnsetType

from contracts.documents.common import CapabilityRef, Document
from contracts.identifiers import Identifier, PositiveInteger, SafeInteger, SessionEpochField
from contracts.timestamps import Timestamp


class PresenceStatus(Enum):
    """How reachable the Agent is."""

    ONLINE = "online"
    BUSY = "busy"
    AWAY = "away"
    DRAINING = "draining"
    OFFLINE = "offline"


class AvailabilityStatus(Enum):
    """How well a capability can be used now."""

    AVAILABLE = "available"
    DEGRADED = "degraded"
    UNAVAILABLE = "unavailable"


class SlotCapacity(Document, frozen=True, kw_only=True):
    """Execution slots and waiting items, as counts."""

    max_slots: PositiveInteger
    active_slots: SafeInteger
    available_slots: SafeInteger
    queued_items: SafeInteger


class CapabilityAvailability(Document, frozen=True, kw_only=True):
    """One capability and its availability."""

    capability: CapabilityRef
    status: AvailabilityStatus


class PresenceRecord(Document, frozen=True, kw_only=True):
    """Presence of one session; `estimated_response_ms` is in milliseconds."""

    agent_id: Identifier
    session_epoch: SessionEpochField
    status: PresenceStatus
    capacity: SlotCapacity
    capability_availability: tuple[CapabilityAvailability, ...]
    estimated_response_ms: SafeInteger | UnsetType = UNSET
    last_heartbeat: Timestamp
    expires_at: Timestamp

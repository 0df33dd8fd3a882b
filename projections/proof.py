"""Authenticity of a run of Events from one signature: that of its newest Event.

Each Event carries the chain hash before it inside what it signs, so the newest valid signature proves every Event
behind it that the recomputed chain joins.
"""

from contracts.bounds import event_bytes_max
from contracts.chain import chain_next
from contracts.document_kinds import DocumentKind
from contracts.verification import KeyResolver, VerificationFailure, verify_document
from projections.arrival import Arrival


class SignatureProof:
    """Verifies Events against the Organization's registered keys."""

    def __init__(self, keys: KeyResolver) -> None:
        """`keys` resolves the authority's key IDs."""
        self._keys = keys

    def fault_of(self, newest: Arrival) -> str | None:
        """Why this Event proves nothing, or None when it proves itself and the chain behind it."""
        verified = verify_document(DocumentKind.EVENT, bytes(newest.raw), self._keys, event_bytes_max)
        if isinstance(verified, VerificationFailure):
            return f"Event {newest.event.event_id} fails at {verified.stage.value}: {verified.reason}"
        if chain_next(newest.mark.previous_hash, verified.signing_hash) != newest.mark.chain_hash:
            return f"Event {newest.event.event_id} is signed over other bytes than those that were hashed"
        return None

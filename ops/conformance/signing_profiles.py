"""The profiles that a cryptography manifest states: each kind's schema, protected time and expected signer.

Our own rules for a kind stand in `contracts.document_kinds`; here the manifest's JSON Pointers are followed instead,
so that the two meet on every document that verifies.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET, UnsetType

from contracts.document_kinds import DocumentKind
from contracts.documents.common import ActorType, Document
from contracts.verification import Verified


class StatedSigner(Document, frozen=True, kw_only=True):
    """Who must sign: a Principal at `pointer`, the Agent whose ID is at `id_pointer`, or any service."""

    rule: str
    pointer: str | UnsetType = UNSET
    id_pointer: str | UnsetType = UNSET


class StatedProfile(Document, frozen=True, kw_only=True):
    """One kind's profile."""

    profile_id: DocumentKind
    schema: str
    protected_time_pointer: str
    expected_signer: StatedSigner

    def differences(self, verified: Verified) -> Iterator[str]:
        """In what we verified otherwise than this profile says."""
        if self.schema != schema_of(verified.kind):
            yield f"the schema is {schema_of(verified.kind)}"
        if _at(verified.document, self.protected_time_pointer) != verified.protected_time:
            yield f"{self.protected_time_pointer} is not the protected time {verified.protected_time}"
        if not self._names(verified):
            yield f"{self.expected_signer.rule} does not lead to {verified.principal.id}"

    def _names(self, verified: Verified) -> bool:
        signer, principal = self.expected_signer, verified.principal
        match signer.rule:
            case "service-principal":
                return principal.type is ActorType.SERVICE
            case "agent-id" if signer.id_pointer is not UNSET:
                return (principal.type, principal.id) == (ActorType.AGENT, _at(verified.document, signer.id_pointer))
            case "principal-object" if signer.pointer is not UNSET:
                stated = {"type": principal.type.value, "id": principal.id}
                return bool(_at(verified.document, signer.pointer) == stated)
            case _:
                return False


def schema_of(kind: DocumentKind) -> str:
    """Path of the schema of a kind."""
    return f"schemas/{kind.value}.schema.json"


def _at(document: Any, pointer: str) -> Any:
    """The value at a JSON Pointer (RFC 6901) through objects; None where there is nothing."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        document = document.get(name) if isinstance(document, dict) else None
    return document

"""What the tests of trust share: keys of an authority in succession, the Events that bind them, answers about keys."""

from collections.abc import Iterable
from typing import Any

from msgspec import convert

from contracts.bounds import event_bytes_max
from contracts.canonical import parse_strict
from contracts.key_registry import RegistryEvidence
from contracts.signature import SigningKey, base64url_text, sign_document
from services.agent.read_history import AnsweredKeys
from tests.builders import build_event, later, principal, signing_key, start_time, test_organization

authority = principal("authority", "service")
valid_from = "2026-01-01T00:00:00Z"
action_id = "urn:test:action:1"


def authority_key(number: int) -> SigningKey:
    """The authority's key of this number; each number another key."""
    return SigningKey(f"urn:weavehold:key:authority-{number}", authority, bytes([number]) * 32)


def binding(key: SigningKey, *, revoked_at: str | None = None, valid_until: str | None = None) -> dict[str, Any]:
    """Registry evidence of one key."""
    ends = {"revokedAt": revoked_at, "validUntil": valid_until}
    stated = {name: end for name, end in ends.items() if end is not None}
    return {
        "keyId": key.key_id,
        "principal": {"type": key.principal.type.value, "id": key.principal.id},
        "algorithm": "Ed25519",
        "publicKey": base64url_text(key.public_key),
        "validFrom": valid_from,
        "validityHistory": [{"sequence": 1, "recordedAt": start_time} | stated] if stated else [],
    }


def anchors(*keys: SigningKey) -> RegistryEvidence:
    """Pinned keys."""
    return _evidence([binding(key) for key in keys])


def _evidence(bindings: list[dict[str, Any]]) -> RegistryEvidence:
    return convert({"organizationId": test_organization, "bindings": bindings}, RegistryEvidence)


def bound(key: SigningKey, signer: SigningKey, **members: Any) -> dict[str, Any]:
    """The Event by which `signer` says that `key` is bound."""
    standing = {name: value for name, value in binding(key).items() if name != "validityHistory"}
    event = build_event(
        "ext.weavehold.registry.key_registered",
        {"key": standing},
        signer,
        group_id=members.pop("group_id", test_organization),
        actor=principal("registry", "service"),
        **members,
    )
    return parse_strict(event.raw, event_bytes_max)


def answer(
    signer: SigningKey,
    bindings: Iterable[dict[str, Any]] = (),
    bound_by: Iterable[dict[str, Any]] = (),
    *,
    to: str = action_id,
    organization_id: str = test_organization,
    answered_at: str = later(start_time, 3_600),
) -> dict[str, Any]:
    """An answer about keys as `signer` signs it."""
    document: dict[str, Any] = {
        "kind": "ext.weavehold.answer.keys",
        "actionId": to,
        "answeredAt": answered_at,
        "registry": {"organizationId": organization_id, "bindings": list(bindings)},
        "boundBy": list(bound_by),
    }
    sign_document(document, signer, answered_at)
    return document


class RegistryDouble:
    """An authority that answers about keys, with the key of its day; `faults` are raised first, one per question."""

    def __init__(self, *keys: SigningKey) -> None:
        """The first key is pinned, each later one was bound by the one before."""
        self.keys = list(keys)
        self.others: list[SigningKey] = []
        self.revoked: dict[str, str] = {}
        self.faults: list[Exception] = []
        self.asked: list[tuple[str, ...]] = []

    async def keys_of(self, key_ids: tuple[str, ...]) -> dict[str, Any]:
        """The answer's JSON."""
        known = {key.key_id: key for key in (*self.keys, *self.others)}
        found = [known[key_id] for key_id in key_ids if key_id in known]
        before = dict(zip((key.key_id for key in self.keys[1:]), self.keys, strict=False))
        return answer(
            self.keys[-1],
            [binding(key, revoked_at=self.revoked.get(key.key_id)) for key in found],
            [bound(key, before[key.key_id]) for key in found if key.key_id in before],
            to=f"urn:test:action:{len(self.asked)}",
        )


class Reader:
    """`services.feed.trusted_keys.KeyReader` over a double."""

    def __init__(self, registry: RegistryDouble) -> None:
        self.registry = registry

    async def keys(self, key_ids: tuple[str, ...]) -> AnsweredKeys:
        self.registry.asked.append(tuple(key_ids))
        if self.registry.faults:
            raise self.registry.faults.pop(0)
        document = await self.registry.keys_of(tuple(key_ids))
        return AnsweredKeys(document=document, action_id=f"urn:test:action:{len(self.registry.asked)}")


stranger = SigningKey("urn:weavehold:key:stranger", authority, b"s" * 32)
operator = signing_key("operator", "service")

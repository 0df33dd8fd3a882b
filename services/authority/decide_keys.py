"""Decisions about the key registry: bind, plan an end, revoke (TRU-2, RULE-06).

The registry's history is a Group of the Organization shard that bears the Organization's name. A binding is for good.
Its ends only ever move earlier and never into the past: what a key signed while it was valid was accepted once and
stays verifiable. Nobody ends the key by which the request itself, or the authority's next Event, is signed.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import UNSET, to_builtins

from contracts.command import key_register, key_retire, key_revoke
from contracts.documents.common import ActorType
from contracts.event import key_registered, key_retired, key_revoked
from contracts.identifiers import registry_group
from contracts.payloads.keys import (
    KeyRegister,
    KeyRegistered,
    KeyRetire,
    KeyRetired,
    KeyRevoke,
    KeyRevoked,
    KeyStanding,
)
from contracts.rejection import Code, Rejection
from contracts.service_principals import registrars
from contracts.signature import algorithm, base64url_bytes, base64url_text
from contracts.timestamps import instant
from contracts.verification import RegisteredKey
from services.authority.decision import EventDraft
from services.authority.key_book import KnownKey
from services.authority.rule import Case, Rule

AnyEnd = KeyRetire | KeyRevoke


def in_the_registry(case: Case[Any]) -> Rejection | None:
    """The Command names the Group that bears the Organization's name."""
    expected = registry_group(case.context.organization_id)
    if case.command.group_id == expected:
        return None
    return case.refuse(Code.INVALID_COMMAND, f"{case.command.kind} belongs to the registry's Group; state {expected}")


def by_a_registrar(case: Case[Any]) -> Rejection | None:
    """Only the services that keep the registry bind and end keys, those of Agents included."""
    actor = case.command.actor
    if actor in registrars:
        return None
    return case.refuse(Code.AUTH_FORBIDDEN, f"{actor.id} does not keep the key registry")


def _not_bound_yet(case: Case[KeyRegister]) -> Rejection | None:
    key = case.payload
    if key.principal.type is ActorType.AGENT:
        message = f"the keys of an Agent are bound by its Agent Card; register a newer card of {key.principal.id}"
        return case.refuse(Code.INVALID_COMMAND, message)
    fault = case.context.keys.binding_fault(key.key_id, key.principal, base64url_bytes(key.public_key))
    if fault is not None:
        return case.refuse(Code.INVALID_COMMAND, fault)
    if (known := case.context.keys.find(key.key_id)) is not None:
        message = f"key {key.key_id} is bound already, from {known.key.valid_from}"
        return case.refuse(Code.INVALID_STATE_TRANSITION, message, details=_as_it_stands(known.key))
    if key.valid_until is not UNSET and instant(key.valid_until) <= case.context.now_instant:
        return case.refuse(Code.INVALID_COMMAND, f"validUntil {key.valid_until} has passed; the key would be of no use")
    return None


def _known(case: Case[AnyEnd]) -> Rejection | None:
    if case.context.keys.find(case.payload.key_id) is None:
        return case.refuse(Code.INVALID_COMMAND, f"no key {case.payload.key_id} is registered")
    return None


def _not_in_use(case: Case[AnyEnd]) -> Rejection | None:
    """Otherwise the registry could be left without anybody to keep it, or the authority without a voice."""
    key_id = case.payload.key_id
    if key_id == case.command.signature.key_id:
        message = f"key {key_id} signed this Command and cannot end itself; sign with another registrar's key"
        return case.refuse(Code.INVALID_STATE_TRANSITION, message)
    if (signer_end := _end(case, case.command.signature.key_id)) is not None:
        # Two registrars could otherwise plan each other's end for one moment.
        ends_at = case.context.now_text if isinstance(case.payload, KeyRevoke) else case.payload.valid_until
        if instant(signer_end) <= instant(ends_at) and _known_key(case).key.principal in registrars:
            message = f"key {case.command.signature.key_id} signed this Command and ends itself at {signer_end}"
            return case.refuse(Code.INVALID_STATE_TRANSITION, f"{message}; sign with a registrar's key that stays")
    if isinstance(case.payload, KeyRevoke) and key_id == case.context.signing_key_id:
        message = f"the authority signs with key {key_id} now; give it another one first: weavehold keys rotate"
        return case.refuse(Code.INVALID_STATE_TRANSITION, message)
    return None


def _end(case: Case[AnyEnd], key_id: str) -> str | None:
    """The earliest end stated of a key."""
    known = case.context.keys.find(key_id)
    ends = () if known is None else (known.key.valid_until, known.key.revoked_at)
    return min((end for end in ends if end is not None), key=instant, default=None)


def _not_ended(case: Case[AnyEnd]) -> Rejection | None:
    key = _known_key(case).key
    for name, end in (("revokedAt", key.revoked_at), ("validUntil", key.valid_until)):
        if end is not None and instant(end) <= case.context.now_instant:
            message = f"key {key.key_id} has ended already: {name} is {end}"
            return case.refuse(Code.INVALID_STATE_TRANSITION, message, details=_as_it_stands(key))
    return None


def _earlier_end(case: Case[KeyRetire]) -> Rejection | None:
    key = _known_key(case).key
    wanted, planned = case.payload.valid_until, key.valid_until
    if instant(wanted) <= case.context.now_instant:
        message = f"validUntil {wanted} has passed; state a moment ahead, or revoke the key"
        return case.refuse(Code.INVALID_COMMAND, message)
    if planned is not None and instant(wanted) >= instant(planned):
        message = f"validUntil {wanted} is not before {planned}; an end only ever moves earlier"
        return case.refuse(Code.INVALID_STATE_TRANSITION, message, details=_as_it_stands(key))
    return None


def _known_key(case: Case[AnyEnd]) -> KnownKey:
    """The key to end. Raises LookupError when it is unknown, which `_known` refuses first."""
    known = case.context.keys.find(case.payload.key_id)
    if known is None:
        raise LookupError(f"no key {case.payload.key_id} is registered")
    return known


def _revision(case: Case[AnyEnd]) -> int:
    known = case.context.keys.find(case.payload.key_id)
    return 0 if known is None else known.statements + 1


def _registered(case: Case[KeyRegister]) -> tuple[EventDraft, ...]:
    key = case.payload
    standing = KeyStanding(
        key_id=key.key_id,
        principal=key.principal,
        algorithm=key.algorithm,
        public_key=key.public_key,
        valid_from=case.context.now_text if key.valid_from is UNSET else key.valid_from,
        valid_until=key.valid_until,
    )
    return (case.draft(KeyRegistered(key=standing), 1 if key.valid_until is UNSET else 2),)


def _standing(key: RegisteredKey, *, valid_until: str | None, revoked_at: str | None) -> KeyStanding:
    return KeyStanding(
        key_id=key.key_id,
        principal=key.principal,
        algorithm=algorithm,
        public_key=base64url_text(key.public_key),
        valid_from=key.valid_from,
        valid_until=UNSET if valid_until is None else valid_until,
        revoked_at=UNSET if revoked_at is None else revoked_at,
    )


def _as_it_stands(key: RegisteredKey) -> dict[str, Any]:
    """What a registrar is told of the key that it asked about, so that a repeated request is known as such."""
    return {"key": to_builtins(_standing(key, valid_until=key.valid_until, revoked_at=key.revoked_at))}


def _retired(case: Case[KeyRetire]) -> tuple[EventDraft, ...]:
    before = _known_key(case).key
    key = _standing(before, valid_until=case.payload.valid_until, revoked_at=before.revoked_at)
    return (case.draft(KeyRetired(key=key), _revision(case) + 1),)


def _revoked(case: Case[KeyRevoke]) -> tuple[EventDraft, ...]:
    before = _known_key(case).key
    key = _standing(before, valid_until=before.valid_until, revoked_at=case.context.now_text)
    revoked = KeyRevoked(key=key, reason=case.payload.reason, suspected_since=case.payload.suspected_since)
    return (case.draft(revoked, _revision(case) + 1),)


key_rules: Final[Mapping[str, Rule[Any]]] = MappingProxyType(
    {
        key_register: Rule[KeyRegister](
            event=key_registered,
            aggregate=lambda _: 0,
            events=_registered,
            keys=lambda payload: ((payload.key_id, base64url_bytes(payload.public_key)),),
            changes_keys=True,
            shape=(in_the_registry,),
            entry=(),
            policy=(by_a_registrar,),
            state=(_not_bound_yet,),
        ),
        key_retire: Rule[KeyRetire](
            event=key_retired,
            aggregate=_revision,
            events=_retired,
            keys=lambda payload: ((payload.key_id, None),),
            changes_keys=True,
            shape=(in_the_registry,),
            entry=(),
            policy=(by_a_registrar, _known),
            state=(_not_in_use, _not_ended, _earlier_end),
        ),
        key_revoke: Rule[KeyRevoke](
            event=key_revoked,
            aggregate=_revision,
            events=_revoked,
            keys=lambda payload: ((payload.key_id, None),),
            changes_keys=True,
            shape=(in_the_registry,),
            entry=(),
            policy=(by_a_registrar, _known),
            state=(_not_in_use, _not_ended),
        ),
    }
)

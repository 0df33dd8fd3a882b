"""Bind one key to one Principal for good; binding the very same key again is success (TRU-2)."""

from msgspec import UNSET, Struct

from contracts.command import key_register
from contracts.documents.common import Actor
from contracts.payloads.keys import KeyRegister, KeyStanding
from contracts.signature import SigningKey, algorithm, base64url_text
from contracts.timestamps import instant
from ops.command_fault import CommandFault
from ops.keys.state_to_registry import Registrar, Stated


class Registered(Struct, frozen=True, kw_only=True, rename="camel"):
    """A bound key. `already`: it was bound before; then there is no Event of now."""

    key_id: str
    principal: Actor
    public_key: str
    valid_from: str
    valid_until: str | None
    already: bool
    event_id: str | None


def binding_of(key: SigningKey, valid_until: str | None = None) -> KeyRegister:
    """What binds a key to its Principal, from its acceptance on."""
    return KeyRegister(
        key_id=key.key_id,
        principal=key.principal,
        algorithm=algorithm,
        public_key=base64url_text(key.public_key),
        valid_until=UNSET if valid_until is None else valid_until,
    )


async def register_key(registrar: Registrar, binding: KeyRegister) -> Registered:
    """Bind the key. Raises CommandFault when it is refused, bound with another end, or has ended."""
    stated = await registrar.state(key_register, binding)
    if not isinstance(stated, Stated):
        return _as_bound_before(binding, stated.key, registrar.current_time())
    receipt = stated.receipt
    return Registered(
        key_id=binding.key_id,
        principal=binding.principal,
        public_key=binding.public_key,
        valid_from=receipt.accepted_at if binding.valid_from is UNSET else binding.valid_from,
        valid_until=None if binding.valid_until is UNSET else binding.valid_until,
        already=False,
        event_id=receipt.events[0].event_id,
    )


def _as_bound_before(binding: KeyRegister, key: KeyStanding, now: str) -> Registered:
    if key.revoked_at is not UNSET:
        raise CommandFault(f"key {key.key_id} is bound already and was revoked at {key.revoked_at}; make a new key")
    if key.valid_until is not UNSET and instant(key.valid_until) <= instant(now):
        raise CommandFault(f"key {key.key_id} is bound already and ended at {key.valid_until}; make a new key")
    if binding.valid_until is not UNSET and binding.valid_until != key.valid_until:
        ends = "without an end" if key.valid_until is UNSET else f"until {key.valid_until}"
        raise CommandFault(f"key {key.key_id} is bound already {ends}, not until {binding.valid_until}")
    return Registered(
        key_id=key.key_id,
        principal=key.principal,
        public_key=key.public_key,
        valid_from=key.valid_from,
        valid_until=None if key.valid_until is UNSET else key.valid_until,
        already=True,
        event_id=None,
    )

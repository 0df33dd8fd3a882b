"""Give a key file a successor while its holder works on (TRU-2).

    FILE: old                                            1  successor written      FILE.next: new
    FILE: old     FILE.next: new                         2  successor registered   the registry knows both
    FILE: old     FILE.next: new   FILE.previous: old    3  file replaced          FILE: new, FILE.previous: old
    FILE: new     FILE.previous: old                     4  retirement stated      old ends at now + overlap
    FILE: new                                            done; FILE.previous is removed

Authoritative is the registry. What each crash point leaves behind, and what the same call does then:
- before 1: nothing; it begins;
- after 1 or 2: FILE.next is taken up, and bound unless it is;
- within 3, after FILE.previous was made: it is made once more, the same;
- after 3: FILE.previous names a key that is not FILE's: only its retirement is still missing, and it is stated;
- after 4: the registry tells that the old key has its end; FILE.previous is removed.

What FILE.next and FILE.previous hold must belong to FILE's Principal, and FILE's key must be registered: otherwise
nothing is written. A symbolic link stays: FILE is what it leads to.

Whoever holds the old key may use it until it ends, so that nobody has to be stopped: an authority process follows its
file within seconds, everybody else reads it at the next start. The names do not end in `.json`, so that nothing that
reads a folder of keys takes them for keys in use.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Final

from msgspec import UNSET, Struct

from contracts.command import key_retire
from contracts.documents.common import Actor, ActorType
from contracts.payloads.keys import KeyRetire
from contracts.signature import SigningKey, base64url_text
from contracts.timestamps import format_timestamp, parse_timestamp
from ops.command_fault import CommandFault, UsageFault
from ops.durable_file import remove_drafts, sync_directory
from ops.folder_lock import FolderInUse, alone_in
from ops.keys.register_key import binding_of, register_key
from ops.keys.state_to_registry import Registrar, RegistryRefused, RegistryUnanswered, Stated
from ops.keys.write_key import make_or_take_up
from services.agent.keyring import KeyFault, load_key

overlap_seconds_default: Final = 300
"""Seconds for which the old key stays valid beside its successor."""
overlap_seconds_min: Final = 5
"""An authority process looks at its key file once a second, and must find the successor before the old key ends."""
overlap_seconds_max: Final = 90 * 86_400


class Step(Enum):
    """What has been done, in order."""

    SUCCESSOR_WRITTEN = "successor written"
    SUCCESSOR_REGISTERED = "successor registered"
    PREVIOUS_KEPT = "previous kept"
    FILE_REPLACED = "file replaced"
    RETIREMENT_STATED = "retirement stated"


class Rotated(Struct, frozen=True, kw_only=True, rename="camel"):
    """A finished rotation. `before` ends at `before_valid_until`; `resumed` says that an earlier call had begun it."""

    file: str
    principal: Actor
    before: str
    before_valid_until: str
    after: str
    resumed: bool


def next_file(file: Path) -> Path:
    """Where the successor waits."""
    return file.with_name(f"{file.name}.next")


def previous_file(file: Path) -> Path:
    """Where the old key is kept until its retirement is stated."""
    return file.with_name(f"{file.name}.previous")


def _silent(_step: Step) -> None:
    """Say nothing."""


async def rotate_key(
    registrar: Registrar, named: Path, *, overlap_seconds: int, progress: Callable[[Step], None] = _silent
) -> Rotated:
    """Rotate the key in the file `named`, or finish what an earlier call began.

    A registrar that rotates its own key states the retirement with the new one. Raises UsageFault for a file that
    holds no key of a service or person, or has another Principal's beside it, CommandFault when its key is not
    registered, another call is at work or the registry refuses.
    """
    with _alone(named) as file:
        with _writable(file):
            remove_drafts(file)
        current = rotatable_key(file)
        previous = _beside(file, previous_file(file), current.principal)
        _beside(file, next_file(file), current.principal)
        pending = previous is not None and previous.key_id != current.key_id
        if previous is not None and pending:
            before, after, resumed = previous, current, True
        else:
            before = current
            await _require_registered(registrar, file, current)
            after, resumed = await _replace(registrar, file, current, progress)
        if registrar.key.key_id == before.key_id:
            registrar.sign_with(after)
        ends = await _retire(registrar, before, previous_file(file), overlap_seconds)
        progress(Step.RETIREMENT_STATED)
        with _writable(file):
            previous_file(file).unlink()
            sync_directory(file.parent)
    return Rotated(
        file=str(file),
        principal=after.principal,
        before=before.key_id,
        before_valid_until=ends,
        after=after.key_id,
        resumed=resumed,
    )


async def _replace(
    registrar: Registrar, file: Path, current: SigningKey, progress: Callable[[Step], None]
) -> tuple[SigningKey, bool]:
    """Steps 1 to 3; the successor, and whether an earlier call had written it."""
    waiting, kept = next_file(file), previous_file(file)
    successor, made = make_or_take_up(waiting, current.principal)
    progress(Step.SUCCESSOR_WRITTEN)
    try:
        await register_key(registrar, binding_of(successor))
    except (RegistryRefused, RegistryUnanswered):
        raise
    except CommandFault as fault:
        raise CommandFault(f"{fault}: remove {waiting} and rotate again") from fault
    progress(Step.SUCCESSOR_REGISTERED)
    with _writable(file):
        kept.unlink(missing_ok=True)
        os.link(file, kept)
        sync_directory(file.parent)
    progress(Step.PREVIOUS_KEPT)
    with _writable(file):
        waiting.replace(file)
        sync_directory(file.parent)
    progress(Step.FILE_REPLACED)
    return successor, not made


async def _retire(registrar: Registrar, key: SigningKey, kept: Path, overlap_seconds: int) -> str:
    """State the planned end of the old key; when it ends. One that has an end, or ended, needs no other."""
    ends = parse_timestamp(registrar.current_time()) + timedelta(seconds=overlap_seconds)
    retirement = KeyRetire(key_id=key.key_id, valid_until=format_timestamp(ends))
    try:
        stated = await registrar.state(key_retire, retirement)
    except RegistryRefused as refused:
        remedy = f"The new key is in place; {key.key_id} was not retired. Rotate again, or remove {kept} to leave it so"
        raise CommandFault(f"{refused}. {remedy}") from refused
    if isinstance(stated, Stated):
        return retirement.valid_until
    known = (stated.key.revoked_at, stated.key.valid_until)
    return next((end for end in known if end is not UNSET), retirement.valid_until)


def rotatable_key(file: Path) -> SigningKey:
    """The key of a service or person in a file. Raises UsageFault."""
    try:
        key = load_key(file)
    except KeyFault as fault:
        raise UsageFault(str(fault)) from fault
    if key.principal.type is ActorType.AGENT:
        remedy = "register a newer Agent Card that names both keys, then give the Worker the new key file"
        raise UsageFault(f"{file} holds a key of the Agent {key.principal.id}, whose card binds its keys: {remedy}")
    return key


def _beside(file: Path, path: Path, principal: Actor) -> SigningKey | None:
    """What an earlier call left of this file, if anything. Raises UsageFault for what is of no such call."""
    if not path.exists():
        return None
    key = rotatable_key(path)
    if key.principal != principal:
        holder = f"{path} holds a key of {key.principal.id}, but {file} one of {principal.id}"
        raise UsageFault(f"{holder}: it is no part of this rotation. Move {path} away, then rotate again")
    return key


async def _require_registered(registrar: Registrar, file: Path, key: SigningKey) -> None:
    """Raise CommandFault unless the registry has this key as the file has it: otherwise it could not be retired."""
    bound = await registrar.find(key.key_id)
    if bound is None:
        register = f"weavehold keys register --principal {key.principal.type.value}:{key.principal.id} --out {file}"
        raise CommandFault(
            f"{file} holds {key.key_id}, which is not registered. Nothing was changed; first: {register}"
        )
    if (bound.principal, bound.public_key) != (key.principal, base64url_text(key.public_key)):
        problem = f"{file} holds {key.key_id}, which is registered for {bound.principal.id} or with other bytes"
        raise CommandFault(f"{problem}. Nothing was changed; name the key file that was registered")


@contextmanager
def _writable(file: Path) -> Iterator[None]:
    """A step on files; raises CommandFault when it cannot be done."""
    try:
        yield
    except OSError as fault:
        problem = f"beside {file} nothing can be written: {fault.strerror}"
        raise CommandFault(f"{problem}. Make room and {file.parent} writable, then rotate again") from fault


@contextmanager
def _alone(named: Path) -> Iterator[Path]:
    """One rotation at a time in a folder; the file itself, wherever links to it are. Raises CommandFault."""
    file = Path(os.path.realpath(named))
    with ExitStack() as stack:
        try:
            stack.enter_context(alone_in(file.parent))
        except OSError as fault:
            raise UsageFault(f"{file.parent} cannot be opened: {fault.strerror}") from fault
        except FolderInUse:
            message = f"another rotation, or weavehold init, is at work in {file.parent}; wait for it"
            raise CommandFault(message) from None
        yield file

"""New key files: whole or not at all, mode 0600, and never over another one."""

from pathlib import Path
from typing import Final

from contracts.documents.common import Actor
from contracts.signature import SigningKey
from ops.command_fault import CommandFault, UsageFault
from ops.durable_file import create_durably, remove_drafts
from ops.folder_lock import FolderInUse, in_turn_in
from services.agent.keyring import KeyFault, load_key

folder_wait_seconds: Final = 15.0
"""Seconds to wait for whoever is at work in the same folder of keys."""


def make_or_take_up_in_turn(path: Path, principal: Actor) -> SigningKey:
    """The key of `make_or_take_up`, once nobody else is at work in its folder. Raises as that, and for who stays."""
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with in_turn_in(folder, folder_wait_seconds):
            return make_or_take_up(path, principal)[0]
    except FolderInUse as fault:
        message = f"somebody has been at work in {folder} for {folder_wait_seconds:g} s: init, or keys; wait for it"
        raise CommandFault(message) from fault
    except OSError as fault:
        raise _not_written(path, fault) from fault


def make_or_take_up(path: Path, principal: Actor) -> tuple[SigningKey, bool]:
    """The key of this Principal in this file, made when there is no file; whether it was made now.

    A file that is there is taken up, so that a call whose outcome is unknown may be repeated; what a killed call left
    beside it is removed. Only for whoever is alone in the folder, which is there. Raises UsageFault for a file that
    holds anything else, CommandFault when it cannot be written.
    """
    try:
        remove_drafts(path)
        if not path.exists():
            made = SigningKey.generate(principal)
            if create_durably(path, made.key_file(), mode=0o600):
                return made, True
        found = load_key(path)
    except KeyFault as fault:
        raise UsageFault(str(fault)) from fault
    except OSError as fault:
        raise _not_written(path, fault) from fault
    if found.principal != principal:
        raise UsageFault(f"{path} holds a key of {found.principal.id}; it is not overwritten. Choose another file")
    return found, False


def _not_written(path: Path, fault: OSError) -> CommandFault:
    return CommandFault(f"the key file {path} cannot be written: {fault.strerror}. Choose another place")

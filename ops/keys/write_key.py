"""New key files: whole or not at all, mode 0600, and never over another one."""

import os
import secrets
from pathlib import Path

from contracts.documents.common import Actor
from contracts.signature import SigningKey
from ops.command_fault import CommandFault, UsageFault
from ops.init import write_key_file
from services.agent.keyring import KeyFault, load_key


def make_or_take_up(path: Path, principal: Actor) -> tuple[SigningKey, bool]:
    """The key of this Principal in this file, made when there is no file; whether it was made now.

    A file that is there is taken up, so that a call whose outcome is unknown may be repeated. Raises UsageFault for a
    file that holds anything else, CommandFault when it cannot be written.
    """
    try:
        if not path.exists():
            made = SigningKey.generate(principal)
            if _write_new(path, made):
                return made, True
        found = load_key(path)
    except KeyFault as fault:
        raise UsageFault(str(fault)) from fault
    except OSError as fault:
        raise CommandFault(f"the key file {path} cannot be written: {fault.strerror}. Choose another place") from fault
    if found.principal != principal:
        raise UsageFault(f"{path} holds a key of {found.principal.id}; it is not overwritten. Choose another file")
    return found, False


def _write_new(path: Path, key: SigningKey) -> bool:
    """Write a file that is not there yet; False when somebody else made it meanwhile."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    write_key_file(draft, key)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    sync_directory(path.parent)
    return True


def sync_directory(directory: Path) -> None:
    """Make what was linked, renamed or removed in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""The key that an operator's Commands are signed with: the one named, else that of the stack."""

from pathlib import Path

from contracts.signature import SigningKey
from ops.command_fault import UsageFault
from ops.embedded.directory import StackDirectory
from ops.embedded.environment import stack_variables
from ops.init import key_file
from services.agent.keyring import KeyFault, load_key
from services.process.settings import Environment


def operator_key(directory: Path, key: Path | None) -> SigningKey:
    """The key in the file `key`, else the operator's in the stack's folder of keys. Raises UsageFault."""
    folder = Environment(stack_variables(directory)).path("WEAVEHOLD_KEYS_DIR", StackDirectory.at(directory).keys)
    return read_key(key or key_file(folder, "operator"))


def read_key(path: Path) -> SigningKey:
    """The key in a file. Raises UsageFault."""
    try:
        return load_key(path)
    except KeyFault as fault:
        raise UsageFault(str(fault)) from fault

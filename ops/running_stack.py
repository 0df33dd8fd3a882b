"""Where a command that looks at a running stack finds its database and its broker."""

import shlex
from pathlib import Path

from msgspec import Struct

from ops.command_fault import CommandFault
from ops.embedded.directory import StackDirectory
from ops.embedded.environment import stack_variables
from services.process.settings import BrokerCredentials, Environment, read_broker_credentials

_remedy = "Start the stack with `weavehold up`, name its --directory, or set the WEAVEHOLD_… variables"


class DatabaseAccess(Struct, frozen=True):
    """An Organization in its database."""

    organization_id: str
    url: str


class BrokerAccess(Struct, frozen=True):
    """An Organization at its broker."""

    organization_id: str
    url: str
    credentials: BrokerCredentials


def database_access(directory: Path) -> DatabaseAccess:
    """The database by the environment, else of the stack that runs in `directory`.

    Raises `SettingsFault`, and CommandFault for a stack that is there and does not run.
    """
    environment = _environment(directory, "WEAVEHOLD_ORGANIZATION", "WEAVEHOLD_DATABASE_URL")
    return DatabaseAccess(
        organization_id=environment.identifier("WEAVEHOLD_ORGANIZATION", remedy=_remedy),
        url=environment.url("WEAVEHOLD_DATABASE_URL", ("postgresql", "postgres"), remedy=_remedy),
    )


def broker_access(directory: Path) -> BrokerAccess:
    """The broker by the environment, else of the stack that runs in `directory`.

    Raises `SettingsFault`, and CommandFault for a stack that is there and does not run.
    """
    environment = _environment(directory, "WEAVEHOLD_ORGANIZATION", "WEAVEHOLD_NATS_URL")
    return BrokerAccess(
        organization_id=environment.identifier("WEAVEHOLD_ORGANIZATION", remedy=_remedy),
        url=environment.url("WEAVEHOLD_NATS_URL", ("nats", "tls", "ws", "wss"), remedy=_remedy),
        credentials=read_broker_credentials(environment),
    )


def _environment(directory: Path, *needed: str) -> Environment:
    """What is needed from the environment, else from the stack."""
    variables, stack = stack_variables(directory), StackDirectory.at(directory)
    if stack.was_prepared and not stack.variables() and not all(variables.get(name) for name in needed):
        raise CommandFault(
            f"the stack in {stack.path} is not running. Start it with "
            f"`weavehold up --directory {shlex.quote(str(stack.path))}`, or name another --directory"
        )
    return Environment(variables)

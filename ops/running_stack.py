"""Where a command that looks at a running stack finds its database and its broker."""

from pathlib import Path

from msgspec import Struct

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
    """The database by the environment, else of the stack that runs in `directory`. Raises `SettingsFault`."""
    environment = Environment(stack_variables(directory))
    return DatabaseAccess(
        organization_id=environment.identifier("WEAVEHOLD_ORGANIZATION", remedy=_remedy),
        url=environment.url("WEAVEHOLD_DATABASE_URL", ("postgresql", "postgres"), remedy=_remedy),
    )


def broker_access(directory: Path) -> BrokerAccess:
    """The broker by the environment, else of the stack that runs in `directory`. Raises `SettingsFault`."""
    environment = Environment(stack_variables(directory))
    return BrokerAccess(
        organization_id=environment.identifier("WEAVEHOLD_ORGANIZATION", remedy=_remedy),
        url=environment.url("WEAVEHOLD_NATS_URL", ("nats", "tls", "ws", "wss"), remedy=_remedy),
        credentials=read_broker_credentials(environment),
    )

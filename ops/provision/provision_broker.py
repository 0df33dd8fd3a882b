"""One folder from which a NATS server runs: configuration, accounts, nkeys and, for trying out, certificates.

Running it again changes nothing that is there: keys stay, users that are named anew are added. The server reads what
changed by `nats-server --signal reload`.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from psycopg import AsyncConnection

from ops.command_fault import CommandFault, UsageFault
from ops.durable_file import make_private_directory, private_mode, replace_durably
from ops.provision.broker_certificates import Certificates, own_certificates
from ops.provision.broker_users import Account, load_accounts, seed_file, settle_account
from services.process.statements import load

configuration_name: Final = "nats-server.conf"
payload_bytes_max: Final = 1024 * 1024
"""Bytes of one message."""
tls_first: Final = "auto"
"""The server waits a moment for a client that encrypts before anything is said, as all of ours do."""

statements: Final = load(__package__)


class RegisteredOrganization(Struct, frozen=True):
    """What the database says: the number of Group shards, and the Agents that have a card."""

    shard_count: int
    agents: tuple[str, ...]


class ServerPlace(Struct, frozen=True, kw_only=True):
    """Where the server listens, what it calls itself, and where its streams lie."""

    hosts: tuple[str, ...]
    port: int
    name: str
    store: Path

    @property
    def url(self) -> str:
        """What a client is told."""
        host = self.hosts[0]
        return f"tls://{f'[{host}]' if ':' in host else host}:{self.port}"


class ProvisionedUser(Struct, frozen=True, kw_only=True, rename="camel"):
    """One user; `seed_file` is None when its seed was taken away."""

    name: str
    part: str
    principal: str
    public_nkey: str
    seed_file: str | None


class Provisioned(Struct, frozen=True, kw_only=True, rename="camel"):
    """What lies in the folder now."""

    organization_id: str
    account: str
    configuration: str
    url: str
    ca_file: str
    users: tuple[ProvisionedUser, ...]


async def read_organization(connection: AsyncConnection[Any], organization_id: str) -> RegisteredOrganization:
    """Shards and Agents by the database. Raises CommandFault for an Organization that it does not hold."""
    asked = {"organization_id": organization_id}
    row = await (await connection.execute(statements.read_shard_count, asked)).fetchone()
    if row is None:
        raise CommandFault(f"the database does not hold {organization_id}; run `weavehold init`")
    agents = await (await connection.execute(statements.read_agents, asked)).fetchall()
    return RegisteredOrganization(row[0], tuple(agent_id for (agent_id,) in agents))


def provision_broker(
    directory: Path,
    organization_id: str,
    shard_count: int,
    place: ServerPlace,
    *,
    agents: Iterable[str],
    clients: Iterable[str] = (),
    certificates: Certificates | None = None,
) -> Provisioned:
    """Write the folder. Raises CommandFault, UsageFault, and OSError for what cannot be written."""
    if not place.hosts:
        raise UsageFault("name at least one --host that clients reach the server by")
    make_private_directory(directory)
    shown = certificates or own_certificates(directory / "tls", place.hosts)
    account = settle_account(directory, organization_id, shard_count, agents=agents, clients=clients)
    configuration = _configuration(load_accounts(directory), place, shown)
    path = directory / configuration_name
    # The server reads JSON as a subset of its own language, so quoting is JSON's.
    replace_durably(path, (json.dumps(configuration, indent=1, ensure_ascii=False) + "\n").encode(), mode=private_mode)
    return Provisioned(
        organization_id=organization_id,
        account=account.name,
        configuration=str(path),
        url=place.url,
        ca_file=str(shown.authority),
        users=tuple(_shown(directory, account)),
    )


def _configuration(accounts: Sequence[Account], place: ServerPlace, shown: Certificates) -> dict[str, Any]:
    return {
        "server_name": place.name,
        "port": place.port,
        "max_payload": payload_bytes_max,
        "jetstream": {"store_dir": str(place.store)},
        "tls": {
            "cert_file": str(shown.server),
            "key_file": str(shown.server_key),
            "ca_file": str(shown.authority),
            "handshake_first": tls_first,
            "min_version": "1.3",
        },
        "accounts": {account.name: _account(account) for account in accounts},
    }


def _account(account: Account) -> dict[str, Any]:
    return {
        "jetstream": "enabled",
        "users": [
            {
                "nkey": user.public_nkey,
                "permissions": user.permissions(account.organization_id, account.shard_count).configuration(
                    user.public_nkey
                ),
            }
            for user in account.users
        ],
    }


def _shown(directory: Path, account: Account) -> Iterable[ProvisionedUser]:
    for user in account.users:
        path = seed_file(directory, account.organization_id, user)
        yield ProvisionedUser(
            name=user.name,
            part=user.part.value,
            principal=user.principal,
            public_nkey=user.public_nkey,
            seed_file=str(path) if path.exists() else None,
        )

"""`weavehold nats provision`."""

import asyncio
from pathlib import Path
from shutil import which
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from ops.cells import cell, line
from ops.command_fault import UsageFault
from ops.embedded.broker_server import installed_server
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption, stack_variables
from ops.init import shard_count_max
from ops.output import JsonOption, print_result
from ops.provision.broker_certificates import Certificates
from ops.provision.provision_broker import (
    Provisioned,
    RegisteredOrganization,
    ServerPlace,
    provision_broker,
    read_organization,
)
from services.process.database import connect
from services.process.settings import Environment

port_default: Final = 4222

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Provision the broker: one account per Organization, a key with the narrowest permissions for each process.",
)


@app.callback()
def _root() -> None:
    """Keep the command a group, so that others may join."""


@app.command()
def provision(
    out: Annotated[Path, typer.Option(help="The folder to write, or to add to.")],
    organization: Annotated[
        str | None, typer.Option(help="The Organization's ID; by default that of the environment or the stack.")
    ] = None,
    host: Annotated[
        list[str] | None, typer.Option(help="A name or address that clients reach the server by. May be repeated.")
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where the server listens.")] = port_default,
    name: Annotated[str, typer.Option(help="What the server calls itself.")] = "weavehold",
    store: Annotated[Path | None, typer.Option(help="Where the server keeps its streams; by default in --out.")] = None,
    agent: Annotated[
        list[str] | None, typer.Option(help="An Agent's ID, beside those with a card in the database. May be repeated.")
    ] = None,
    client: Annotated[
        list[str] | None, typer.Option(help="A name for a person or gateway that sends Commands. May be repeated.")
    ] = None,
    shards: Annotated[
        int | None, typer.Option(min=1, max=shard_count_max, help="Shards, where no database is asked.")
    ] = None,
    ca: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Your own CA as PEM.")] = None,
    certificate: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="The server's certificate as PEM.")
    ] = None,
    certificate_key: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Its key as PEM.")] = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Write a nats-server configuration with accounts, nkeys, permissions and TLS, ready to run.

    Keys that are there stay; run it again for new Agents and then nats-server --signal reload. Shards and registered
    Agents come from the database, unless --shards is given. Without --ca a CA and a certificate are made to try it out.

    \b
    Examples:
      weavehold nats provision --out nats --host 127.0.0.1
      weavehold nats provision --out /etc/weavehold/nats --host nats.internal --client gateway \\
          --ca ca.pem --certificate nats.pem --certificate-key nats-key.pem --json
      weavehold nats provision --out nats --organization urn:weavehold:organization:acme --shards 64 \\
          --agent urn:weavehold:agent:ada
    """
    environment = Environment(stack_variables(directory))
    organization_id = organization or environment.identifier(
        "WEAVEHOLD_ORGANIZATION", remedy="Name it with --organization"
    )
    registered = _registered(environment, organization_id, shards)
    out = out.absolute()
    place = ServerPlace(
        hosts=tuple(host or ("127.0.0.1",)), port=port, name=name, store=(store or out / "jetstream").absolute()
    )
    done = provision_broker(
        out,
        organization_id,
        registered.shard_count,
        place,
        agents=dict.fromkeys((*registered.agents, *(agent or ()))),
        clients=dict.fromkeys(client or ()),
        certificates=_given_certificates(ca, certificate, certificate_key),
    )
    print_result(done, as_json=as_json, people=lambda console: _show(console, done))


def _registered(environment: Environment, organization_id: str, shards: int | None) -> RegisteredOrganization:
    if shards is not None:
        return RegisteredOrganization(shards, ())
    url = environment.url("WEAVEHOLD_DATABASE_URL", ("postgresql", "postgres"), remedy="Set it, or say --shards")

    async def read() -> RegisteredOrganization:
        connection = await connect(url, name="weavehold-provision")
        try:
            return await read_organization(connection, organization_id)
        finally:
            await connection.close()

    return asyncio.run(read())


def _given_certificates(ca: Path | None, certificate: Path | None, key: Path | None) -> Certificates | None:
    if ca is None and certificate is None and key is None:
        return None
    if ca is None or certificate is None or key is None:
        raise UsageFault("--ca, --certificate and --certificate-key belong together")
    return Certificates(authority=ca.absolute(), server=certificate.absolute(), server_key=key.absolute())


def _show(console: Console, done: Provisioned) -> None:
    table = Table("user", "for", "nkey", "seed file", title=f"{done.account} ({done.organization_id})")
    for user in done.users:
        principal = user.principal or user.part
        table.add_row(*(cell(value) for value in (user.name, principal, user.public_nkey, user.seed_file)))
    console.print(table)
    console.print(line(f"run      nats-server -c {done.configuration}"))
    if which("nats-server") is None and (installed := installed_server()) is not None:
        console.print(line(f"         no nats-server is on the PATH; one is installed here: {installed}"))
    console.print(line(f"clients  WEAVEHOLD_NATS_URL={done.url} WEAVEHOLD_NATS_CA_FILE={done.ca_file}"))
    console.print("         WEAVEHOLD_NATS_NKEY_SEED_FILE=<the user's seed file>")

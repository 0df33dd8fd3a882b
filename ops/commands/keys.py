"""`weavehold keys register|rotate|revoke|show|audit|failures`."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from msgspec import UNSET

from contracts.documents.common import Actor, ActorType
from contracts.payloads.keys import KeyRegister, KeyRevoke
from contracts.signature import SigningKey, algorithm, base64url_bytes, is_prime_order_point
from contracts.timestamps import instant
from ops.command_fault import CommandFault, UsageFault
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption
from ops.keys.audit_registry import audit_registry
from ops.keys.read_failures import FailureReport, duration_seconds_max, read_failures, seconds_back
from ops.keys.read_registry import RegistryReport, read_registry
from ops.keys.register_key import binding_of, register_key
from ops.keys.revoke_key import Revoked, count_vouched, revoke_key
from ops.keys.rotate_key import (
    overlap_seconds_default,
    overlap_seconds_max,
    overlap_seconds_min,
    rotatable_key,
    rotate_key,
)
from ops.keys.show_keys import (
    show_audit,
    show_failures,
    show_registered,
    show_registry,
    show_revoked,
    show_rotated,
)
from ops.keys.state_to_registry import Registrar, registrar_at
from ops.keys.write_key import make_or_take_up_in_turn
from ops.operator_key import operator_key, read_key
from ops.output import JsonOption, print_result
from ops.running_stack import broker_access, database_access
from services.process.database import Connection, Timeouts, connect
from services.process.logs import configure_logs
from services.process.settings import Environment, log_levels

failures_shown_default: Final = 100
failures_shown_max: Final = 10_000
"""Failures, and groups of them, that one call prints."""

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Register, rotate, revoke, look at and audit the keys of an Organization.",
)
SignerOption = Annotated[
    Path | None, typer.Option("--key", help="Key file of a registrar; by default the operator's of the stack.")
]


@app.command()
def register(
    principal: Annotated[str, typer.Option(metavar="TYPE:ID", help="human:ID or service:ID, whose key it is.")],
    out: Annotated[Path | None, typer.Option(help="Make a key and write it here; a file that is there stays.")] = None,
    public_key: Annotated[str | None, typer.Option(help="Public key made elsewhere, base64url of 32 bytes.")] = None,
    key_id: Annotated[str | None, typer.Option(metavar="URI", help="The key ID of that public key.")] = None,
    valid_until: Annotated[str | None, typer.Option(metavar="TIME", help="A planned end, RFC 3339.")] = None,
    key: SignerOption = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Bind a key to a person or service, from now on and for good: make one with --out, or name one made elsewhere.

    Calling it again is safe: the key in the file is taken up, and the very same key bound already is success. The keys
    of Agents are bound by their Agent Cards.

    \b
    Examples:
      weavehold keys register --principal human:urn:weavehold:human:ada --out keys/ada.json
      weavehold keys register --principal service:urn:weavehold:service:gateway --out gateway.json \\
          --valid-until 2027-01-01T00:00:00Z --json
      weavehold keys register --principal human:urn:weavehold:human:ada --public-key Qx3m... \\
          --key-id urn:weavehold:key:ada-2
    """
    _quiet()
    holder = _principal(principal)
    if valid_until is not None:
        _require_time("--valid-until", valid_until)
    if (out is None) == (public_key is None) or (public_key is None) != (key_id is None):
        raise UsageFault("name either --out FILE, or both --public-key and --key-id")
    signer = operator_key(directory, key)
    if out is not None:
        binding = binding_of(make_or_take_up_in_turn(out, holder), valid_until)
    else:
        binding = _foreign_binding(holder, public_key or "", key_id or "", valid_until)
    done = asyncio.run(_as_registrar(directory, signer, lambda registrar: register_key(registrar, binding)))
    shown = msgspec.to_builtins(done) | {"file": None if out is None else str(out)}
    print_result(shown, as_json=as_json, people=lambda console: show_registered(console, done, out))


@app.command()
def rotate(
    file: Annotated[Path, typer.Argument(help="Key file of a service or a person, such as keys/authority.json.")],
    overlap: Annotated[
        int,
        typer.Option(
            min=overlap_seconds_min, max=overlap_seconds_max, help="Seconds for which the old key stays valid."
        ),
    ] = overlap_seconds_default,
    key: SignerOption = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Give a key file a new key while its holder works on; the old key ends after the overlap.

    An authority process takes the new key up within seconds, without a restart; others when they start next. Copies of
    the file elsewhere must be replaced within the overlap. A call that was interrupted is finished by calling it again.

    \b
    Examples:
      weavehold keys rotate .weavehold/keys/authority.json
      weavehold keys rotate keys/ada.json --overlap 86400 --json
    """
    _quiet()
    rotatable_key(file)
    signer = operator_key(directory, key)
    done = asyncio.run(
        _as_registrar(directory, signer, lambda registrar: rotate_key(registrar, file, overlap_seconds=overlap))
    )
    print_result(done, as_json=as_json, people=lambda console: show_rotated(console, done))


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="The key that ends now.")],
    reason: Annotated[str, typer.Option(help="Why; it stands in the registry's history for good.")],
    suspected_since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Since when it may be in other hands, RFC 3339.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    key: SignerOption = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """End a key now and for good: nothing signed with it is accepted any more, by any process.

    What was accepted before stays accepted and verifiable, for a revocation is never backdated. With --suspected-since
    the documents that the key vouched for since then are counted, for somebody to look at.

    \b
    Examples:
      weavehold keys revoke urn:weavehold:key:4f2a --reason "laptop stolen"
      weavehold keys revoke urn:weavehold:key:4f2a --reason leaked --suspected-since 2026-07-01T00:00:00Z --yes --json
    """
    _quiet()
    if suspected_since is not None:
        _require_time("--suspected-since", suspected_since)
    revocation = _revocation(key_id, reason, suspected_since)
    signer = operator_key(directory, key)
    if not yes:
        _confirm(key_id)
    done, vouched = asyncio.run(_revoke(directory, signer, revocation))
    shown = msgspec.to_builtins(done) | {"suspectedSince": suspected_since, "vouchedSince": vouched}
    print_result(shown, as_json=as_json, people=lambda console: show_revoked(console, done, suspected_since, vouched))


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[KEY_ID|PRINCIPAL_ID|FILE]", help="Only this key, or a Principal's.")
    ] = None,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Show keys: whose they are, how they stand now, their boundaries, and what was stated of their ends.

    Exits with 1 when there is no such key.

    \b
    Examples:
      weavehold keys show
      weavehold keys show urn:weavehold:service:authority
      weavehold keys show .weavehold/keys/operator.json --json
    """
    wanted = _key_or_principal(name)

    async def read(connection: Connection, organization_id: str) -> RegistryReport:
        report = await read_registry(connection, organization_id, wanted)
        if not report.keys:
            raise CommandFault(f"{organization_id} has no key of or by the name {wanted}; see `weavehold keys show`")
        return report

    report = asyncio.run(_with_database(directory, read))
    print_result(report, as_json=as_json, people=lambda console: show_registry(console, report))


@app.command()
def audit(directory: DirectoryOption = default_directory, as_json: JsonOption = False) -> None:
    """Examine the whole registry: valid as evidence, and row for row what its history says. Exit 1 with a finding.

    Works while everything runs. Notes are no findings: keys that end within two weeks, an authority without successor.

    \b
    Examples:
      weavehold keys audit
      weavehold keys audit --json
    """
    found = asyncio.run(_with_database(directory, audit_registry))
    report = found.report
    shown = {
        "ok": report.ok,
        "examined": report.examined,
        "found": report.found,
        "findings": [msgspec.to_builtins(finding) for finding in report.findings],
        "notes": list(found.notes),
    }
    print_result(shown, as_json=as_json, people=lambda console: show_audit(console, found))
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def failures(
    since: Annotated[str, typer.Option(metavar="TIME|DURATION", help="RFC 3339, or such as 90s, 15m, 2h, 7d.")] = "1d",
    limit: Annotated[
        int, typer.Option(min=1, max=failures_shown_max, help="Failures, and groups of them, at most.")
    ] = failures_shown_default,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Show the protected record of authentication failures: the stage and reason that the wire never tells.

    Counts for people; with --json the newest rows too.

    \b
    Examples:
      weavehold keys failures --since 15m
      weavehold keys failures --since 2026-07-01T00:00:00Z --limit 1000 --json
    """
    _require_since(since)

    async def read(connection: Connection, organization_id: str) -> FailureReport:
        return await read_failures(connection, organization_id, since, limit)

    report = asyncio.run(_with_database(directory, read))
    print_result(report, as_json=as_json, people=lambda console: show_failures(console, report))


# --- what is asked, examined before anything is sent ---------------------------------------------------------------


def _quiet() -> None:
    """What the client logs stays out of the answer."""
    configure_logs("keys", Environment().choice("WEAVEHOLD_LOG_LEVEL", log_levels, "error"))


def _principal(text: str) -> Actor:
    kind, _, identity = text.partition(":")
    try:
        holder = msgspec.convert({"type": kind, "id": identity}, Actor)
    except msgspec.ValidationError as fault:
        raise UsageFault(f"--principal is {text!r}; write human:ID or service:ID with a URI as ID ({fault})") from fault
    if holder.type is ActorType.AGENT:
        raise UsageFault(f"the keys of an Agent are bound by its Agent Card: register a newer card of {holder.id}")
    return holder


def _foreign_binding(holder: Actor, public_key: str, key_id: str, valid_until: str | None) -> KeyRegister:
    raw = base64url_bytes(public_key)
    if raw is None or not is_prime_order_point(raw):
        raise UsageFault(f"--public-key {public_key!r} is no canonical prime-order Ed25519 key in unpadded base64url")
    binding = {
        "keyId": key_id,
        "principal": msgspec.to_builtins(holder),
        "algorithm": algorithm,
        "publicKey": public_key,
    } | ({} if valid_until is None else {"validUntil": valid_until})
    try:
        return msgspec.convert(binding, KeyRegister)
    except msgspec.ValidationError as fault:
        raise UsageFault(f"the key cannot be bound so: {fault}") from fault


def _revocation(key_id: str, reason: str, suspected_since: str | None) -> KeyRevoke:
    stated = {"keyId": key_id, "reason": reason}
    try:
        return msgspec.convert(
            stated if suspected_since is None else stated | {"suspectedSince": suspected_since}, KeyRevoke
        )
    except msgspec.ValidationError as fault:
        raise UsageFault(f"the key cannot be revoked so: {fault}") from fault


def _require_time(option: str, text: str) -> None:
    try:
        instant(text).to_datetime()
    except (ValueError, OverflowError) as fault:
        raise UsageFault(f"{option} is {text!r}; write a time such as 2026-07-01T12:00:00Z") from fault


def _require_since(text: str) -> None:
    back = seconds_back(text)
    if back is None:
        _require_time("--since", text)
    elif back > duration_seconds_max:
        raise UsageFault(f"--since is {text!r}; a duration is at most {duration_seconds_max // 86_400}d")


def _confirm(key_id: str) -> None:
    """Ask on a terminal; without one nobody could answer."""
    if not sys.stdin.isatty():
        raise UsageFault(f"revoking {key_id} is for good and nobody can be asked here; say --yes")
    typer.echo("From now on no process accepts what is signed with this key. What was accepted stays.", err=True)
    if not typer.confirm(f"Revoke {key_id} for good?", err=True):
        raise CommandFault(f"{key_id} was not revoked")


def _key_or_principal(name: str | None) -> str | None:
    """The key ID in a key file, else the name itself."""
    try:
        return read_key(Path(name)).key_id if name is not None and Path(name).is_file() else name
    except OSError:
        return name


async def _as_registrar[T](directory: Path, signer: SigningKey, act: Callable[[Registrar], Awaitable[T]]) -> T:
    async with registrar_at(broker_access(directory), signer) as registrar:
        return await act(registrar)


async def _with_database[T](directory: Path, read: Callable[[Connection, str], Awaitable[T]]) -> T:
    access = database_access(directory)
    connection = await connect(access.url, name="weavehold-keys", timeouts=Timeouts(statement=0))
    try:
        return await read(connection, access.organization_id)
    finally:
        await connection.close()


async def _revoke(directory: Path, signer: SigningKey, revocation: KeyRevoke) -> tuple[Revoked, dict[str, int] | None]:
    """Revoke, then count: nothing more can come after. The database is reached first, so that nothing is half done."""
    since = revocation.suspected_since
    if since is UNSET:
        return await _as_registrar(directory, signer, lambda registrar: revoke_key(registrar, revocation)), None

    async def act(connection: Connection, organization_id: str) -> tuple[Revoked, dict[str, int]]:
        done = await _as_registrar(directory, signer, lambda registrar: revoke_key(registrar, revocation))
        return done, await count_vouched(connection, organization_id, done.key_id, since)

    return await _with_database(directory, act)

"""`weavehold send`."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from nats.errors import Error as BrokerError
from rich.console import Console
from rich.table import Table

from contracts import subjects
from contracts.bounds import command_bytes_max
from contracts.canonical import CanonicalizationFault, ParseFault, parse_strict
from contracts.receipt import Receipt
from contracts.signature import SigningKey, sign_document
from ops.cells import cell, line
from ops.command_fault import CommandFault, UsageFault
from ops.embedded.directory import default_directory
from ops.embedded.environment import DirectoryOption
from ops.output import JsonOption, print_result
from ops.running_stack import BrokerAccess, broker_access
from services.agent.connect import BrokerLink
from services.agent.keyring import KeyFault, load_key
from services.agent.send_command import Answer, Answered, Refused, ReplyFault, RetryPolicy, send_command
from services.agent.sign_command import SignedCommand, current_time, protocol_version
from services.process import broker
from services.process.logs import configure_logs
from services.process.settings import Environment, log_levels, redact_url
from services.process.unique import uuid7_urn

seconds_default: Final = 30.0
seconds_max: Final = 600.0
"""Seconds that one call may try."""


def command(
    file: Annotated[Path, typer.Argument(help="The Command as JSON; - reads standard input.")],
    key: Annotated[
        Path | None, typer.Option(help="Key file: sign the unsigned Command in FILE as this key's Principal, now.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=seconds_max, help="How long to try before giving up.")
    ] = seconds_default,
    directory: DirectoryOption = default_directory,
    as_json: JsonOption = False,
) -> None:
    """Send one Command and print its Receipt, or the error that it got.

    A signed Command goes out exactly as it is. An unsigned one needs --key: issuedAt and signature are made now, and
    protocolVersion, actionId, correlationId and actor where the file has none. An unsigned file without an actionId
    is a new Command at every call; with one it can be sent again safely only as the same signed bytes.

    Exits with 0 when the Command was accepted, 1 when it was refused or nobody answered, 2 for a file or key that
    cannot be used.

    \b
    Examples:
      weavehold send create-mission.json --key .weavehold/keys/mission-owner.json
      weavehold send signed.json --json
      generate-command | weavehold send - --key agent.json
    """
    configure_logs("send", Environment().choice("WEAVEHOLD_LOG_LEVEL", log_levels, "error"))
    signed = _prepare(_read(file), None if key is None else _load(key))
    access = broker_access(directory)
    try:
        answer = asyncio.run(_send(access, signed, seconds))
    except (OSError, BrokerError, ReplyFault) as fault:
        reason = str(fault) or type(fault).__name__
        raise CommandFault(f"{signed.action_id} could not be sent to {redact_url(access.url)}: {reason}") from fault
    print_result(_described(answer), as_json=as_json, people=lambda console: _show(console, answer))
    if not isinstance(answer, Answered):
        raise typer.Exit(1)


def _read(file: Path) -> bytes:
    """The file's bytes, one more than allowed at most."""
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(command_bytes_max + 1)
        with file.open("rb") as opened:
            return opened.read(command_bytes_max + 1)
    except OSError as fault:
        raise UsageFault(f"{file} cannot be read: {fault.strerror}") from fault


def _load(path: Path) -> SigningKey:
    try:
        return load_key(path)
    except KeyFault as fault:
        raise UsageFault(str(fault)) from fault


def _prepare(raw: bytes, key: SigningKey | None) -> SignedCommand:
    """The Command to send: the bytes as they are when it is signed, else signed now with the key."""
    try:
        document = parse_strict(raw, command_bytes_max)
    except ParseFault as fault:
        raise UsageFault(f"the file is not one JSON document: {fault}") from fault
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        raise UsageFault("the file is not a Command: it needs an object with a member kind")
    if "signature" in document:
        if key is not None:
            raise UsageFault("the Command is signed already; leave --key out, or remove its signature")
        return _as_sent(document, raw)
    if key is None:
        raise UsageFault("the Command is not signed; name the key to sign it with: --key FILE")
    return _sign(document, key)


def _sign(document: dict[str, Any], key: SigningKey) -> SignedCommand:
    issued_at = current_time()
    actor = {"type": key.principal.type.value, "id": key.principal.id}
    if document.setdefault("actor", actor) != actor:
        raise UsageFault(f"the Command's actor is not {key.principal.id}, whose key was named")
    document.setdefault("protocolVersion", protocol_version)
    document.setdefault("actionId", uuid7_urn())
    document.setdefault("correlationId", uuid7_urn())
    document["issuedAt"] = issued_at
    try:
        raw = sign_document(document, key, issued_at)
    except CanonicalizationFault as fault:
        raise UsageFault(f"the Command cannot be signed: {fault}") from fault
    return _as_sent(document, raw)


def _as_sent(document: dict[str, Any], raw: bytes) -> SignedCommand:
    return SignedCommand(
        action_id=str(document.get("actionId")),
        kind=document["kind"],
        issued_at=str(document.get("issuedAt")),
        raw=raw,
    )


async def _send(access: BrokerAccess, signed: SignedCommand, seconds: float) -> Answer:
    connection = await broker.connect(access.url, name="weavehold-send", credentials=access.credentials)
    try:
        subject = subjects.command_ingress(access.organization_id)
        return await send_command(BrokerLink(connection), subject, signed, policy=RetryPolicy(deadline_seconds=seconds))
    finally:
        await connection.close()


def _described(answer: Answer) -> dict[str, Any]:
    if isinstance(answer, Answered):
        return {"receipt": msgspec.to_builtins(answer.value)}
    if isinstance(answer, Refused):
        rejection = msgspec.to_builtins(answer.refusal.rejection)
        retryable = answer.refusal.rejection.retryable
        return {"error": {**rejection, "retryable": retryable, "occurredAt": answer.refusal.occurred_at}}
    return {
        "unresolved": {
            "actionId": answer.command.action_id,
            "attempts": answer.attempts,
            "problem": answer.last_problem,
            "command": answer.command.raw.decode(),
        }
    }


def _show(console: Console, answer: Answer) -> None:
    if isinstance(answer, Answered):
        _show_receipt(console, answer.value)
        return
    if isinstance(answer, Refused):
        console.print(line(f"refused: {answer.code.value}: {answer.refusal.rejection.message}"))
        for name, value in _described(answer)["error"].items():
            if name not in ("code", "message"):
                console.print(line(f"  {name}: {value}"))
        return
    console.print(line(f"no answer to {answer.command.action_id} after {answer.attempts} attempts"))
    console.print(line(f"  last: {answer.last_problem}"))
    console.print("It may have been accepted. To learn what became of it, send exactly these bytes again:")
    console.out(answer.command.raw.decode(), highlight=False)


def _show_receipt(console: Console, receipt: Receipt) -> None:
    table = Table("Event ID", "sequence", "Group", title=f"{receipt.outcome.value} at {receipt.accepted_at}")
    for event in receipt.events:
        group_id = event.group_id if isinstance(event.group_id, str) else None
        table.add_row(*(cell(value) for value in (event.event_id, event.sequence, group_id)))
    console.print(table)
    console.print(line(f"Action {receipt.action_id}, aggregate revision {receipt.aggregate_revision}"))

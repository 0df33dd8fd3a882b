"""Commands to the key registry, signed by a registrar and sent over the broker.

A lost answer is settled by sending the same bytes again within one call. Across calls the registry itself tells: it
refuses what has been done already and says how the key stands, so that a repeated call finds its work done.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from msgspec import Struct

from contracts.documents.common import Document
from contracts.identifiers import registry_group
from contracts.key_registry import KeyBinding
from contracts.payloads.keys import KeyStanding
from contracts.payloads.requests import KeyList
from contracts.receipt import Receipt
from contracts.rejection import Code, Rejection
from contracts.signature import SigningKey
from ops.command_fault import CommandFault
from ops.running_stack import BrokerAccess
from services.agent.connect import Client, connect
from services.agent.read_history import Unavailable
from services.agent.send_command import Answered, Refusal, Refused, ReplyFault, RetryPolicy
from services.agent.sign_command import Intent

seconds_default: Final = 30.0
"""Seconds that one Command to the registry may take."""


class RegistryRefused(CommandFault):
    """The registry refused what was asked."""

    def __init__(self, rejection: Rejection, remedy: str = "") -> None:
        """Says the code and the authority's message, then `remedy`."""
        super().__init__(f"refused: {rejection.code.value}: {rejection.message}{remedy and f'. {remedy}'}")


class RegistryUnanswered(CommandFault):
    """Nobody answered in time: it may have been done or not."""


class Stated(Struct, frozen=True, kw_only=True):
    """The registry accepted a Command now."""

    receipt: Receipt


class StatedBefore(Struct, frozen=True, kw_only=True):
    """The registry had that already, or more; `key` is the key as it stands."""

    key: KeyStanding


class Registrar:
    """Speaks to the registry as one registrar; its clock follows the authority's answers."""

    def __init__(self, client: Client) -> None:
        """`client` is the registrar's own."""
        self._client = client

    @property
    def key(self) -> SigningKey:
        """The key that signs."""
        return self._client.key

    def sign_with(self, key: SigningKey) -> None:
        """Go on with another key of the same registrar. Raises ValueError for another Principal's."""
        if key.principal != self._client.key.principal:
            raise ValueError(f"{key.key_id} belongs to {key.principal.id}, not to {self._client.principal_id}")
        self._client.key = key

    def current_time(self) -> str:
        """The authority's clock, as far as its answers have told."""
        return self._client.current_time()

    async def find(self, key_id: str) -> KeyBinding | None:
        """The binding of a key, None when it is not registered. Raises RegistryRefused or RegistryUnanswered.

        Good for turning a mistake away, not for trust: nobody verified who answered.
        """
        try:
            answered = await self._client.history.keys([key_id])
        except (Unavailable, ReplyFault) as fault:
            raise RegistryUnanswered(f"the registry could not be asked about {key_id}: {fault}. Try again") from fault
        if isinstance(answered, Refusal):
            raise RegistryRefused(answered.rejection, _remedy(answered.rejection, self._client.key))
        bindings = msgspec.convert(answered.document, KeyList).registry.bindings
        return next((binding for binding in bindings if binding.key_id == key_id), None)

    async def state(self, kind: str, payload: Document) -> Stated | StatedBefore:
        """Send one Command of the registry. Raises RegistryRefused or RegistryUnanswered."""
        intent = Intent(kind=kind, payload=payload, group_id=registry_group(self._client.organization_id))
        try:
            answer = await self._client.send(intent)
        except ReplyFault as fault:
            raise RegistryUnanswered(f"{kind} got an answer outside the protocol: {fault}") from fault
        if isinstance(answer, Answered):
            return Stated(receipt=answer.value)
        if not isinstance(answer, Refused):
            problem = f"no answer to {kind} after {answer.attempts} attempts, the last: {answer.last_problem}"
            raise RegistryUnanswered(f"{problem}. It may have been done: run the same command again, it is safe")
        rejection = answer.refusal.rejection
        standing = _standing_in(rejection)
        if standing is not None:
            return StatedBefore(key=standing)
        raise RegistryRefused(rejection, _remedy(rejection, self._client.key))


@asynccontextmanager
async def registrar_at(access: BrokerAccess, key: SigningKey) -> AsyncIterator[Registrar]:
    """A Registrar on a connection of its own. Raises OSError or a broker error."""
    policy = RetryPolicy(deadline_seconds=seconds_default)
    async with connect(
        access.url, access.organization_id, key, credentials=access.credentials, policy=policy
    ) as client:
        yield Registrar(client)


def _standing_in(rejection: Rejection) -> KeyStanding | None:
    """How the key stands, when that is why the registry refused."""
    if rejection.code is not Code.INVALID_STATE_TRANSITION or not isinstance(rejection.details, dict):
        return None
    try:
        return msgspec.convert(rejection.details.get("key"), KeyStanding)
    except msgspec.ValidationError:
        return None


def _remedy(rejection: Rejection, key: SigningKey) -> str:
    if rejection.code is Code.AUTH_FORBIDDEN:
        return "Name the operator's key file with --key"
    if rejection.code is Code.AUTH_INVALID_SIGNATURE:
        return f"Look at {key.key_id} with `weavehold keys show`, and at the reason with `weavehold keys failures`"
    return ""

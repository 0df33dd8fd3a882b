"""The operator's decision that what the database holds is the history from now on (RULE-16): one signed Command."""

from typing import Final

from msgspec import Struct

from contracts.command import history_resume
from contracts.identifiers import registry_group
from contracts.payloads.history import HistoryResume
from contracts.receipt import Receipt
from contracts.signature import SigningKey
from ops.command_fault import CommandFault
from ops.incarnation.read_incarnations import IncarnationReport
from ops.running_stack import BrokerAccess
from services.agent.connect import connect
from services.agent.send_command import Answered, Refused, ReplyFault, RetryPolicy
from services.agent.sign_command import Intent

decision_seconds_max: Final = 30.0
"""Seconds that the decision may take: every shard is locked for it."""


class OpenedReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """What was decided, and the Receipt of it."""

    followed: str
    reason: str
    abandoned: tuple[str, ...]
    receipt: Receipt


async def open_incarnation(
    access: BrokerAccess, key: SigningKey, report: IncarnationReport, reason: str
) -> OpenedReport:
    """Open an incarnation after the newest one of `report`. Raises CommandFault, OSError or a broker error."""
    current = report.incarnations[-1].incarnation
    forgotten = report.evidence.forgotten if report.evidence is not None else ()
    intent = Intent(
        kind=history_resume,
        payload=HistoryResume(incarnation=current, reason=reason, abandoned=forgotten),
        group_id=registry_group(access.organization_id),
    )
    policy = RetryPolicy(deadline_seconds=decision_seconds_max)
    async with connect(
        access.url, access.organization_id, key, credentials=access.credentials, policy=policy
    ) as client:
        try:
            answer = await client.send(intent)
        except ReplyFault as fault:
            raise CommandFault(f"the authority answered outside the protocol: {fault}") from fault
    if isinstance(answer, Answered):
        return OpenedReport(followed=current, reason=reason, abandoned=forgotten, receipt=answer.value)
    if isinstance(answer, Refused):
        rejection = answer.refusal.rejection
        raise CommandFault(f"refused: {rejection.code.value}: {rejection.message}")
    raise CommandFault(
        f"no answer after {answer.attempts} attempts, the last: {answer.last_problem}. It may have been done: look "
        "with `weavehold incarnation show` before you try again"
    )

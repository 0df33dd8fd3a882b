"""Keep the stage and reason of an authentication failure in the protected audit record (TRU-5).

Authoritative here: nothing that anyone is answered by. A crash before the insert loses one audit row, never a decision.
"""

from typing import Any, Final

from psycopg import AsyncConnection

from services.authority.admitted import AuthenticationFailure
from services.process.statements import load

failures_kept_max: Final = 1_000_000
"""Records kept of one Organization when old ones are cleared: about 300 MB."""
forgotten_in_step_max: Final = 5_000
"""Records deleted by one statement."""

sql = load(__package__)


async def audit_failure(connection: AsyncConnection[Any], organization_id: str, failure: AuthenticationFailure) -> None:
    """Insert one record. The connection is outside a transaction, or in one that the caller commits."""
    await connection.execute(
        sql.insert_authentication_failure,
        {
            "organization_id": organization_id,
            "stage": failure.stage,
            "reason": _storable(failure.reason),
            "key_id": failure.key_id,
            "actor_id": failure.actor_id,
            "action_id": failure.action_id,
            "document_sha256": failure.document_sha256,
        },
    )


async def forget_old_failures(connection: AsyncConnection[Any], organization_id: str, *, days_kept: int) -> bool:
    """Delete some of what is older than `days_kept` or before the newest `failures_kept_max`; whether more is left."""
    asked = {
        "organization_id": organization_id,
        "days_kept": days_kept,
        "rows_kept": failures_kept_max,
        "step": forgotten_in_step_max,
    }
    return (await connection.execute(sql.forget_old_failures, asked)).rowcount >= forgotten_in_step_max


def _storable(reason: str) -> str:
    """What PostgreSQL can hold as text: a reason may quote what was received."""
    return reason.encode("utf-8", "replace").decode().replace("\0", "\ufffd")

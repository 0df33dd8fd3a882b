"""A lane whose database falls silent behind a connection that still stands."""

import asyncio
import os
import signal

import pytest

from ops.init import Organization
from services.authority import lane as lane_module
from tests.authority_rig import authority_on, post, receipt_of, rows, verified, with_groups


async def test_a_silent_connection_is_given_up_and_the_batch_runs_again(
    database_url: str, organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RULE-05, DUR-3: bytes are acknowledged and never answered; the lane takes another connection, for one Event."""
    monkeypatch.setattr(lane_module, "transition_seconds_max", 1.0)
    async with authority_on(database_url, organization) as authority:
        await with_groups(authority, 0)
        async with authority.lane() as lane:
            first = receipt_of(await authority.through(lane, post(organization)))
            [(backend,)] = await rows(
                database_url,
                "SELECT pid FROM pg_stat_activity "
                "WHERE application_name = 'test-lane' AND datname = current_database() "
                "ORDER BY backend_start DESC LIMIT 1",
            )
            os.kill(backend, signal.SIGSTOP)
            try:
                second = receipt_of(await asyncio.wait_for(authority.through(lane, post(organization)), 60))
            finally:
                os.kill(backend, signal.SIGCONT)
        logged = await rows(
            database_url, "SELECT sequence FROM event_log WHERE kind = 'message.posted' ORDER BY sequence"
        )
    assert [sequence for (sequence,) in logged] == [first.events[0].sequence, second.events[0].sequence]
    await verified(database_url, organization)

"""A lane without a database: what becomes of a batch that cannot commit as a whole."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from contracts.identifiers import ShardId
from contracts.rejection import Code, Rejection
from services.authority import lane as lane_module
from services.authority.accept_transition import Committed, RaceLost
from services.authority.admitted import Accepted, Admitted, Answer, SignedFact
from services.authority.batch_facts import Routed
from services.authority.judge_batch import Office
from services.authority.lane import Lane
from services.process.unique import uuid7_urn
from tests.mission_documents import owner, worker
from tests.scene import Scene


class _Connection:
    closed = broken = False

    async def close(self) -> None:
        return


async def _connect() -> Any:
    return _Connection()


async def _ignore(_committed: Committed) -> None:
    return


def admitted(number: int) -> Admitted:
    """Any Command, as admission would hand it over."""
    command = Scene().command("message.post", {"content": []}, worker)
    fact = SignedFact(kind="command", signing_hash=bytes([number]) * 32, key_id="k", principal=owner)  # type: ignore[arg-type]
    return Admitted(raw=bytes([number]), command=command, fact=fact)


async def test_a_command_that_loses_every_race_does_not_take_its_neighbours_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """RULE-05: a batch that keeps contradicting what is stored is halved down to the one Command behind it."""

    async def accept(_connection: Any, batch: Sequence[Routed], *_rest: Any) -> Committed:
        if any(routed.admitted.raw == b"\x03" for routed in batch):
            raise RaceLost("duplicate key")
        answers: tuple[Answer, ...] = tuple(Accepted(routed.admitted.raw) for routed in batch)
        return Committed(answers, (), (), frozenset(), keys_changed=False)

    monkeypatch.setattr(lane_module, "accept_transition", accept)
    office: Any = Office(organization_id="urn:org", holder="one-1", key=None, new_id=uuid7_urn)  # type: ignore[arg-type]
    lane = Lane(_connect, office, {}, _ignore, lambda _lost: None)
    waiting = [asyncio.create_task(lane.submit(admitted(number), ShardId(1))) for number in range(1, 9)]
    await asyncio.sleep(0)
    running = asyncio.create_task(lane.run(lambda: None))
    answers = await asyncio.gather(*waiting)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    refused = answers.pop(2)
    assert isinstance(refused, Rejection)
    assert (refused.code, refused.retryable) == (Code.BACKPRESSURE, True)
    assert all(isinstance(answer, Accepted) for answer in answers)

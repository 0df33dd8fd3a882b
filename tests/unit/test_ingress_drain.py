"""Stopping the door: what was taken is answered first."""

import asyncio
from collections.abc import Sequence
from typing import Any

from contracts.rejection import Code, reject
from services.authority.admit import Admission
from services.authority.admitted import Refused
from services.authority.ingress import Ingress


class _SlowAdmission:
    """An admission pool that answers when told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def admit(self, raws: Sequence[bytes], _version: int) -> list[Admission]:
        self.asked.set()
        await self.go_on.wait()
        return [Refused(reject(Code.PROTOCOL_VIOLATION, "no Command")) for _ in raws]


class _Counter:
    def add(self, **_labels: str) -> None:
        return


async def test_a_command_that_is_being_verified_is_waited_for() -> None:
    """OPS-1: an orderly end answers everything that was taken, also what no queue and no task shows at the moment."""
    admission: Any = _SlowAdmission()
    nothing: Any = None
    ingress = Ingress(
        nothing,
        "urn:org",
        pool=admission,
        finder=nothing,
        lanes={},
        holders=lambda _shard: None,
        registry_version=lambda: 1,
        answered=_Counter(),  # type: ignore[arg-type]
        on_failures=lambda _failures: None,
    )
    admitting = asyncio.create_task(ingress.admit_batches(lambda: None))
    answer = asyncio.create_task(ingress.submit(b"{"))
    await admission.asked.wait()
    drained = asyncio.create_task(ingress.drained())
    await asyncio.sleep(0.05)
    assert not drained.done()
    admission.go_on.set()
    await drained
    assert b"PROTOCOL_VIOLATION" in await answer
    admitting.cancel()
    await asyncio.gather(admitting, return_exceptions=True)

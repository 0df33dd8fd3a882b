"""Keys as a consumer of Events knows them: learned from the authority when first met, remembered for a while (TRU-2).

The broker that carries Events carries the answers too, so an answer counts only by the authority's own signature
(`trust_chain`). Without a believable answer a key stays unknown: its Events are neither applied nor given up, they are
asked for again.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from msgspec import Struct
from nats.aio.client import Client as BrokerClient
from nats.aio.msg import Msg

from contracts import subjects
from contracts.documents.common import Actor
from contracts.identifiers import is_identifier
from contracts.key_registry import RegistryEvidence
from contracts.payloads.requests import keys_asked_max
from contracts.verification import RegisteredKey
from projections.proof import ResolvedKey
from services.agent.read_history import AnsweredKeys, Unavailable
from services.agent.send_command import Refusal, ReplyFault
from services.feed.trust_chain import NotBelieved, TrustChain, Wanting
from services.process.logs import get_log

key_age_seconds_max: Final = 60.0
"""Seconds for which a key counts as it was heard of, in case the announcement of a change is lost."""
absence_seconds_max: Final = 2.0
"""Seconds for which a key counts as not registered."""
keys_remembered_max: Final = 1_024
"""Keys and absences that are remembered; beyond it the oldest are forgotten."""
ask_seconds_max: Final = 5.0
"""Seconds for which Events wait for an answer about keys."""
rounds_max: Final = 100
"""Questions until one answer can be judged: each may name an earlier key of the authority to ask for."""
first_backoff_seconds: Final = 0.25
backoff_seconds_max: Final = 10.0
"""Seconds without a question after one that failed: doubled from the first to the longest, with full jitter."""

_log = get_log(__name__)


class KeyReader(Protocol):
    """Who asks the authority about keys; `HistoryReader` is one."""

    async def keys(self, key_ids: tuple[str, ...]) -> AnsweredKeys | Refusal:
        """An answer that is not verified. Raises Unavailable and ReplyFault."""
        ...


class _Remembered(Struct, frozen=True):
    key: RegisteredKey | None
    until: float


class TrustedKeys:
    """`projections.proof.KeyTrust` of one Organization, from trust anchors on.

    Everything but `known` belongs to one event loop; that may be called from any thread.
    """

    def __init__(
        self, reader: KeyReader, anchors: RegistryEvidence, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` gives monotonic seconds."""
        self._reader = reader
        self._chain = TrustChain(anchors)
        self._clock = clock
        self._remembered: dict[str, _Remembered] = {}
        """Replaced as a whole, never changed: another thread may be reading it."""
        self._asking = asyncio.Lock()
        self._version = 0
        self._failures = 0
        self._quiet_until = 0.0

    async def follow(self, connection: BrokerClient) -> None:
        """Forget what is remembered whenever the registry is announced to have changed."""

        async def on_keys_changed(_message: Msg) -> None:
            self.forget()

        await connection.subscribe(subjects.keys_changed(self._chain.organization_id), cb=on_keys_changed)

    def accepts(self, principal: Actor) -> bool:
        """Whether Events accepted by this Principal are the Organization's: it must hold one of the pinned keys."""
        return self._chain.accepts(principal)

    def known(self, key_id: str) -> ResolvedKey | None:
        """What is known now of this key. What is no identifier is no key."""
        remembered = self._remembered.get(key_id)
        if remembered is not None and remembered.until > self._clock():
            return ResolvedKey(key_id, remembered.key)
        return None if is_identifier(key_id) else ResolvedKey(key_id, None)

    def forget(self) -> None:
        """The registry changed: nothing that is remembered counts any more. What is trusted stays trusted."""
        self._version += 1
        self._remembered = {}

    async def learn(self, key_ids: Iterable[str]) -> None:
        """Ask for those of these keys that are not known; nothing is asked for a while after a failure."""
        async with self._asking:
            wanted = [key_id for key_id in dict.fromkeys(key_ids) if self.known(key_id) is None]
            if not wanted or self._clock() < self._quiet_until:
                return
            try:
                async with asyncio.timeout(ask_seconds_max):
                    await self._ask(wanted)
            except (Unavailable, ReplyFault, NotBelieved, TimeoutError) as fault:
                self._failures += 1
                ceiling = min(backoff_seconds_max, first_backoff_seconds * 2 ** min(self._failures - 1, 16))
                self._quiet_until = self._clock() + random.uniform(0, ceiling)  # noqa: S311 - jitter, not a secret
                reason = str(fault) or f"no answer within {ask_seconds_max:g} s"
                _log.warning("keys_not_learned", reason=reason, failures=self._failures, asked=len(wanted))
            else:
                self._failures = 0

    async def _ask(self, wanted: list[str]) -> None:
        """Ask until an answer can be judged, and remember it. Raises Unavailable, ReplyFault, NotBelieved."""
        # The trusted keys are asked for each time: whether they have ended decides whose answers count.
        asked = dict.fromkeys((*self._chain.key_ids, *wanted[: keys_asked_max - len(self._chain.key_ids)]))
        for _ in range(rounds_max):
            version = self._version
            answered = await self._reader.keys(tuple(asked))
            if isinstance(answered, Refusal):
                raise NotBelieved(f"{answered.code.value}: {answered.rejection.message}")
            verdict = self._chain.judge(answered.document, answered.action_id)
            if isinstance(verdict, Wanting):
                self._extend(asked, verdict)
            elif version == self._version:
                return self._remember(asked, verdict)
        raise NotBelieved(f"no answer could be judged within {rounds_max} questions")

    def _extend(self, asked: dict[str, None], wanting: Wanting) -> None:
        """Ask for more. Raises NotBelieved when that cannot help."""
        more = wanting.key_ids - asked.keys()
        if not more or len(asked) + len(more) > keys_asked_max:
            raise NotBelieved(
                "no pinned key of the authority leads to the one that signed it; if that is right, renew the trust "
                f"anchors (signed by one of {', '.join(sorted(wanting.key_ids))})"
            )
        asked |= dict.fromkeys(more)

    def _remember(self, asked: Iterable[str], found: dict[str, RegisteredKey]) -> None:
        now = self._clock()
        remembered = dict(self._remembered)
        for key_id in asked:
            key = found.get(key_id)
            remembered.pop(key_id, None)
            remembered[key_id] = _Remembered(key, now + (key_age_seconds_max if key else absence_seconds_max))
        self._remembered = dict(list(remembered.items())[-keys_remembered_max:])

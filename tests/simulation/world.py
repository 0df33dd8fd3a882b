"""One run: a plan carried out on the real consumers and relays, judged by the checker, until all have caught up."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from contracts import subjects
from contracts.delivery import read_stub
from contracts.identifiers import ShardId
from contracts.payloads.requests import GroupHead
from tests.simulation.broker import Broker, Stream
from tests.simulation.events import Fact, incarnation_name, large_text, organization
from tests.simulation.network import Weather, calm
from tests.simulation.plan import Plan, Settings, Step
from tests.simulation.process import ConsumerProcess, crash_points
from tests.simulation.relays import Relays
from tests.simulation.truth import Truth
from tests.simulation.virtual_loop import VirtualLoop

calm_seconds_max: Final = 150.0
"""Virtual seconds after the last fault within which every consumer must have caught up."""
quiet_seconds: Final = 45.0
"""Virtual seconds that a world which has caught up is watched on: longer than any redelivery or comparison of heads."""
quiet_pages_max: Final = 4
"""Pages that a consumer may ask of each Group in that time."""
restores_max: Final = 3

type Note = tuple[float, str, Any]


class World:
    """Everything that lives in one run."""

    def __init__(self, plan: Plan, loop: VirtualLoop, folder: str) -> None:
        self.seed = plan.seed
        self.settings: Settings = plan.settings
        self.loop = loop
        self.folder = folder
        self.weather: Weather = plan.weather
        self.relay_weather: Weather = plan.relay_weather
        self.truth = Truth(plan.settings.shards, plan.settings.groups)
        self.broker = Broker(loop, refused_above=large_text)
        self.relays = Relays(self)
        self.consumers: list[ConsumerProcess] = []
        self.notes: list[Note] = []
        self.violation: str | None = None
        self.failed: asyncio.Future[None] = loop.create_future()
        self.is_over = False
        self.by_raw: dict[bytes, Fact] = {}
        self._history_back_at = 0.0
        self._broker_copies: list[dict[str, Stream]] = []
        self._restores = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._people(random.Random(f"{plan.seed}/people"))

    def _people(self, rng: random.Random) -> None:
        for number in range(1, self.settings.projectors + 1):
            self.consumers.append(ConsumerProcess(self, f"projector{number}", None, {}))
        for number in range(1, self.settings.workers + 1):
            size = rng.randint(1, len(self.truth.group_ids))
            groups = tuple(sorted(rng.sample(self.truth.group_ids, size)))
            visible_after = {group_id: rng.randint(1, 5) for group_id in groups if rng.random() < 0.3}
            for group_id, hidden in visible_after.items():
                # Whoever joins late begins after the head of that time.
                self.truth.kept_min[group_id] = max(self.truth.kept_min[group_id], hidden)
                self.accept(group_id, max(0, hidden - len(self.truth.groups[group_id])))
            self.consumers.append(ConsumerProcess(self, f"worker{number}", groups, visible_after))

    # --- what the parts of the world ask and say ---------------------------------------------------------------

    def note(self, what: str, details: Any = None) -> None:
        """One line of the trace."""
        self.notes.append((self.loop.time(), what, details))

    def violate(self, what: str) -> None:
        """The first thing that is wrong ends the run."""
        if self.violation is None:
            self.violation = what
            self.note(f"WRONG: {what}")
            if not self.failed.done():
                self.failed.set_result(None)

    def is_history_away(self) -> bool:
        return self.loop.time() < self._history_back_at

    def fact_of(self, data: bytes, headers: dict[str, str]) -> Fact | None:
        """The Event of a message or pointer as the log had it; None for anything else."""
        found = self.by_raw.get(data)
        if found is not None:
            return found
        try:
            stub = read_stub(headers, data)
        except (ValueError, msgspec.ValidationError):
            return None
        return None if stub is None else self.truth.facts.get(stub.event_id)

    def accept(self, group_id: str, count: int) -> None:
        self.truth.accept(group_id, count)
        for fact in self.truth.groups[group_id][len(self.truth.groups[group_id]) - count :]:
            self.by_raw[fact.raw] = fact

    # --- the run -----------------------------------------------------------------------------------------------

    async def live(self, steps: Sequence[Step]) -> None:
        """Carry out the steps, then let the world calm down and catch up."""
        supervising = self.spawn(self.relays.supervise())
        checking = self.spawn(self._check_streams())
        self.relays.start()
        for consumer in self.consumers:
            await consumer.start()
        for step in steps:
            await asyncio.sleep(step.wait)
            rng = random.Random(step.draw)
            self.note(f"step {step.number}: {step.kind}")
            getattr(self, f"_{step.kind}")(rng)
        await self._calm_down()
        supervising.cancel()
        checking.cancel()

    async def _calm_down(self) -> None:
        self.note("calm")
        self.weather = self.relay_weather = calm
        self._history_back_at = 0.0
        while any(consumer.dead for consumer in self.consumers):
            await asyncio.sleep(1)
        for consumer in self.consumers:
            consumer.armed = None
            consumer.hidden.clear()
        deadline = self.loop.time() + calm_seconds_max
        while self._behind() and self.loop.time() < deadline:
            await asyncio.sleep(1)
        if not self._behind():
            await self._stay_quiet()
        for consumer in self.consumers:
            await consumer.check_at_end()
        await self.consumers[0].check_rebuild()
        self._check_broker()

    async def _stay_quiet(self) -> None:
        """Nothing happens any more, so hardly anything is asked: each comparison of heads may look at a Group once."""
        await asyncio.sleep(quiet_seconds / 3)
        asked = [consumer.history.pages for consumer in self.consumers]
        await asyncio.sleep(2 * quiet_seconds / 3)
        for consumer, before in zip(self.consumers, asked, strict=True):
            pages = consumer.history.pages - before
            if pages > quiet_pages_max * len(consumer.expected_groups):
                self.violate(f"{consumer.name}: asked for {pages} pages although nothing happens any more")

    def _behind(self) -> bool:
        return any(consumer.checker.missing(consumer.expected_groups) for consumer in self.consumers)

    def spawn(self, coroutine: Any) -> "asyncio.Task[None]":
        """A task of the simulation itself: its failure ends the run."""
        task: asyncio.Task[None] = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._on_end)
        return task

    def _on_end(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.violate(f"the simulation itself failed: {fault!r}")

    async def end(self) -> None:
        """Nothing is left running."""
        self.is_over = True
        for consumer in self.consumers:
            consumer.die("the end")
            await consumer.ended()
        await self.relays.ended()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- OBX-1, OBX-2: what stands in the streams --------------------------------------------------------------

    async def _check_streams(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self._check_published()

    def _check_published(self) -> None:
        """Whatever was stored stands at the position of its Event in the log."""
        published, self.broker.published = self.broker.published, []
        for name, position in published:
            shard, incarnation = name.split("_")[2:]
            stream = self.broker.streams.get(name)
            log = self.truth.logs[ShardId(int(shard))]
            if incarnation != self.truth.lineage[-1] or stream is None or position not in stream.messages:
                continue
            stored = stream.messages[position]
            fact = self.fact_of(stored.data, stored.headers or {})
            if fact is None or position > len(log) or log[position - 1] != fact:
                self.violate(f"shard {shard}: the stream has another Event at {position} than the log")

    def _check_broker(self) -> None:
        self._check_published()
        for shard, log in self.truth.logs.items():
            stream = self.broker.streams.get(subjects.stream_name(organization, shard, self.truth.lineage[-1]))
            if stream is None or stream.last != len(log):
                ends = "nowhere" if stream is None else stream.last
                self.violate(f"shard {shard}: the stream ends at {ends}, the log at {len(log)}")
                continue
            for consumer in stream.consumers.values():
                if consumer.waiting:
                    self.violate(f"{consumer.name}: never acknowledged {sorted(consumer.waiting)} of shard {shard}")

    # --- steps -------------------------------------------------------------------------------------------------

    def _accept(self, rng: random.Random) -> None:
        for _ in range(rng.randint(1, 3)):
            self.accept(rng.choice(self.truth.group_ids), rng.randint(1, 4))
        self.relays.wake()

    def _announce(self, rng: random.Random) -> None:
        for group_id in self.truth.group_ids:
            history = self.truth.groups[group_id]
            if history and rng.random() < 0.6:
                last = history[-1]
                head = GroupHead(
                    incarnation=last.incarnation,
                    group_id=group_id,
                    sequence=last.sequence,
                    chain_hash=last.chain.hex(),
                )
                subject = subjects.head(organization, self.truth.shard_of[group_id], group_id)
                self.broker.announce(subject, msgspec.json.encode(head))

    def _refresh(self, rng: random.Random) -> None:
        rng.choice(self.consumers).refresh()

    def _crash(self, rng: random.Random) -> None:
        consumer, point = rng.choice(self.consumers), rng.choice(crash_points)
        if not consumer.dead:
            consumer.armed = point
            if point == "now":
                consumer.reach("now")

    def _copy_consumer(self, rng: random.Random) -> None:
        rng.choice(self.consumers).copy_file()

    def _older_consumer(self, rng: random.Random) -> None:
        consumer = rng.choice(self.consumers)
        if consumer.copies:
            copy = rng.choice(consumer.copies)
            consumer.set_back("its store is set back", copy)

    def _lose_consumer(self, rng: random.Random) -> None:
        rng.choice(self.consumers).set_back("its store is lost", None)

    def _cut_consumer(self, rng: random.Random) -> None:
        consumer = rng.choice(self.consumers)
        if not consumer.dead:
            consumer.cut(rng.uniform(0.05, 4.0))

    def _cut_relay(self, rng: random.Random) -> None:
        self.relays.cut(rng.uniform(0.05, 3.0))

    def _history_away(self, rng: random.Random) -> None:
        self._history_back_at = self.loop.time() + rng.uniform(0.5, 15.0)

    def _hide_group(self, rng: random.Random) -> None:
        """A Worker's Membership in one of its Groups ends, and comes back."""
        consumer = rng.choice(self.consumers)
        if consumer.groups is not None:
            consumer.hidden[rng.choice(consumer.groups)] = self.loop.time() + rng.uniform(1.0, 40.0)

    def _stream(self, rng: random.Random) -> Stream | None:
        streams = [each for each in self.broker.streams.values() if each.messages]
        return rng.choice(streams) if streams else None

    def _delete_message(self, rng: random.Random) -> None:
        stream = self._stream(rng)
        if stream is not None:
            for position in rng.sample(sorted(stream.messages), min(len(stream.messages), rng.randint(1, 3))):
                del stream.messages[position]

    def _delete_consumer(self, rng: random.Random) -> None:
        stream = self._stream(rng)
        if stream is not None and stream.consumers:
            self.broker.drop_consumer(stream, stream.consumers[rng.choice(sorted(stream.consumers))])

    def _copy_broker(self, rng: random.Random) -> None:
        del rng
        self._broker_copies.append(self.broker.copy_store())

    def _older_broker(self, rng: random.Random) -> None:
        if self._broker_copies:
            self.broker.become(rng.choice(self._broker_copies), rng.uniform(0.05, 3.0))

    def _wipe_broker(self, rng: random.Random) -> None:
        self.broker.become({}, rng.uniform(0.05, 3.0))

    def _relay_takeover(self, rng: random.Random) -> None:
        self.relays.take_over(rng.choice(self.truth.shards), rng.uniform(0.0, 20.0))

    def _restore(self, rng: random.Random) -> None:
        """The authority is restored to an earlier point and opens a new incarnation; nobody is told of it (PRJ-3)."""
        if not self._cut(rng, whole_groups=True):
            return
        self.truth.lineage.append(incarnation_name(self.seed * 100 + len(self.truth.lineage) + 1))
        self._move_on(rng)

    def _silent_restore(self, rng: random.Random) -> None:
        """As `restore`, but nobody notices: the same incarnation goes on, with a broker that lost everything too."""
        if not self._cut(rng, whole_groups=False):
            return
        self.truth.silently_cut.update(self.truth.shards)
        self.relays.kill_all()
        self._broker_copies.clear()
        self.broker.become({}, rng.uniform(0.05, 2.0))
        self.relays.start()
        self._move_on(rng)

    def _cut(self, rng: random.Random, *, whole_groups: bool) -> bool:
        if self._restores >= restores_max:
            return False
        self._restores += 1
        self.truth.give_up(self.loop.time())
        depths = (0, 2, 5, 12, 40) if whole_groups else (0, 2, 5, 12)
        gone = {
            shard: self.truth.cut(shard, rng.choice(depths), whole_groups=whole_groups) for shard in self.truth.shards
        }
        self.truth.branch = f"of history {self._restores + 1}"
        self.note("history cut", gone)
        return True

    def _move_on(self, rng: random.Random) -> None:
        """The restored authority accepts other Events at once, fewer or more than were lost."""
        for group_id in self.truth.group_ids:
            if rng.random() < 0.6:
                self.accept(group_id, rng.randint(1, 9))
        self.relays.wake()

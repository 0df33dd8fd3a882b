"""A history source over built Events: it answers like the replay service, and can be told to fail, fork or hide."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Raw

from contracts.bounds import replay_page_bytes_max
from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence, ShardId, ShardPosition
from contracts.payloads.requests import GroupHead, GroupPage, ReplayedEvent, ShardHead, ShardPage
from projections.arrival import read_arrival
from projections.history import GroupNotShown, HistoryRefused, HistoryUnavailable
from tests.builders import BuiltEvent, test_incarnation

restored_incarnation = "f" * 32
"""The incarnation after a restore."""


class HistoryDouble:
    """Histories by Group; `log` is the shard in order of position. `available` off means an outage.

    It answers a service when it `shows_all`; `current` is the incarnation that it says to be in.
    """

    def __init__(self, *histories: Iterable[BuiltEvent]) -> None:
        self.groups: dict[str, list[tuple[bytes, Cursor]]] = {}
        self.log: list[bytes] = []
        self.available = True
        self.shows_all = True
        self.current = test_incarnation
        self.visible_after: dict[str, int] = {}
        self.pages_asked: list[tuple[str, int]] = []
        self.heads_asked = 0
        for history in histories:
            self.add(history)

    def add(self, history: Iterable[BuiltEvent]) -> None:
        """Append Events to their Groups and to the shard."""
        for built in history:
            self._append(built.raw)

    def lose(self, group_id: str) -> None:
        """The authority was restored to a moment before the Group, and is in another incarnation."""
        del self.groups[group_id]
        self.current = restored_incarnation

    def replace(self, history: Sequence[BuiltEvent]) -> None:
        """The authority was restored: the Group has this history now."""
        self.groups.pop(history[0].mark.group_id, None)
        self.add(history)

    def _append(self, raw: bytes) -> None:
        mark = read_arrival(raw).mark
        place = Cursor(mark.incarnation, mark.group_id, mark.sequence, mark.chain_hash)
        self.groups.setdefault(mark.group_id, []).append((raw, place))
        self.log.append(raw)

    def save(self, path: Path) -> None:
        """Write the log for another process."""
        path.write_bytes(b"\n".join(self.log))

    @classmethod
    def load(cls, path: Path) -> "HistoryDouble":
        """Read what `save` wrote."""
        source = cls()
        for raw in path.read_bytes().split(b"\n"):
            source._append(raw)
        return source

    async def page(self, group_id: str, after: GroupSequence, limit: int) -> GroupPage:
        """As `HistorySource.page`."""
        self._check()
        self.pages_asked.append((group_id, after))
        hidden = self.visible_after.get(group_id, 0)
        if group_id not in self.groups:
            raise GroupNotShown(f"no Group {group_id} that this Principal may see")
        if after < hidden:
            raise HistoryRefused(f"{group_id} after {after} is not visible (visible after {hidden})")
        events = self.groups[group_id]
        chosen: list[ReplayedEvent] = []
        size = 0
        for raw, place in events[after : after + limit]:
            size += len(raw)
            if chosen and size > replay_page_bytes_max:
                break
            chosen.append(ReplayedEvent(event=Raw(raw), chain_hash=place.chain_hash.hex()))
        reached = after + len(chosen)
        following = reached if reached < len(events) else None
        return GroupPage(events=tuple(chosen), next=following, head=_head(events[-1][1]))

    async def heads(self, group_ids: Sequence[str]) -> Sequence[GroupHead]:
        """As `HistorySource.heads`."""
        self._check()
        self.heads_asked += 1
        return [_head(self.groups[group_id][-1][1]) for group_id in group_ids if group_id in self.groups]

    async def incarnation(self) -> str:
        """As `HistorySource.incarnation`."""
        self._check()
        return self.current

    async def shard_page(self, shard_id: ShardId, after: ShardPosition) -> ShardPage:
        """As `ShardHistory.shard_page`."""
        self._check()
        events = [
            ReplayedEvent(event=Raw(raw), chain_hash=read_arrival(raw).mark.chain_hash.hex(), position=position)
            for position, raw in enumerate(self.log[after : after + 300], after + 1)
        ]
        following = after + len(events) if after + len(events) < len(self.log) else None
        head = ShardHead(incarnation=self.current, shard_id=shard_id, position=len(self.log))
        return ShardPage(events=tuple(events), next=following, head=head)

    def _check(self) -> None:
        if not self.available:
            raise HistoryUnavailable("the source is away")


def _head(place: Cursor) -> GroupHead:
    return GroupHead(
        incarnation=place.incarnation,
        group_id=place.group_id,
        sequence=place.sequence,
        chain_hash=place.chain_hash.hex(),
    )

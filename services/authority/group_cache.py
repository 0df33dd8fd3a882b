"""Group states kept between transactions. An entry is a guess until its head is compared under the shard lock."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from contracts.chain import ChainHash
from contracts.group_state import GroupState
from contracts.identifiers import GroupSequence

cached_entities_max: Final = 200_000
"""Entities held over all Groups; beyond it the Groups used longest ago are dropped."""


class GroupCache:
    """Least recently used Group states, bounded by the entities they hold. Used by one event loop only."""

    def __init__(self, entities_max: int = cached_entities_max) -> None:
        """`entities_max` bounds the entities of all Groups together."""
        self._entities_max = entities_max
        self._states: OrderedDict[str, GroupState] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._entities = 0

    def valid(self, group_id: str, sequence: GroupSequence, chain_hash: ChainHash) -> GroupState | None:
        """The state of a Group if it stands exactly at this head."""
        state = self._states.get(group_id)
        if state is None or state.sequence != sequence or state.chain_hash != chain_hash:
            return None
        self._states.move_to_end(group_id)
        return state

    def keep(self, states: Iterable[GroupState]) -> None:
        """Keep states whose transaction is known to be committed."""
        for state in states:
            self._entities += state.size - self._sizes.get(state.group_id, 0)
            self._sizes[state.group_id] = state.size
            self._states[state.group_id] = state
            self._states.move_to_end(state.group_id)
        while self._entities > self._entities_max and len(self._states) > 1:
            dropped, _ = self._states.popitem(last=False)
            self._entities -= self._sizes.pop(dropped)

    def drop(self, group_ids: Iterable[str]) -> None:
        """Forget Groups whose transaction failed or has an unknown outcome: their states were changed in memory."""
        for group_id in group_ids:
            if self._states.pop(group_id, None) is not None:
                self._entities -= self._sizes.pop(group_id)

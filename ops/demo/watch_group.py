"""One Group as a person's tool sees it: its Events read from the authority, folded into its state."""

import msgspec

from contracts.chain import ChainHash
from contracts.event import Event
from contracts.group_state import GroupState, evolve, facts_of
from contracts.identifiers import GroupSequence
from services.agent.connect import Client
from services.agent.read_history import Unavailable
from services.agent.send_command import Refusal


class GroupView:
    """State of a Group as of the last `refresh`, with all its Events."""

    def __init__(self, client: Client, group_id: str) -> None:
        """`client` belongs to a member of the Group."""
        self._client = client
        self.group_id = group_id
        self.state = GroupState.empty(client.organization_id, group_id)
        self.events: list[Event] = []

    async def refresh(self) -> list[Event]:
        """Read up to the head; the new Events. Raises Unavailable in an outage or when the Group is not shown."""
        began = len(self.events)
        after: int | None = self.state.sequence
        while after is not None:
            page = await self._client.history.group_page(self.group_id, after)
            if isinstance(page, Refusal):
                raise Unavailable(f"{self.group_id}: {page.code.value}: {page.rejection.message}")
            for replayed in page.events:
                event = msgspec.json.decode(replayed.event, type=Event)
                facts = facts_of(event)
                self.state.apply(evolve(self.state, facts))
                self.state.move_to(GroupSequence(facts.sequence), ChainHash(bytes.fromhex(replayed.chain_hash)))
                self.events.append(event)
            after = page.next
        return self.events[began:]

"""Which kinds of Events change a state and to which one: the tables of the contracts, read by kind."""

from collections.abc import Mapping
from enum import Enum

from contracts.transitions import mission_transitions, work_item_transitions


def _targets[S: Enum](table: Mapping[str, Mapping[S | None, S]]) -> dict[str, str]:
    """Event kind → the state after it, for the kinds that change the state and always to the same one."""
    targets: dict[str, str] = {}
    for kind, row in table.items():
        after = {state.value for state in row.values()}
        if len(after) == 1 and any(before is not state for before, state in row.items()):
            targets[kind] = str(after.pop())
    return targets


mission_state_after = _targets(mission_transitions)
"""Event kind → state of its Mission."""
work_item_state_after = _targets(work_item_transitions)
"""Event kind → state of its WorkItem."""

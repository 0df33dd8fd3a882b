"""The usage report as a consumer: budgets in six dimensions and counts, per Mission.

An Event tells a budget in two places: `mission.created` what the Mission may spend, `work.authorized` what a Work
Contract reserves of it (BUD-1). A WorkItem that failed or was cancelled gives its reservation back, as it does in the
authority's own state. What cannot be known from Events yet: what was really spent. No checkpoint, progress or
submission carries a usage, so that a reservation is all that can be charged to a Mission; and no Event changes a budget
or charges a parent Mission with its child's.

Money is kept as decimal text, digit for digit the number that was signed, with its currency; the other dimensions are
integers. Nothing is added here: a Mission's rows are its own, and sums are made when they are read (RULE-24).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from contracts.event import history_resumed, late_result_recorded
from projections.arrival import LoggedEvent
from projections.consumer import Statement, Value, default_owner, text
from projections.state_changes import mission_state_after, work_item_state_after
from services.process.statements import load


class _Budget(Struct, frozen=True, rename="camel"):
    currency: str | None = None
    financial_limit: Decimal | None = None
    model_token_limit: int | None = None
    tool_call_limit: int | None = None
    compute_seconds_limit: int | None = None
    wall_clock_seconds_limit: int | None = None
    external_side_effect_limit: int | None = None

    def columns(self) -> dict[str, Value]:
        """The columns of a budget; a dimension that it does not name is NULL."""
        money = self.financial_limit
        return {
            "currency": None if money is None else self.currency,
            "money": None if money is None else format(money, "f"),
            "model_tokens": self.model_token_limit,
            "tool_calls": self.tool_call_limit,
            "compute_seconds": self.compute_seconds_limit,
            "wall_clock_seconds": self.wall_clock_seconds_limit,
            "external_side_effects": self.external_side_effect_limit,
        }


class _Mission(Struct, frozen=True, rename="camel"):
    mission_id: str
    budget: _Budget


class _Created(Struct, frozen=True):
    mission: _Mission
    title: str


class _Contract(Struct, frozen=True):
    budget: _Budget


class _WorkItem(Struct, frozen=True, rename="camel"):
    work_item_id: str
    contract: _Contract


class _Authorized(Struct, frozen=True, rename="camel"):
    work_item: _WorkItem


class _WorkItemId(Struct, frozen=True, rename="camel"):
    work_item_id: str


_created: Final = msgspec.json.Decoder(_Created).decode
_authorized: Final = msgspec.json.Decoder(_Authorized).decode
_work_item_id: Final = msgspec.json.Decoder(_WorkItemId).decode


class UsageReport:
    """A row per Mission and per WorkItem."""

    name: Final = "usage_report"
    owner: Final = default_owner
    version: Final = 1
    variant: Final = ""
    intent_tables: Final[frozenset[str]] = frozenset()
    tables: Final[Mapping[str, str]] = MappingProxyType(
        {
            "usage_report_mission": "create_usage_report_mission",
            "usage_report_work_item": "create_usage_report_work_item",
        }
    )
    statements: Final[Mapping[str, str]] = load(__package__)

    def __init__(self) -> None:
        """The kinds are those that change a row."""
        self.kinds: Final = frozenset({*_counted, *_changing})

    def evolve(self, event: LoggedEvent) -> Iterable[Statement]:
        """What an Event changes in budgets, states and counts."""
        yield from _counts(event)
        if (changing := _changing.get(event.kind)) is not None:
            yield from changing(event)

    def intents(self, event: LoggedEvent) -> Iterable[Statement]:
        """None: the report is only read."""
        del event
        return ()


def _counts(event: LoggedEvent) -> Iterator[Statement]:
    if (counted := _counted.get(event.kind)) is not None:
        one: dict[str, Value] = {name: int(name == counted) for name in _counted.values()}
        yield Statement("count_event", one | {"group_id": event.group_id})


def _mission_created(event: LoggedEvent) -> Iterator[Statement]:
    created = _created(event.payload)
    mission: dict[str, Value] = {
        "group_id": event.group_id,
        "mission_id": created.mission.mission_id,
        "title": text(created.title),
        "state": mission_state_after[event.kind],
    }
    yield Statement("open_mission", mission | created.mission.budget.columns())


def _mission_moved(event: LoggedEvent) -> Iterator[Statement]:
    yield Statement("put_mission_state", {"group_id": event.group_id, "state": mission_state_after[event.kind]})


def _authorized_work(event: LoggedEvent) -> Iterator[Statement]:
    item = _authorized(event.payload).work_item
    place: dict[str, Value] = {
        "group_id": event.group_id,
        "work_item_id": item.work_item_id,
        "state": work_item_state_after[event.kind],
    }
    yield Statement("open_work_item", place | item.contract.budget.columns())


def _work_item_moved(event: LoggedEvent) -> Iterator[Statement]:
    named: str | UnsetType = event.work_item_id
    work_item_id = _work_item_id(event.payload).work_item_id if named is UNSET else named
    state = work_item_state_after[event.kind]
    yield Statement("put_work_item_state", {"group_id": event.group_id, "work_item_id": work_item_id, "state": state})


def _resumed(event: LoggedEvent) -> Iterator[Statement]:
    """RULE-17: after a restore nothing runs or waits for an approval."""
    yield Statement("resume_mission", {"group_id": event.group_id})
    yield Statement("resume_work_items", {"group_id": event.group_id})


_counted: Final[Mapping[str, str]] = MappingProxyType(
    {
        "message.posted": "messages",
        "work.checkpointed": "checkpoints",
        late_result_recorded: "late_results",
    }
)
"""Event kind → the column that counts its Events."""
_changing: Final[Mapping[str, Callable[[LoggedEvent], Iterator[Statement]]]] = MappingProxyType(
    {
        **dict.fromkeys(mission_state_after, _mission_moved),
        **dict.fromkeys(work_item_state_after, _work_item_moved),
        "mission.created": _mission_created,
        "work.authorized": _authorized_work,
        history_resumed: _resumed,
    }
)
"""Event kind → what it changes beside the counts."""

"""The exchanging transaction (PRJ-4, RULE-22): rebuilt Groups take the place of the live ones, all or none.

Beside the live version (blue) a rebuild fills another store (green), which nobody reads. The exchange is one
transaction of the live store:

    fence: a new edition, so that every writer of the present one is refused from then on
    check: each Group's green Cursor is at or beyond the live one, on the history that the authority has now;
           at it, where the consumer has intents: what only green has applied would bring none, ever;
           and green has passed over the same Events that live has to (DUR-5)
    copy:  rows, Cursor, remembered Events and quarantine of each Group; a fork that was found is recorded with it
    commit

Live stays what is the live version's own: intents and their tables, known heads, positions, forks, decisions, counters,
tables of others in the same file. Files are not renamed: a live process and its readers keep their handles, a Worker
its journal in the same file, and a snapshot begun before shows the old rows to its end.

What a crash leaves behind:

    while green is filled     live as it was; green up to its own Cursors: run again, it goes on from there
    before the commit         live as it was, its writer not fenced; green complete: run again, it is exchanged
    after the commit          live is the rebuilt version, its earlier writer fenced; green is a leftover: run again, it
                              is brought to the head, exchanged once more and removed
    while green is removed    the same; what is left of it is a store, or begins anew as one

The disk may be full at each of these points; the transaction that met it leaves nothing. A live writer waits while rows
are copied, is refused at its next transaction (`store.EditionReplaced`), and goes on from the Cursors that it finds:
they are at or beyond its own, so that delivery and history give it everything after them (`run_consumer.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from msgspec import Struct

from contracts.chain import ChainHash
from contracts.cursor import Cursor
from contracts.identifiers import GroupSequence
from projections.store import Fork
from projections.store.exchange import ExchangeTransaction


class Standing(Enum):
    """How a live Group stands to its rebuilt one."""

    ABSENT = "absent"
    """It is not there."""
    LEVEL = "level"
    BEHIND = "behind"
    """On the same history, with fewer Events."""
    FORKED = "forked"
    """On a history that the authority no longer has; this is put on record with the exchange."""
    AHEAD = "ahead"
    """It has more Events than the rebuilt one, which must be brought there first."""
    SKIPPING_OTHERS = "skipping others"
    """Other Events of it are passed over (DUR-5): the rebuilt one must be replayed with the same ones."""
    UNPROVEN = "unproven"
    """Whether it is on the same history has to be asked."""

    def may_be_exchanged(self, *, keeps_intents: bool = False) -> bool:
        """Whether nothing is lost by taking the rebuilt rows; `keeps_intents` is true of a consumer that has some."""
        catching_up = self in (Standing.ABSENT, Standing.BEHIND) and keeps_intents
        return self not in (Standing.AHEAD, Standing.SKIPPING_OTHERS, Standing.UNPROVEN) and not catching_up


class Judged(Struct, frozen=True):
    """What the authority said of live Cursors: those that are on its history, and the forks of others, by Group."""

    on_history: Mapping[str, Cursor]
    forks: Mapping[str, Fork]


class ExchangeRefused(Exception):
    """Nothing was exchanged: these Groups are not ready."""

    def __init__(self, standings: Mapping[str, Standing]) -> None:
        super().__init__(", ".join(f"{group_id}: live is {each.value}" for group_id, each in standings.items()))
        self.standings = standings


def exchange_groups(
    transaction: ExchangeTransaction, group_ids: Sequence[str], judged: Judged, edition: str, *, whole: bool
) -> dict[str, Standing]:
    """Exchange these Groups under the name of a new `edition`; of the `whole` version, all live Groups besides.

    Returns how each live Group stood. Raises ExchangeRefused.
    """
    transaction.replace_edition(edition)
    exchanged = set(group_ids)
    if whole:
        exchanged |= {cursor.group_id for cursor in transaction.cursors()}
    standings = {group_id: _standing(transaction, group_id, judged) for group_id in sorted(exchanged)}
    unready = {
        group_id: each
        for group_id, each in standings.items()
        if not each.may_be_exchanged(keeps_intents=transaction.keeps_intents)
    }
    if unready:
        raise ExchangeRefused(unready)
    for group_id, each in standings.items():
        transaction.take_group(group_id)
        if each is Standing.FORKED:
            _record(transaction, judged.forks[group_id])
    return standings


def _standing(transaction: ExchangeTransaction, group_id: str, judged: Judged) -> Standing:
    if transaction.skips_differ(group_id):
        return Standing.SKIPPING_OTHERS
    live, green = transaction.cursor(group_id), transaction.green_cursor(group_id)
    fork = judged.forks.get(group_id)
    if live is not None and fork is not None and fork.seen == live and (green is not None or fork.found.sequence == 0):
        return Standing.FORKED
    return compare_cursors(
        live,
        green,
        lambda sequence: transaction.green_remembered(group_id, sequence),
        proven=live is not None and judged.on_history.get(group_id) == live,
    )


def compare_cursors(
    live: Cursor | None,
    green: Cursor | None,
    remembered: Callable[[GroupSequence], ChainHash | None],
    *,
    proven: bool = False,
) -> Standing:
    """How a live Cursor stands to the rebuilt one; `remembered` gives hashes that the rebuilt version applied.

    A live Cursor that is not among them is UNPROVEN, unless the authority has `proven` that its history has it.
    """
    if live is None:
        return Standing.ABSENT
    if green is None or live.sequence > green.sequence:
        return Standing.AHEAD
    if live.sequence == green.sequence:
        return Standing.LEVEL if live.chain_hash == green.chain_hash else Standing.UNPROVEN
    return Standing.BEHIND if proven or remembered(live.sequence) == live.chain_hash else Standing.UNPROVEN


def _record(transaction: ExchangeTransaction, fork: Fork) -> None:
    """What the live version had seen stays on record (PRJ-3); what it knew of the lost history's head goes."""
    transaction.record_fork(fork)
    transaction.count("forks", 1)
    transaction.settle_head(fork.group_id, fork.found.sequence)
    transaction.keep_silent(fork.group_id, fork.found.sequence)

"""Let a store that is filled beside another one pass over the same Events (DUR-5).

What is rebuilt or replayed to compare must hold what the live version holds, so it is given the live version's skips.
A Group that was replayed with others than those begins anew.
"""

from collections.abc import Sequence

from projections.store import Decision, ProjectionStore, Transaction


async def copy_skips(store: ProjectionStore, skips: Sequence[Decision]) -> None:
    """Replace the skips of a store that is nobody's own by `skips`, in one transaction."""

    def copy(transaction: Transaction) -> None:
        before = {_place(skip): skip for skip in transaction.skips()}
        after = {_place(skip): skip for skip in skips}
        if before.keys() == after.keys():
            return
        for place in before.keys() ^ after.keys():
            skip = before.get(place) or after[place]
            cursor = transaction.cursor(skip.group_id)
            if cursor is not None and cursor.sequence >= skip.sequence:
                transaction.reset_group(skip.group_id)
            transaction.end_quarantine(skip.group_id)
        transaction.take_skips(skips)

    await store.transaction(copy)


def _place(skip: Decision) -> tuple[str, int, bytes]:
    return skip.group_id, skip.sequence, skip.chain_hash

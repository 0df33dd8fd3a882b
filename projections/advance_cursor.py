"""Move the Cursor of one Group: the only place where one moves."""

from contracts.cursor import Cursor
from projections.store import Transaction


def advance_cursor(transaction: Transaction, before: Cursor | None, after: Cursor) -> None:
    """Replace `before` by `after` inside the transaction that applied every Event between them.

    `before` is None for a Group's first Events. Compare and set: raises `store.CursorMoved` when the Cursor is not
    where this transaction read it, and ValueError when it would move backward or to another Group.
    """
    if before is not None and (after.group_id != before.group_id or after.sequence <= before.sequence):
        raise ValueError(f"a Cursor never moves backward: {before.group_id} from {before.sequence} to {after.sequence}")
    transaction.move_cursor(before, after)

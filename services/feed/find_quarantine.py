"""Quarantined Groups in the readiness of a process (DUR-5): told, but no reason to take the process for unfit."""

from projections.store import ProjectionStore
from services.process.health import READY, Finding, State


async def find_quarantine(store: ProjectionStore) -> Finding:
    """Ready, since every other Group flows; the detail says how many stand and where to look.

    Raises the store's own error when it does not answer.
    """
    standing = await store.read(lambda snapshot: snapshot.count_standing())
    if not standing:
        return READY
    groups = "1 Group is" if standing == 1 else f"{standing} Groups are"
    return Finding(State.READY, f"{groups} quarantined, see `weavehold quarantine list`; ask {store.consumer.owner}")

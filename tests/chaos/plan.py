"""What happens when, from a seed: the same seed gives the same acts in the same order, for as long as one asks."""

from collections.abc import Iterator
from enum import Enum
from random import Random
from typing import NamedTuple

from ops.embedded.supervisor import broker_unit, database_unit


class Kind(Enum):
    """What can happen."""

    KILL = "kill -9"
    CUT = "cut"
    """Connections are dropped, and refused for a while."""
    STALL = "stall"
    """Connections stay open and pass nothing on for a while."""
    SWAP = "set back"
    """The broker is killed and comes back with an older copy of its store."""
    WIPE = "wipe"
    """The broker is killed and comes back without its store."""


class Act(NamedTuple):
    """One act. It lasts `seconds`; the next one begins `pause` seconds after its beginning, over or not."""

    kind: Kind
    target: str
    seconds: float = 0.0
    pause: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind.value} {self.target} for {self.seconds:.1f} s, then {self.pause:.1f} s"


processes = ("authority-1", "relay-1", "projector", "worker-ada", database_unit, broker_unit)
links = (
    "authority-1/database", "authority-1/broker", "relay-1/database", "relay-1/broker",
    "projector/database", "projector/broker", "worker-ada/broker", "client/broker",
)  # fmt: skip
"""Who is connected to what; a Worker never knows the database."""
everything = (
    *((Kind.KILL, process) for process in processes),
    *((Kind.CUT, link) for link in links),
    *((Kind.STALL, link) for link in links),
    (Kind.SWAP, broker_unit),
    (Kind.WIPE, broker_unit),
)
cut_seconds_max = 4.0
stall_seconds_max = 16.0
"""Long enough for every timeout and heartbeat there is to strike."""
pause_seconds_min, pause_seconds_max = 0.2, 5.0


def acts(seed: int) -> Iterator[Act]:
    """Everything there is in random order, then in another one, without end."""
    chance = Random(seed)
    lengths = {Kind.CUT: cut_seconds_max, Kind.STALL: stall_seconds_max}
    while True:
        for kind, target in chance.sample(everything, len(everything)):
            seconds = chance.uniform(0, lengths.get(kind, 0.0))
            yield Act(kind, target, seconds, chance.uniform(pause_seconds_min, pause_seconds_max))

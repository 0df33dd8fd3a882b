"""Quarantine (DUR-5): what keeps a Group standing, and when it may be tried again. Pure.

An Event that a consumer cannot apply fails the same way each time, so nothing tries it again by itself but another
process, which may run a mended version. A fault that may pass (a store that is away, locked or full, no memory) is none
of the Event's: the consumer's run begins anew with backoff, and nobody is quarantined.

Whoever decides is bounded: in number per Event, and in rate per Group, so that neither a script nor a process that is
restarted in a loop tries for ever, or passes over whatever comes.
"""

import math
import traceback
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Final

from contracts.chain import ChainHash
from contracts.identifiers import GroupSequence
from contracts.timestamps import format_timestamp, parse_timestamp
from projections.store import Decision, Held, Quarantined, Verb

attempts_max: Final = 10
"""Attempts of one Event by one version of a consumer; after them somebody has to say that the cause is gone."""
releases_max: Final = 10
"""Times that the cause of one Event may be said to be gone while one version of a consumer fails at it."""
skips_max: Final = 1_000
"""Events that one projection passes over; one that cannot read more of them needs another version."""
pause_seconds: Final = 10.0
"""Seconds between a failure of a Group and its next attempt, and between two decisions about one Group."""
tried_seconds_max: Final = 300.0
"""Seconds after which a Group that was let go on, and of which nothing was heard, stands again."""
clock_seconds_max: Final = 3_600.0
"""Seconds that the clock of who decides may be behind."""
reason_characters_max: Final = 2_000
"""Characters of the reason that is kept of a failure."""
traced_calls_max: Final = 20
"""The innermost calls that are told of what a consumer raised."""

type Clock = Callable[[], str]
"""Gives the present moment as a timestamp."""
type Skipped = AbstractSet[tuple[GroupSequence, ChainHash]]
"""The Events of one Group that are passed over: sequence and the chain hash there, of whatever histories."""

nothing_skipped: Final[Skipped] = frozenset()


class DecisionRefused(Exception):
    """A decision that must not be made, or not now. The message names the thing and the remedy."""


def wall_clock() -> str:
    """The moment by this machine's clock."""
    return format_timestamp(datetime.now(UTC))


def may_pass(fault: Exception) -> bool:
    """Whether a consumer may well apply the same Event a moment later: only memory is none of the Event's fault."""
    return isinstance(fault, MemoryError)


def reason_of(fault: Exception) -> str:
    """What a fault says, bounded, as every store can keep it."""
    return _kept(str(fault) or type(fault).__name__)


def raised_reason_of(fault: Exception) -> str:
    """The same with the exception's type before its words: those of a KeyError alone tell nothing."""
    kind, said = type(fault).__name__, str(fault)
    return _kept(f"{kind}: {said}" if said else kind)


def trace_of(fault: Exception) -> str:
    """Through which calls a fault came, outermost first; without its words, which the reason has, bounded."""
    return "".join(traceback.format_tb(fault.__traceback__, limit=-traced_calls_max))


def skipped_by_group(skipped: Iterable[tuple[str, GroupSequence, ChainHash]]) -> dict[str, Skipped]:
    """The Events that are passed over, by Group."""
    found: dict[str, set[tuple[GroupSequence, ChainHash]]] = {}
    for group_id, sequence, chain_hash in skipped:
        found.setdefault(group_id, set()).add((sequence, chain_hash))
    return {**found}


def seconds_to_wait(found: Held, now: str, pause: float = pause_seconds) -> float:
    """Seconds until a Group may be tried again after its last failure, 0 when it may."""
    return _left(found.last_failed_at, now, pause)


def seconds_since(moment: str, now: str) -> float:
    """Seconds between two timestamps."""
    return (parse_timestamp(now) - parse_timestamp(moment)).total_seconds()


def is_exhausted(found: Held) -> bool:
    """Whether a Group is not tried again until somebody releases it."""
    return found.attempts >= attempts_max


def check_decision(verb: Verb, found: Quarantined, of_group: Sequence[Decision], skips: int, now: str) -> None:
    """Raises DecisionRefused for a decision on a Group that must not be made now.

    `of_group` are all decisions on record about this Group; `skips` counts those to skip, about whatever Group.
    """
    stop = found.stop
    name = f"{stop.group_id} at {stop.sequence}"
    if found.tried_at is not None:
        raise DecisionRefused(
            f"{name} is being tried since {found.tried_at}; look again with `weavehold quarantine show`, and see that "
            "the consumer's process runs"
        )
    wait = max((_left(each.at, now, pause_seconds) for each in of_group), default=0.0)
    if verb is not Verb.SKIP:
        wait = max(wait, seconds_to_wait(found.held, now))
    if wait > 0:
        raise DecisionRefused(
            f"{name} failed or was decided on a moment ago; once in {pause_seconds:g} s is enough: "
            f"run it again in {math.ceil(wait)} s"
        )
    match verb:
        case Verb.RETRY if is_exhausted(found.held):
            raise DecisionRefused(
                f"{name} failed {found.attempts} times in version {found.version}, at most {attempts_max}: run a "
                "version that reads it, then `weavehold quarantine release`; or pass it over with "
                "`weavehold quarantine skip`"
            )
        case Verb.RELEASE if _releases(found, of_group) >= releases_max:
            raise DecisionRefused(
                f"{name} was released {releases_max} times and failed again in version {found.version}: raise the "
                "consumer's version when it is mended; or pass the Event over with `weavehold quarantine skip`"
            )
        case Verb.SKIP if skips >= skips_max:
            raise DecisionRefused(
                f"{skips_max} Events are passed over already: mend the consumer instead of skipping {name}, raise its "
                "version, and remove its store to have them all replayed"
            )
        case _:
            pass


def _kept(said: str) -> str:
    return said[:reason_characters_max].encode(errors="replace").decode()


def _releases(found: Quarantined, of_group: Iterable[Decision]) -> int:
    same = (each for each in of_group if each.chain_hash == found.stop.chain_hash and each.version == found.version)
    return sum(each.verb is Verb.RELEASE for each in same)


def _left(since: str, now: str, pause: float) -> float:
    """Clocks of those who decide differ a little; a moment that lies far ahead was written by a wrong one."""
    elapsed = seconds_since(since, now)
    return 0.0 if elapsed < -clock_seconds_max else max(0.0, pause - elapsed)

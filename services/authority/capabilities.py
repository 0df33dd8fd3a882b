"""Whether an Agent Card offers what a Work Contract requires."""

from collections.abc import Iterable

from contracts.documents.agent_card import AgentCard
from contracts.documents.common import CapabilityRef


def capability_pins(card: AgentCard, required: Iterable[CapabilityRef]) -> tuple[CapabilityRef, ...] | CapabilityRef:
    """The card's version of each required capability, in their order, or the first required one that it lacks."""
    pins: list[CapabilityRef] = []
    for need in required:
        offered = [
            have.version for have in card.capabilities if have.id == need.id and serves(have.version, need.version)
        ]
        if not offered:
            return need
        pins.append(CapabilityRef(id=need.id, version=max(offered, key=_precedence)))
    return tuple(pins)


def serves(offered: str, required: str) -> bool:
    """Whether one version of a capability stands for another: same major version, not lower (semver 2.0.0).

    A pre-release counts as lower than its release; build metadata is ignored.
    """
    have, need = _precedence(offered), _precedence(required)
    return have[0] == need[0] and have >= need


def _precedence(version: str) -> tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]:
    """A key that sorts versions by semver precedence (semver 2.0.0, 11)."""
    core, _, prerelease = version.partition("+")[0].partition("-")
    major, minor, patch = map(int, core.split("."))
    parts = tuple(
        (not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in prerelease.split(".") if prerelease
    )
    return major, minor, patch, not prerelease, parts

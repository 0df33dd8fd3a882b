"""Capability matching: exact identifier, compatible version (semver 2.0.0)."""

import pytest
from msgspec import convert

from contracts.documents.common import CapabilityRef
from services.authority.capabilities import capability_pins, serves
from tests.builders import principal
from tests.mission_documents import capability, card, card_document


@pytest.mark.parametrize(
    ("offered", "required", "expected"),
    [
        ("2.1.0", "2.1.0", True),
        ("2.1.1", "2.1.0", True),
        ("2.10.0", "2.9.0", True),
        ("2.0.9", "2.1.0", False),
        ("3.0.0", "2.1.0", False),
        ("1.9.9", "2.0.0", False),
        ("2.1.0-rc.1", "2.1.0", False),
        ("2.1.0", "2.1.0-rc.1", True),
        ("2.1.0-rc.11", "2.1.0-rc.2", True),
        ("2.1.0-alpha", "2.1.0-1", True),
        ("2.1.0+build.7", "2.1.0", True),
        ("2.1.0-rc+x", "2.1.0-rc", True),
    ],
)
def test_version_compatibility(offered: str, required: str, expected: bool) -> None:
    """Same major version, not lower; a pre-release precedes its release; build metadata does not count."""
    assert serves(offered, required) is expected


def test_the_best_version_of_each_capability_is_pinned() -> None:
    """STM-W: pins follow the order of the contract; the first lacking capability is named."""
    (base,) = card_document(principal("x"))["capabilities"]
    several = card(principal("x"), capabilities=[base, base | {"version": "2.5.0"}, base | {"version": "3.0.0"}])
    need = convert(capability, CapabilityRef)
    assert capability_pins(several, [need]) == (CapabilityRef(id=need.id, version="2.5.0"),)
    other = CapabilityRef(id="acme.other", version="1.0.0")
    assert capability_pins(several, [need, other]) == other

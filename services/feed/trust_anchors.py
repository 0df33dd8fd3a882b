"""Trust anchors: the public keys of the authority that a process is told, so that no broker can tell it others.

The file is public data and holds, for each Organization, registry evidence with the first keys of the services that
accept Events. `weavehold init` writes it; later keys are learned from the registry itself, starting from these.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from contracts.canonical import ParseFault, canonical_bytes, parse_strict
from contracts.documents.common import ActorType, Document
from contracts.documents.reading import read
from contracts.key_registry import KeyRegistry, RegistryEvidence
from contracts.verification import RegistryFault
from services.process.settings import Environment, Settings, SettingsFault

anchors_file_name: Final = "anchors.json"
"""The file's name in the directory of keys."""
anchors_variable: Final = "WEAVEHOLD_TRUST_ANCHORS_FILE"
anchors_bytes_max: Final = 256 * 1024
"""Bytes of an anchors file."""
pinned_keys_max: Final = 16
"""Keys that may be pinned for one Organization."""
_remedy: Final = "Run weavehold init where the Organization's keys are, and name the anchors.json that it writes"


class AnchorsFault(Exception):
    """Anchors that cannot be used; the message says why."""


class TrustAnchors(Document, frozen=True, kw_only=True):
    """The anchors file."""

    anchors: tuple[RegistryEvidence, ...]

    def of(self, organization_id: str) -> RegistryEvidence | None:
        """The evidence for one Organization."""
        return next((each for each in self.anchors if each.organization_id == organization_id), None)

    def file(self) -> bytes:
        """The file's JSON."""
        return canonical_bytes(self)


def load_anchors(path: Path) -> TrustAnchors:
    """Read an anchors file. Raises AnchorsFault, and FileNotFoundError when there is none."""
    try:
        anchors = read(parse_strict(path.read_bytes(), anchors_bytes_max), TrustAnchors)
        for evidence in anchors.anchors:
            KeyRegistry(evidence)
    except FileNotFoundError:
        raise
    except (OSError, ParseFault, msgspec.ValidationError, RegistryFault) as fault:
        raise AnchorsFault(f"{path} cannot be used: {fault}") from fault
    for evidence in anchors.anchors:
        if len(evidence.bindings) > pinned_keys_max:
            raise AnchorsFault(f"{path} pins {len(evidence.bindings)} keys, more than {pinned_keys_max}")
        for binding in evidence.bindings:
            if binding.principal.type is not ActorType.SERVICE:
                raise AnchorsFault(f"{path} names {binding.principal.id}, which is no service and accepts no Events")
    return anchors


def read_anchors(settings: Settings, variables: Mapping[str, str] | None = None) -> RegistryEvidence:
    """The anchors of the settings' Organization. Raises SettingsFault: without them no Event can be believed."""
    path = Environment(variables).path(anchors_variable, settings.keys_directory / anchors_file_name)
    try:
        anchors = load_anchors(path)
    except FileNotFoundError as fault:
        raise SettingsFault(anchors_variable, f"is {path}, where no file is", _remedy) from fault
    except AnchorsFault as fault:
        raise SettingsFault(anchors_variable, f"is unusable: {fault}", _remedy) from fault
    evidence = anchors.of(settings.organization_id)
    if evidence is None:
        raise SettingsFault(anchors_variable, f"is {path}, which has no keys of {settings.organization_id}", _remedy)
    return evidence

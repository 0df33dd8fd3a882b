"""The manifests of the cryptography and the admission bundle: version, digest, artifacts, cases."""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from msgspec import ValidationError

from contracts.canonical import CanonicalizationFault, canonical_bytes
from contracts.documents.reading import read
from ops.command_fault import UsageFault
from ops.conformance.evaluation import Failure, failure
from ops.conformance.read_bundle import Artifact, Bundle, BundleFault, json_of, sha256_text

_versions: Final = {"protocolVersion": "0.1", "manifestVersion": 1}


class Listed(NamedTuple):
    """One evaluation as a manifest lists it; `number` counts within its case from 1."""

    case: str
    number: int
    entry: Any


class Manifest:
    """A manifest as far as it can be read: what is wrong with it is kept in `faults` and fails the run."""

    def __init__(self, path: str) -> None:
        """Nothing is read yet."""
        self.path: Final = path
        self.body: dict[str, Any] = {}
        self.artifacts: tuple[Artifact, ...] = ()
        self.evaluations: tuple[Listed, ...] = ()
        self.digest = ""
        """`artifactDigest` as computed, not as quoted."""
        self.faults: list[Failure] = []

    def blame(self, part: str, expected: Any, observed: Any) -> None:
        """Add a fault of one part."""
        self.faults.append(failure(self.path, part, _shown(expected), _shown(observed)))

    def compare(self, part: str, stated: Any, computed: Any) -> None:
        """Add a fault when a part of the manifest does not say what it must."""
        if stated != computed:
            self.blame(part, stated, computed)

    def text(self, *names: str) -> str:
        """A text inside the manifest; empty, with a fault, when there is none."""
        value: Any = self.body
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, str):
            return value
        self.blame("/".join(names), "a text", value)
        return ""

    def list_of(self, name: str) -> list[Any]:
        """A list of the manifest; empty, with a fault, when there is none."""
        found = self.body.get(name)
        if isinstance(found, list):
            return found
        self.blame(name, "a list", found)
        return []


def require(bundle: Bundle, path: str) -> None:
    """Raises UsageFault when the bundle lacks one of its manifests."""
    if not bundle.has(path):
        raise UsageFault(
            f"{bundle.directory} has no {path}; --bundle names the folder that holds schemas/, conformance/, "
            "cryptography/ and admission/ of one protocol release"
        )


def read_manifest(bundle: Bundle, path: str, profile_id: str) -> Manifest:
    """Read a manifest of this profile. Raises UsageFault when it is missing or of another version or profile."""
    require(bundle, path)
    manifest = Manifest(path)
    try:
        body = json_of(path, bundle.read(path))
    except BundleFault as fault:
        manifest.blame("manifest", "a file of JSON", str(fault))
        return manifest
    if not isinstance(body, dict):
        manifest.blame("manifest", "an object", body)
        return manifest
    for name, known in (*_versions.items(), ("profileId", profile_id)):
        if body.get(name) != known:
            stated = _shown(body.get(name))
            raise UsageFault(f"{path} has {name} {stated}, and this runner knows {known}; give it a bundle of that one")
    manifest.body = body
    manifest.digest = _digest(body)
    manifest.compare("artifactDigest", body.get("artifactDigest"), manifest.digest)
    manifest.artifacts = tuple(_artifacts(manifest))
    manifest.evaluations = tuple(_evaluations(manifest))
    return manifest


def _digest(body: dict[str, Any]) -> str:
    try:
        return sha256_text(canonical_bytes({name: part for name, part in body.items() if name != "artifactDigest"}))
    except CanonicalizationFault as fault:
        return f"none: {fault}"


def _artifacts(manifest: Manifest) -> Iterator[Artifact]:
    for number, entry in enumerate(manifest.list_of("artifacts"), 1):
        try:
            yield read(entry, Artifact)
        except ValidationError as fault:
            manifest.blame(f"artifact {number}", "path, byteLength and sha256", str(fault))


def _evaluations(manifest: Manifest) -> Iterator[Listed]:
    for number, case in enumerate(manifest.list_of("cases"), 1):
        found = case.get("evaluations") if isinstance(case, dict) else None
        if not isinstance(found, list) or not found or not isinstance(case.get("id"), str):
            manifest.blame(f"case {number}", "an id and one or more evaluations", case)
            continue
        for place, entry in enumerate(found, 1):
            yield Listed(case["id"], place, entry)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)

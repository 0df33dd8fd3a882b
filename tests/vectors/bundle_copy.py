"""A writable copy of the protocol's bundles, whose manifests can be enlarged, damaged and sealed again."""

import copy
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, Final

from contracts.canonical import canonical_bytes
from ops.conformance.evaluation import Failure, Tally
from ops.conformance.run import Report, run_bundles
from tests.vectors.protocol_schemas import bundle

Manifest = dict[str, Any]
cryptography: Final = "cryptography/manifest.json"
admission: Final = "admission/manifest.json"
structural: Final = "conformance/manifest.json"


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class BundleCopy:
    """Files of one copy; paths are those of the manifests."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "protocol"
        shutil.copytree(bundle, self.directory)

    def path(self, name: str) -> Path:
        return self.directory / name

    def json(self, name: str) -> Any:
        return json.loads(self.path(name).read_bytes())

    def write(self, name: str, value: Any) -> None:
        """Write a file as it is, sealing nothing."""
        raw = value if isinstance(value, bytes) else json.dumps(value, indent=1).encode()
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_bytes(raw)

    def flip_byte(self, name: str, place: int = -3) -> None:
        """Change one byte of a file."""
        data = bytearray(self.path(name).read_bytes())
        data[place] ^= 1
        self.path(name).write_bytes(bytes(data))

    def seal(self, name: str, manifest: Manifest) -> None:
        """Write a manifest with true artifact entries and a true digest."""
        manifest = copy.deepcopy(manifest)
        manifest.pop("artifactDigest", None)
        for artifact in manifest["artifacts"]:
            data = self.path(artifact["path"]).read_bytes()
            artifact |= {"byteLength": len(data), "sha256": sha256(data)}
        manifest["artifactDigest"] = sha256(canonical_bytes(manifest))
        self.write(name, manifest)

    def seal_all(self, crypto: Manifest, admitting: Manifest) -> None:
        """Seal both manifests, the second with its reference to the first."""
        self.seal(cryptography, crypto)
        reference = {"manifest": cryptography, "artifactDigest": self.json(cryptography)["artifactDigest"]}
        self.seal(admission, {**admitting, "cryptography": reference})

    def run(self) -> Report:
        return run_bundles(self.directory)


def listed(manifest: Manifest, *paths: str) -> None:
    """Add files to a manifest's artifacts; `seal` fills in length and digest."""
    manifest["artifacts"] += [{"path": path, "byteLength": 0, "sha256": ""} for path in paths]


def evaluation_of(manifest: Manifest, case: str, number: int = 1) -> dict[str, Any]:
    """One evaluation inside a manifest, to be changed in place."""
    [found] = [each for each in manifest["cases"] if each["id"] == case]
    evaluation: dict[str, Any] = found["evaluations"][number - 1]
    return evaluation


def only_failure(tally: Tally) -> Failure:
    """The one failure of a tally that has exactly one."""
    assert tally.failed == 1, tally.failures
    return tally.failures[0]

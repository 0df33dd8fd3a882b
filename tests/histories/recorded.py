"""A history as it lies in its folder, and what is expected to become of it."""

from pathlib import Path

import msgspec
from msgspec import Struct

from contracts.verification import RegisteredKey

folder = Path(__file__).parent
_history_file, _events_file, _digests_file = "history.json", "events.jsonl", "digests.json"


class Head(Struct, frozen=True, rename="camel"):
    """Where a Group ends; `chain_hash` is lower-case hex."""

    incarnation: str
    sequence: int
    chain_hash: str


class Proof(Struct, frozen=True, rename="camel"):
    """What a history tells and what proves it. `agent_id` is whose work queue is made of it."""

    about: str
    organization_id: str
    agent_id: str
    keys: tuple[RegisteredKey, ...]
    heads: dict[str, Head]


class Reached(Struct, frozen=True):
    """How far a Group was read, and the digest of what was made of it."""

    sequence: int
    digest: str


class Made(Struct, frozen=True):
    """What one version of a reader makes of each Group."""

    version: int
    groups: dict[str, Reached]


class Recorded(Struct, frozen=True):
    """A history: `events` are the signed bytes, Groups mixed, in the order of the log."""

    name: str
    proof: Proof
    events: tuple[bytes, ...]

    def write(self) -> None:
        """Write it into a folder of its own. Raises FileExistsError: a recorded history is never recorded anew."""
        place = folder / self.name
        place.mkdir()
        (place / _events_file).write_bytes(b"".join(event + b"\n" for event in self.events))
        _write(place / _history_file, self.proof)

    def expected(self) -> dict[str, Made]:
        """What each reader is expected to make of it, by the reader's name."""
        path = folder / self.name / _digests_file
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Made]) if path.exists() else {}

    def expect(self, made: dict[str, Made]) -> None:
        """Expect this from now on."""
        _write(folder / self.name / _digests_file, dict(sorted(made.items())))


def recorded_names() -> list[str]:
    """The names of all recorded histories."""
    return sorted(path.parent.name for path in folder.glob(f"*/{_history_file}"))


def read_recorded(name: str) -> Recorded:
    """One history."""
    place = folder / name
    proof = msgspec.json.decode((place / _history_file).read_bytes(), type=Proof)
    return Recorded(name, proof, tuple((place / _events_file).read_bytes().splitlines()))


def _write(path: Path, content: object) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")

"""The file of trust anchors: public, whole, and named when it cannot be used (TRU-2, OPS-2)."""

from pathlib import Path

import msgspec
import pytest

from services.feed.trust_anchors import TrustAnchors, load_anchors, pinned_keys_max, read_anchors
from services.process.settings import SettingsFault, read_settings
from tests.builders import signing_key, test_organization
from tests.trust_rig import anchors, authority_key

variables = {"WEAVEHOLD_ORGANIZATION": test_organization, "WEAVEHOLD_NATS_URL": "nats://127.0.0.1:1"}


def read(path: Path | None, keys_directory: Path = Path("none")):
    told = variables | {"WEAVEHOLD_KEYS_DIR": str(keys_directory)}
    if path is not None:
        told["WEAVEHOLD_TRUST_ANCHORS_FILE"] = str(path)
    return read_anchors(read_settings(told, uses_database=False), told)


def test_the_organizations_own_anchors_are_taken(tmp_path: Path) -> None:
    """TRU-2: several Organizations may share a file; without the variable it is looked for beside the keys."""
    mine, other = (
        anchors(authority_key(1)),
        msgspec.structs.replace(anchors(authority_key(2)), organization_id="urn:o:2"),
    )
    path = tmp_path / "anchors.json"
    path.write_bytes(TrustAnchors(anchors=(other, mine)).file())
    assert read(path) == mine
    assert read(None, tmp_path) == mine
    assert load_anchors(path).of("urn:o:2") == other


unusable = {
    "missing": (None, "where no file is"),
    "not JSON": (b"{", "is unusable"),
    "another shape": (b'{"keys":[]}', "is unusable"),
    "of others": (TrustAnchors(anchors=()).file(), f"which has no keys of {test_organization}"),
    "a person's": (TrustAnchors(anchors=(anchors(signing_key("worker")),)).file(), "which is no service"),
    "too many": (
        TrustAnchors(anchors=(anchors(*map(authority_key, range(pinned_keys_max + 1))),)).file(),
        "more than 16",
    ),
    "bound twice": (TrustAnchors(anchors=(anchors(authority_key(1), authority_key(1)),)).file(), "is bound twice"),
}


@pytest.mark.parametrize(("content", "words"), unusable.values(), ids=unusable.keys())
def test_what_cannot_be_used_is_named_with_the_remedy(tmp_path: Path, content: bytes | None, words: str) -> None:
    """OPS-2: without anchors no process that reads Events starts; the message names variable, file and remedy."""
    path = tmp_path / "anchors.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsFault) as raised:
        read(path)
    told = str(raised.value)
    assert words in told
    assert told.startswith("WEAVEHOLD_TRUST_ANCHORS_FILE ")
    assert str(path) in told
    assert "Run weavehold init" in told

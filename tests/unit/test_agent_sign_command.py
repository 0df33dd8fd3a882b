"""Signing Commands: what is signed verifies, and identity, epochs and Action IDs follow ACC-6 and MWP-EVT-003."""

import json

import pytest

from contracts.canonical import parse_strict, signing_bytes
from contracts.command import Command
from contracts.documents.common import Actor, ActorType
from contracts.documents.reading import read
from contracts.identifiers import MembershipEpoch, SessionEpoch
from contracts.payloads.work import WorkStart
from contracts.signature import SigningKey, base64url_bytes, verify_ed25519
from services.agent.keyring import KeyFault, Keyring, load_key
from services.agent.sign_command import Epochs, Intent, derived_action_id, sign_command

epochs = Epochs(session=SessionEpoch(4), membership=MembershipEpoch(2))
start = Intent(
    kind="work.start",
    payload=WorkStart(work_item_id="urn:test:work", ownership_epoch=3),
    group_id="urn:test:group",
    expected_revision=7,
)


def key_of(kind: ActorType) -> SigningKey:
    return SigningKey.generate(Actor(type=kind, id=f"urn:test:{kind.value}"))


def test_signed_command_is_a_valid_envelope_with_a_valid_signature():
    """TRU-1: the bytes pass the envelope's rules, and the signature covers them."""
    key = key_of(ActorType.AGENT)
    signed = sign_command(start, epochs, key)
    document = parse_strict(signed.raw, 4096)
    command = read(document, Command)
    assert (command.action_id, command.issued_at) == (signed.action_id, signed.issued_at)
    assert command.signature.created_at == command.issued_at
    assert command.expected_revision == 7
    assert document["payload"] == {"workItemId": "urn:test:work", "ownershipEpoch": 3}
    assert verify_ed25519(key.public_key, signing_bytes(document), base64url_bytes(command.signature.value))


@pytest.mark.parametrize(
    ("actor", "kind", "carried"),
    [
        (ActorType.AGENT, "work.start", {"sessionEpoch": 4, "membershipEpoch": 2}),
        (ActorType.HUMAN, "mission.cancel", {"membershipEpoch": 2}),
        (ActorType.HUMAN, "mission.create", {}),
        (ActorType.SERVICE, "mission.cancel", {}),
    ],
)
def test_each_kind_of_actor_carries_its_own_epochs(actor, kind, carried):
    """ACC-6: Agents carry both epochs, people their Membership Epoch except at creation, services neither."""
    signed = sign_command(Intent(kind=kind, payload={}, group_id="urn:test:group"), epochs, key_of(actor))
    document = json.loads(signed.raw)
    assert {name: value for name, value in document.items() if name.endswith("Epoch")} == carried


def test_action_ids_are_fresh_or_derived():
    """MWP-EVT-003: two signings are two actions; derived IDs name one step for ever and do not run together."""
    key = key_of(ActorType.AGENT)
    assert sign_command(start, epochs, key).action_id != sign_command(start, epochs, key).action_id
    assert derived_action_id("work", 1, "start") == derived_action_id("work", 1, "start")
    assert derived_action_id("work", 1, "start") != derived_action_id("work", 11, "start")
    assert derived_action_id("a", "bc") != derived_action_id("ab", "c")


def test_keyring_refuses_what_others_may_read(tmp_path):
    """RULE-29: key files are 0600; a key that others may use is refused with the remedy."""
    key = key_of(ActorType.AGENT)
    path = tmp_path / "ada.json"
    path.write_bytes(key.key_file())
    path.chmod(0o644)
    with pytest.raises(KeyFault, match="chmod 600"):
        load_key(path)
    path.chmod(0o600)
    keyring = Keyring.from_folder(tmp_path)
    assert keyring.named("ada").key_id == keyring.of(key.principal.id).key_id == key.key_id
    with pytest.raises(KeyFault, match="there are: ada"):
        keyring.named("grace")
    path.write_bytes(b"{}")
    with pytest.raises(KeyFault, match="is not a key"):
        load_key(path)
    with pytest.raises(KeyFault, match="weavehold init"):
        load_key(tmp_path / "absent.json")

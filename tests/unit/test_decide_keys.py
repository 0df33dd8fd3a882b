"""Decisions about the key registry: who may bind, retire and revoke which key, and when (TRU-2, RULE-06)."""

from typing import Any

import pytest

from contracts.command import agent_card_register, key_register, key_retire, key_revoke
from contracts.documents.common import Actor, ActorType
from contracts.entities import EntityKind
from contracts.event import key_registered, key_retired, key_revoked
from contracts.fold import EventFacts
from contracts.group_state import FoldFault, GroupState, evolve
from contracts.identifiers import GroupSequence
from contracts.rejection import Code
from contracts.signature import base64url_text
from contracts.verification import RegisteredKey
from services.authority.key_book import KnownKey
from services.authority.organization_rows import key_event_kinds
from tests.builders import later, principal, signing_key, start_time, test_group, test_organization
from tests.mission_documents import card_document, operator, owner, signature_key_id, worker
from tests.scene import Scene, authority_key_id

gateway = signing_key("gateway", ActorType.SERVICE)
weak = bytes(32)


def registry_command(scene: Scene, kind: str, payload: dict[str, Any], actor: Actor = operator, **members: Any) -> Any:
    """What becomes of a Command in the registry's Group."""
    if actor.type is not ActorType.SERVICE:
        members["membershipEpoch"] = 1
    return scene.when(kind, payload, actor, **{"groupId": test_organization, **members})


def accepted(scene: Scene, kind: str, payload: dict[str, Any], **members: Any) -> Any:
    decision = registry_command(scene, kind, payload, **members)
    assert isinstance(decision, tuple), decision
    return decision[0]


def refused(scene: Scene, kind: str, payload: dict[str, Any], actor: Actor = operator, **members: Any) -> Code:
    decision = registry_command(scene, kind, payload, actor, **members)
    assert not isinstance(decision, tuple), decision
    return decision.code


def binding(key: Any = gateway, **members: Any) -> dict[str, Any]:
    return {
        "keyId": key.key_id,
        "principal": {"type": key.principal.type.value, "id": key.principal.id},
        "algorithm": "Ed25519",
        "publicKey": base64url_text(key.public_key),
        **members,
    }


def with_key(**members: Any) -> Scene:
    scene = Scene()
    accepted(scene, key_register, binding(**members))
    return scene


def test_a_binding_starts_with_its_acceptance() -> None:
    """TRU-2: without validFrom a key counts from now; its Event says how it stands."""
    scene = Scene()
    draft = accepted(scene, key_register, binding())
    assert (draft.kind, draft.aggregate_revision) == (key_registered, 1)
    assert draft.payload["key"]["validFrom"] == start_time
    known = scene.keys.find(gateway.key_id)
    assert known is not None
    assert (known.key.principal, known.key.boundaries, known.statements) == (
        gateway.principal,
        (start_time, None, None),
        0,
    )


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"publicKey": base64url_text(weak)}, Code.INVALID_COMMAND),
        ({"publicKey": "AAAA"}, Code.INVALID_COMMAND),
        ({"principal": {"type": "agent", "id": worker.id}}, Code.INVALID_COMMAND),
        ({"validUntil": start_time}, Code.INVALID_COMMAND),
        ({"algorithm": "RSA"}, Code.SCHEMA_VALIDATION_FAILED),
    ],
    ids=["weak", "short", "an Agent's", "ended", "another algorithm"],
)
def test_what_cannot_be_bound(members: dict[str, Any], code: Code) -> None:
    """TRU-2: weak keys, Agents' keys beside their cards, keys of no use."""
    assert refused(Scene(), key_register, binding(**members)) is code


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"keyId": "urn:weavehold:key:alias"},
        {"principal": {"type": "service", "id": "urn:weavehold:service:other"}},
        {"publicKey": base64url_text(signing_key("other").public_key)},
    ],
    ids=["again", "an alias", "another Principal", "another key under its ID"],
)
def test_a_key_is_bound_once(members: dict[str, Any]) -> None:
    """TRU-2: neither a key ID nor a public key is ever bound a second time, ended or not."""
    scene = with_key()
    accepted(scene, key_revoke, {"keyId": gateway.key_id, "reason": "lost"})
    scene.pass_time(60)
    assert refused(scene, key_register, binding(**members)) in {Code.INVALID_COMMAND, Code.INVALID_STATE_TRANSITION}


@pytest.mark.parametrize(
    "keys",
    [
        [{"keyId": "urn:key:a"}, {"keyId": "urn:key:a", "publicKey": base64url_text(signing_key("b").public_key)}],
        [{"keyId": "urn:key:a", "publicKey": base64url_text(weak)}, {"keyId": "urn:key:a"}],
        [{"keyId": "urn:key:a"}, {"keyId": "urn:key:b"}],
    ],
    ids=["one key ID for two keys", "a weak key behind a good one", "one key under two key IDs"],
)
def test_a_card_names_each_key_once(keys: list[dict[str, Any]]) -> None:
    """TRU-2: a key ID or a public key that stands twice in a card is refused before anything is written."""
    [plain] = card_document(principal("new"))["publicKeys"]
    card = card_document(principal("new"), publicKeys=[{**plain, **key} for key in keys])
    assert Scene().code(agent_card_register, {"card": card}, operator) is Code.INVALID_COMMAND


@pytest.mark.parametrize("moved", ["validUntil", "revokedAt", "validFrom"])
def test_a_card_moves_no_boundary_of_a_bound_key(moved: str) -> None:
    """TRU-2: the ends of a key are stated in the registry; a card may only repeat them."""
    scene = Scene()
    new = principal("new")
    [key] = card_document(new)["publicKeys"]
    bound = signing_key("new")
    scene.keys.put(KnownKey(_registered(bound, key["validFrom"]), 0))
    scene.accept(agent_card_register, {"card": card_document(new)}, operator)
    card = card_document(new, 2, publicKeys=[{**key, moved: later(start_time, 3600)}])
    assert "boundaries" in scene.refuse(agent_card_register, {"card": card}, operator).message


def _registered(key: Any, valid_from: str) -> Any:
    return RegisteredKey(key_id=key.key_id, principal=key.principal, public_key=key.public_key, valid_from=valid_from)


def test_a_planned_end_only_moves_earlier_and_never_into_the_past() -> None:
    """TRU-2: what was accepted while the key was valid stays verifiable."""
    scene = with_key(validUntil=later(start_time, 3600))
    retire = {"keyId": gateway.key_id}
    assert (
        refused(scene, key_retire, {**retire, "validUntil": later(start_time, 3601)}) is Code.INVALID_STATE_TRANSITION
    )
    assert (
        refused(scene, key_retire, {**retire, "validUntil": later(start_time, 3600)}) is Code.INVALID_STATE_TRANSITION
    )
    assert refused(scene, key_retire, {**retire, "validUntil": later(start_time, 0)}) is Code.INVALID_COMMAND
    draft = accepted(scene, key_retire, {**retire, "validUntil": later(start_time, 60)})
    assert (draft.kind, draft.aggregate_revision) == (key_retired, 3)
    assert refused(scene, key_retire, {**retire, "validUntil": later(start_time, 120)}) is Code.INVALID_STATE_TRANSITION
    scene.pass_time(60)
    assert refused(scene, key_revoke, {**retire, "reason": "late"}) is Code.INVALID_STATE_TRANSITION


def test_a_revocation_ends_the_key_now() -> None:
    """RULE-06: from the moment of acceptance on; suspicion reaches back, the end does not."""
    scene = with_key(validUntil=later(start_time, 3600)).pass_time(10)
    payload = {"keyId": gateway.key_id, "reason": "lost", "suspectedSince": start_time}
    draft = accepted(scene, key_revoke, payload)
    assert (draft.kind, draft.aggregate_revision) == (key_revoked, 3)
    known = scene.keys.find(gateway.key_id)
    assert known is not None
    assert known.key.boundaries == (start_time, later(start_time, 3600), scene.time)
    assert refused(scene, key_revoke, payload) is Code.INVALID_STATE_TRANSITION


def test_who_keeps_the_registry() -> None:
    """TRU-2: registrars alone, in the registry's Group alone."""
    for stranger in (principal("gateway", ActorType.SERVICE), owner):
        assert refused(Scene(), key_register, binding(), stranger) is Code.AUTH_FORBIDDEN
    assert refused(Scene(), key_register, binding(), groupId=test_group) is Code.INVALID_COMMAND
    assert refused(Scene(), key_register, binding(), groupId=None) is Code.INVALID_COMMAND
    assert refused(Scene(), key_revoke, {"keyId": gateway.key_id, "reason": "x"}) is Code.INVALID_COMMAND


def test_keys_in_use_are_not_ended() -> None:
    """TRU-2: nobody saws off the key that signs the request, or the authority's voice."""
    scene = Scene()
    key = signing_key("authority", ActorType.SERVICE)
    accepted(scene, key_register, binding(key, keyId=authority_key_id))
    for key_id in (authority_key_id, signature_key_id):
        assert refused(scene, key_revoke, {"keyId": key_id, "reason": "x"}) is Code.INVALID_STATE_TRANSITION
    until = {"validUntil": later(start_time, 300)}
    assert refused(scene, key_retire, {"keyId": signature_key_id, **until}) is Code.INVALID_STATE_TRANSITION
    accepted(scene, key_retire, {"keyId": authority_key_id, **until})


def test_two_registrars_do_not_plan_each_others_end() -> None:
    """TRU-2: whoever ends a registrar's key signs with one that stays longer, so that one is always left."""
    scene = Scene()
    other = signing_key("operator", ActorType.SERVICE)
    accepted(scene, key_register, binding(other))
    scene.keys.end(signature_key_id, valid_until=later(start_time, 60), revoked_at=None)
    retire = {"keyId": other.key_id, "validUntil": later(start_time, 60)}
    assert refused(scene, key_retire, retire) is Code.INVALID_STATE_TRANSITION
    accepted(scene, key_retire, {"keyId": other.key_id, "validUntil": later(start_time, 59)})


def test_expected_revision_counts_the_statements() -> None:
    """MWP-EVT-007: a key's revision is one more than the statements made of its ends."""
    scene = with_key()
    payload = {"keyId": gateway.key_id, "reason": "lost"}
    assert refused(scene, key_revoke, payload, expectedRevision=2) is Code.REVISION_CONFLICT
    assert accepted(scene, key_revoke, payload, expectedRevision=1).aggregate_revision == 2


# --- the fold ----------------------------------------------------------------------------------------------------


def folded(events: list[EventFacts]) -> GroupState:
    state = GroupState.empty(test_organization, test_organization)
    for event in events:
        state.apply(evolve(state, event))
    return state


def test_the_fold_knows_every_key_of_the_registry() -> None:
    """NEW-4: the registry's entities are the fold of its Events."""
    scene = with_key()
    accepted(scene, key_retire, {"keyId": gateway.key_id, "validUntil": later(start_time, 60)})
    assert {event.kind for event in scene.events} <= key_event_kinds
    record = folded(scene.events).key(gateway.key_id)
    assert record is not None
    assert (record.revision, record.key.valid_until) == (2, later(start_time, 60))
    assert (EntityKind.KEY.value, gateway.key_id) in scene.rows


@pytest.mark.parametrize(
    "after",
    [
        {"validUntil": later(start_time, 120)},
        {},
        {"validUntil": later(start_time, 30), "publicKey": base64url_text(signing_key("other").public_key)},
        {"validUntil": later(start_time, 30), "validFrom": later(start_time, 1)},
    ],
    ids=["later", "taken back", "another key", "another beginning"],
)
def test_a_history_that_widens_a_key_is_a_fault(after: dict[str, str]) -> None:
    """TRU-2: a log in which an end moves later, is taken back, or a binding changes is damaged."""
    scene = with_key(validUntil=later(start_time, 60))
    key = {**scene.events[0].payload["key"]}
    del key["validUntil"]
    event = EventFacts(
        group_id=test_organization,
        sequence=GroupSequence(2),
        kind=key_retired,
        aggregate_revision=3,
        occurred_at=start_time,
        payload={"key": {**key, **after}},
    )
    with pytest.raises(FoldFault, match=gateway.key_id):
        folded([*scene.events, event])


def test_a_key_bound_twice_in_the_log_is_a_fault() -> None:
    """TRU-2: bindings are for good."""
    scene = with_key()
    with pytest.raises(FoldFault, match="bound already"):
        folded([*scene.events, *scene.events])

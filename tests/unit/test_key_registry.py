"""Registry evidence: valid as a whole or not at all."""

from typing import Any

import pytest

from contracts.documents.common import Actor, ActorType
from contracts.key_registry import KeyRegistry, UntrustedRegistry, read_registry
from contracts.signature import SigningKey, base64url_text
from contracts.timestamps import instant
from contracts.verification import RegistryFault
from tests.builders import signing_key
from tests.unit import edwards

anna = signing_key("anna", ActorType.HUMAN)
worker = signing_key("worker")


def binding(key: SigningKey, *history: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {
        "keyId": key.key_id,
        "principal": {"type": key.principal.type.value, "id": key.principal.id},
        "algorithm": "Ed25519",
        "publicKey": base64url_text(key.public_key),
        "validFrom": "2026-01-01T00:00:00Z",
        "validityHistory": list(history),
        **members,
    }


def statement(sequence: int, recorded: str = "2026-02-01T00:00:00Z", **ends: str) -> dict[str, Any]:
    return {"sequence": sequence, "recordedAt": recorded, **ends}


def evidence(*bindings: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"organizationId": "urn:weavehold:organization:test", "bindings": list(bindings), **members}


def test_good_evidence_resolves_its_keys() -> None:
    """TRU-2: Principal, public key and both ends of each key."""
    registry = read_registry(
        evidence(
            binding(anna),
            binding(
                worker,
                statement(1, validUntil="2026-12-01T00:00:00Z"),
                statement(
                    2, "2026-03-01T01:00:00+01:00", validUntil="2026-11-01T00:00:00Z", revokedAt="2026-09-01T00:00:00Z"
                ),
                statement(3, "2026-03-01T00:00:00Z", revokedAt="2026-08-01T00:00:00Z"),
            ),
        )
    )
    assert isinstance(registry, KeyRegistry)
    assert registry.organization_id == "urn:weavehold:organization:test"
    found = registry.resolve(worker.key_id)
    assert found is not None
    assert (found.principal, found.public_key) == (worker.principal, worker.public_key)
    assert (found.valid_from, found.valid_until, found.revoked_at) == (
        *("2026-01-01T00:00:00Z", "2026-11-01T00:00:00Z", "2026-08-01T00:00:00Z"),
    )
    assert found.covers(instant("2026-07-31T23:59:59.999999999Z"))
    assert not found.covers(instant("2026-08-01T00:00:00Z"))
    assert registry.resolve("urn:weavehold:key:unknown") is None


torsion = edwards.torsion_point()
invalid: dict[str, dict[str, Any]] = {
    "key-id-reused": evidence(binding(anna), binding(worker, keyId=anna.key_id)),
    "key-id-bound-anew": evidence(binding(anna), binding(anna, publicKey=base64url_text(worker.public_key))),
    "same-binding-twice": evidence(binding(anna), binding(anna)),
    "public-key-aliased": evidence(binding(anna), binding(worker, publicKey=base64url_text(anna.public_key))),
    "public-key-aliased-for-one-principal": evidence(binding(anna), binding(anna, keyId="urn:weavehold:key:second")),
    "small-order": evidence(binding(anna), binding(worker, publicKey=base64url_text(edwards.encode(torsion)))),
    "mixed-order": evidence(
        binding(worker, publicKey=base64url_text(edwards.encode(edwards.add(torsion, edwards.base))))
    ),
    "identity": evidence(binding(worker, publicKey=base64url_text(edwards.encode(edwards.identity)))),
    "off-curve": evidence(binding(worker, publicKey=base64url_text((2).to_bytes(32, "little")))),
    "not-reduced": evidence(binding(worker, publicKey=base64url_text((edwards.p + 3).to_bytes(32, "little")))),
    "31-bytes": evidence(binding(worker, publicKey=base64url_text(worker.public_key[:31]))),
    "padded": evidence(binding(worker, publicKey=base64url_text(worker.public_key) + "=")),
    "unused-bits": evidence(binding(worker, publicKey=base64url_text(worker.public_key)[:-1] + "B")),
    "other-algorithm": evidence(binding(worker, algorithm="Ed448")),
    "key-id-no-uri": evidence(binding(anna), binding(worker, keyId="urn:weavehold:key:worker\n")),
    "principal-no-ascii": evidence(binding(anna, principal={"type": "human", "id": "https://例え.テスト/anna"})),
    "valid-from-leap-second": evidence(binding(worker, validFrom="2026-06-30T23:59:60Z")),
    "history-numbered-from-two": evidence(binding(worker, statement(2, validUntil="2026-12-01T00:00:00Z"))),
    "history-number-twice": evidence(
        binding(worker, statement(1, validUntil="2026-12-01T00:00:00Z"), statement(1, revokedAt="2026-11-01T00:00:00Z"))
    ),
    "history-says-nothing": evidence(binding(worker, statement(1))),
    "history-back-in-time": evidence(
        binding(
            worker,
            statement(1, "2026-02-01T00:00:00.2Z", validUntil="2026-12-01T00:00:00Z"),
            statement(2, "2026-02-01T00:00:00.1Z", revokedAt="2026-11-01T00:00:00Z"),
        )
    ),
    "valid-until-moved-later": evidence(
        binding(
            worker,
            statement(1, validUntil="2026-12-01T00:00:00Z"),
            statement(2, validUntil="2026-12-01T00:00:00.0000000001Z"),
        )
    ),
    "revocation-moved-later": evidence(
        binding(
            worker, statement(1, revokedAt="2026-12-01T00:00:00Z"), statement(2, revokedAt="2026-12-01T00:00:00-00:01")
        )
    ),
    "no-bindings": evidence(),
    "unknown-member": evidence(binding(anna), note="x"),
    "no-object": {"x": []},
}


@pytest.mark.parametrize("name", invalid)
def test_one_fault_makes_the_whole_evidence_worthless(name: str) -> None:
    """TRU-2: no key ID reuse, no aliasing, canonical prime-order keys, ends that only move earlier."""
    registry = read_registry(invalid[name])
    assert isinstance(registry, UntrustedRegistry)
    for key in (anna, worker):
        with pytest.raises(RegistryFault, match="not trusted"):
            registry.resolve(key.key_id)


def test_a_principal_is_type_and_identifier() -> None:
    """TRU-2: an Agent and a person of one identifier are two Principals with two keys."""
    agent = SigningKey("urn:weavehold:key:a", Actor(type=ActorType.AGENT, id="urn:weavehold:x"), bytes(32))
    human = SigningKey("urn:weavehold:key:h", Actor(type=ActorType.HUMAN, id="urn:weavehold:x"), bytes([1]) * 32)
    registry = read_registry(evidence(binding(agent), binding(human)))
    found = registry.resolve(human.key_id)
    assert found is not None
    assert found.principal == human.principal != agent.principal

"""The protocol's cryptography vectors: every evaluation ends at the expected stage with the expected answer."""

import hashlib
import json
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from contracts.bounds import event_bytes_max
from contracts.canonical import canonical_bytes, parse_strict
from contracts.document_kinds import DocumentKind
from contracts.key_registry import read_registry
from contracts.signature import SigningKey, base64url_bytes, base64url_text
from contracts.verification import VerificationFailure, Verified, verify_document
from tests.vectors.protocol_schemas import bundle, needs_bundle

pytestmark = needs_bundle


def manifest() -> dict[str, Any]:
    return json.loads((bundle / "cryptography" / "manifest.json").read_text()) if bundle.is_dir() else {"cases": []}


def evaluations(*, kind_is_canonicalization: bool) -> list[Any]:
    found = []
    for case in manifest()["cases"]:
        if (case["kind"] == "canonicalization") is not kind_is_canonicalization:
            continue
        for number, evaluation in enumerate(case["evaluations"], 1):
            fault = evaluation.get("fault") or {"id": evaluation.get("profileId", "canonicalization")}
            found.append(pytest.param(evaluation, id=f"{case['id']}-{number}-{fault['id']}"))
    return found


@cache
def fixture_schema(name: str) -> Draft202012Validator:
    schema = json.loads((bundle / manifest()["fixtureSchemas"][name]).read_text())
    return Draft202012Validator(schema)


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def read(path: str) -> bytes:
    return (bundle / path).read_bytes()


def test_the_bundle_is_the_one_that_its_manifest_describes() -> None:
    """TRU-3: artifact bytes and the manifest's own digest, which is a digest of RFC 8785 bytes."""
    described = manifest()
    for artifact in described["artifacts"]:
        data = read(artifact["path"])
        assert (len(data), sha256(data)) == (artifact["byteLength"], artifact["sha256"]), artifact["path"]
    digest = described.pop("artifactDigest")
    assert sha256(canonical_bytes(described)) == digest


@pytest.mark.parametrize("evaluation", evaluations(kind_is_canonicalization=True))
def test_canonical_bytes_of_the_vector(evaluation: dict[str, Any]) -> None:
    """TRU-3."""
    canonical = canonical_bytes(parse_strict(read(evaluation["input"]), event_bytes_max))
    assert canonical == read(evaluation["expectedJcs"])
    assert sha256(canonical) == evaluation["sha256"]


@pytest.mark.parametrize("evaluation", evaluations(kind_is_canonicalization=False))
def test_document_ends_at_the_expected_stage(evaluation: dict[str, Any]) -> None:
    """TRU-1, TRU-2, TRU-3: stage, wire error, and on success bytes, hashes, key, Principal, protected time."""
    evidence = parse_strict(read(evaluation["registry"]), event_bytes_max)
    fixture_schema("registry").validate(evidence)
    kind = DocumentKind(evaluation["profileId"])
    outcome = verify_document(kind, read(evaluation["document"]), read_registry(evidence), event_bytes_max)
    expected = evaluation["expect"]
    if expected["stage"] == "complete":
        assert isinstance(outcome, Verified), outcome
        assert_verified(outcome, expected["verified"])
        assert_signing_reproduces(outcome, evaluation["signingKey"])
    else:
        assert isinstance(outcome, VerificationFailure), f"accepted, expected {expected}"
        assert (outcome.stage.value, outcome.stage.wire_code.value) == (expected["stage"], expected["wireCode"]), (
            outcome
        )


def assert_verified(verified: Verified, expected: dict[str, Any]) -> None:
    assert verified.key_id == expected["keyId"]
    assert (verified.principal.type.value, verified.principal.id) == tuple(expected["principal"].values())
    assert verified.protected_time == expected["protectedTime"]
    assert verified.canonical == read(expected["signingBytes"])
    assert f"sha256:{verified.signing_hash.hex()}" == expected["signingHash"]
    assert verified.document["signature"]["value"] == expected["signature"]
    assert sha256(canonical_bytes(verified.document)) == expected["signedDocumentHash"]


def assert_signing_reproduces(verified: Verified, signing_key: str) -> None:
    """Ed25519 is deterministic: our own signature over the same bytes is the vector's."""
    fixture = json.loads(read(signing_key))
    fixture_schema("signingKey").validate(fixture)
    key = SigningKey(fixture["keyId"], verified.principal, base64url_bytes(fixture["seed"]) or b"")
    assert base64url_text(key.public_key) == fixture["publicKey"]
    assert key.sign(verified.canonical) == verified.document["signature"]["value"]

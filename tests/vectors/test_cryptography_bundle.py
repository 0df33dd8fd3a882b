"""The protocol's cryptography vectors: every evaluation ends at the expected stage with the expected answer."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from contracts.document_kinds import DocumentKind
from contracts.documents.common import Actor, ActorType
from contracts.signature import SigningKey, base64url_bytes, sign_document
from ops.conformance.evaluation import Evaluation, try_evaluation
from ops.conformance.run import open_sections
from tests.vectors.bundle_copy import (
    BundleCopy,
    admission,
    cryptography,
    evaluation_of,
    listed,
    only_failure,
    sha256,
)
from tests.vectors.protocol_schemas import bundle, needs_bundle

pytestmark = needs_bundle
section = open_sections(bundle)["cryptography"] if bundle.is_dir() else None
evaluations = section.evaluations if section else ()
golden = "accept.command.golden"


def named(evaluation: Evaluation) -> str:
    return f"{evaluation.case}-{evaluation.name}"


def test_the_bundle_is_the_one_that_its_manifest_describes() -> None:
    """TRU-3: artifact bytes and the manifest's own digest, which is a digest of RFC 8785 bytes."""
    assert section is not None
    assert (len(section.evaluations), section.faults, section.bad_files) == (45, [], [])


@pytest.mark.parametrize("evaluation", [each for each in evaluations if each.name == "canonicalization"], ids=named)
def test_canonical_bytes_of_the_vector(evaluation: Evaluation) -> None:
    """TRU-3."""
    assert try_evaluation(evaluation, set()) is None


@pytest.mark.parametrize("evaluation", [each for each in evaluations if each.name != "canonicalization"], ids=named)
def test_document_ends_at_the_expected_stage(evaluation: Evaluation) -> None:
    """TRU-1, TRU-2, TRU-3: stage, wire error, and on success bytes, hashes, key, Principal, protected time.

    Signing again with the vector's key gives the vector's signature.
    """
    assert try_evaluation(evaluation, set()) is None


changed_answers: dict[str, tuple[Any, str]] = {
    "keyId": ("urn:missionweaveprotocol:key:other", "keyId is urn:missionweaveprotocol:key:crypto-vector-rfc8032-1"),
    "principal": ({"type": "human", "id": "urn:missionweaveprotocol:human:other"}, "principal is Actor("),
    "protectedTime": ("2026-07-15T00:00:00.0Z", "protectedTime is 2026-07-15T00:00:00Z"),
    "signingBytes": ("cryptography/vectors/canonicalization/event.signing.jcs", "the signing bytes are not"),
    "signingHash": ("sha256:" + "0" * 64, "signingHash is sha256:6655c5"),
    "signature": ("AAAA", "signature is PMee"),
    "signedDocumentHash": ("sha256:" + "0" * 64, "signedDocumentHash is sha256:"),
}


def test_each_part_of_a_complete_answer_counts(tmp_path: Path) -> None:
    """TRU-1, TRU-3: a forged expectation fails, even under a true digest, and alone."""
    copy = BundleCopy(tmp_path)
    manifest = copy.json(cryptography)
    original = evaluation_of(manifest, golden)
    for member, (value, _) in changed_answers.items():
        forged = deepcopy(original)
        forged["expect"]["verified"][member] = value
        manifest["cases"].append({"id": member, "kind": "single", "evaluations": [forged]})
    copy.seal_all(manifest, copy.json(admission))
    report = copy.run()
    assert [failure.case for failure in report.cryptography.failures] == list(changed_answers)
    for failure in report.cryptography.failures:
        assert (failure.evaluation, failure.expected) == ("command", "complete")
        assert changed_answers[failure.case][1] in failure.observed
        assert ";" not in failure.observed
    assert (report.cryptography.passed, report.admission.failed) == (45, 0)


def test_another_signing_key_is_noticed(tmp_path: Path) -> None:
    """TRU-3: the key of the vector must reproduce its signature."""
    copy = BundleCopy(tmp_path)
    manifest = copy.json(cryptography)
    evaluation_of(manifest, golden)["signingKey"] = "cryptography/keys/signing-mission-owner.json"
    copy.seal_all(manifest, copy.json(admission))
    observed = only_failure(copy.run().cryptography).observed
    assert "signing-mission-owner.json is another key" in observed
    assert "signing-mission-owner.json signs otherwise" in observed


def test_another_stage_or_code_is_noticed(tmp_path: Path) -> None:
    """TRU-1, TRU-5: both must be as expected, and what should fail must."""
    copy = BundleCopy(tmp_path)
    manifest = copy.json(cryptography)
    unknown_key = evaluation_of(manifest, "reject.key-resolution.unknown-key")
    forged = [
        unknown_key | {"expect": {"stage": "signature", "wireCode": "AUTH_INVALID_SIGNATURE"}},
        unknown_key | {"expect": {"stage": "key-resolution", "wireCode": "PROTOCOL_VIOLATION"}},
        unknown_key | {"document": "cryptography/vectors/signed-documents/valid/command.json"},
    ]
    manifest["cases"].append({"id": "forged", "kind": "failure-matrix", "evaluations": forged})
    copy.seal_all(manifest, copy.json(admission))
    stage, code, accepted = copy.run().cryptography.failures
    assert stage.evaluation == "command/unknown-key"
    assert stage.observed.startswith("stage key-resolution, AUTH_INVALID_SIGNATURE: no key ")
    assert code.observed == stage.observed
    assert accepted.observed == "complete"


def test_profiles_are_followed(tmp_path: Path) -> None:
    """TRU-1: the manifest's own pointers must lead to the signer and the time that we verified."""
    copy = BundleCopy(tmp_path)
    manifest = copy.json(cryptography)
    [event] = [each for each in manifest["profiles"] if each["profileId"] == "event"]
    event["expectedSigner"]["pointer"] = "/actor"
    event["protectedTimePointer"] = "/recordedAt"
    copy.seal_all(manifest, copy.json(admission))
    failure = only_failure(copy.run().cryptography)
    assert failure.evaluation == "event"
    assert "/recordedAt is not the protected time" in failure.observed
    assert "principal-object does not lead to urn:missionweaveprotocol:service:group-authority" in failure.observed


def test_all_nine_kinds_of_a_larger_bundle(tmp_path: Path) -> None:
    """TRU-1, TRU-4: kinds that this bundle has no vectors of, signed here with its keys, and one case more."""
    copy = BundleCopy(tmp_path)
    manifest = copy.json(cryptography)
    signers = {"evidence": "signing-test-reviewer", "context-package": "signing-developer-one"}
    added = [signed(copy, manifest, kind, f"cryptography/keys/{name}.json") for kind, name in signers.items()]
    manifest["cases"].append({"id": "accept.more", "kind": "profile-matrix", "evaluations": added})
    copy.seal_all(manifest, copy.json(admission))
    report = copy.run()
    assert report.ok, report
    assert report.cryptography.passed == 47


def signed(copy: BundleCopy, manifest: dict[str, Any], kind: str, signing_key: str) -> dict[str, Any]:
    """An evaluation of the instance of the structural bundle, signed with a key of this one."""
    fixture = copy.json(signing_key)
    registry = "cryptography/keys/registry-valid.json"
    [holder] = [each for each in copy.json(registry)["bindings"] if each["keyId"] == fixture["keyId"]]
    owner = Actor(type=ActorType(holder["principal"]["type"]), id=holder["principal"]["id"])
    key = SigningKey(fixture["keyId"], owner, base64url_bytes(fixture["seed"]) or b"")
    document = copy.json(f"conformance/vectors/valid/{kind}.json")
    document["generatedBy"] = holder["principal"]
    time = document["signature"]["createdAt"]
    raw = sign_document(document, key, time)
    unsigned = {name: value for name, value in document.items() if name != "signature"}
    paths = f"cryptography/vectors/signed-documents/valid/{kind}.json", f"cryptography/vectors/{kind}.signing.jcs"
    copy.write(paths[0], raw)
    copy.write(paths[1], rfc8785.dumps(unsigned))
    listed(manifest, *paths)
    return {
        "profileId": DocumentKind(kind).value,
        "document": paths[0],
        "registry": registry,
        "signingKey": signing_key,
        "fault": None,
        "expect": {
            "stage": "complete",
            "wireCode": None,
            "verified": {
                "keyId": key.key_id,
                "principal": holder["principal"],
                "protectedTime": time,
                "signingBytes": paths[1],
                "signingHash": sha256(rfc8785.dumps(unsigned)),
                "signature": document["signature"]["value"],
                "signedDocumentHash": sha256(raw),
            },
        },
    }

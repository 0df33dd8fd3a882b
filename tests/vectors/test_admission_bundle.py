"""The admission bundle, and a larger one made from it in which every reason and every outcome of the log occurs."""

from pathlib import Path
from typing import Any

import pytest

from contracts.admission import AppendMiss, LookupMiss, Reason
from ops.conformance.evaluation import Evaluation, try_evaluation
from ops.conformance.run import open_sections
from ops.conformance.schema_judge import SchemaJudge
from tests.vectors.bundle_copy import BundleCopy, admission, cryptography, evaluation_of, listed, only_failure
from tests.vectors.protocol_schemas import bundle, needs_bundle

pytestmark = needs_bundle
section = open_sections(bundle)["admission"] if bundle.is_dir() else None
evaluations = section.evaluations if section else ()
service = {"type": "service", "id": "urn:missionweaveprotocol:service:admission"}
other_service = {"type": "service", "id": "urn:missionweaveprotocol:service:other"}
documents = "cryptography/vectors/signed-documents/valid"
record = "admission/records/valid/command.json"


@pytest.mark.parametrize("evaluation", evaluations, ids=lambda evaluation: evaluation.name)
def test_tru_4_document_is_admitted_or_refused_as_expected(evaluation: Evaluation) -> None:
    """TRU-4: stage, wire error, reason, and on success the record."""
    assert try_evaluation(evaluation, set()) is None


def test_the_bundle_is_the_one_that_its_manifest_describes() -> None:
    """TRU-4: with its reference to the cryptography bundle."""
    assert section is not None
    assert (len(section.evaluations), section.faults, section.bad_files) == (19, [], [])


def context(**members: Any) -> dict[str, Any]:
    stated = {
        "admissionRecordId": "urn:missionweaveprotocol:admission-record:crypto-vector-command",
        "trustedAcceptedAt": "2026-07-15T00:05:00Z",
        "acceptedBy": service,
    }
    return stated | members


def outcome(status: str, path: str | None = None, by: dict[str, str] = service) -> dict[str, Any]:
    return {"status": status} if path is None else {"status": status, "record": path, "authenticatedService": by}


absent = outcome("authoritative-absence")


class Larger:
    """A manifest that grows by evaluations and by records derived from the valid ones."""

    def __init__(self, copy: BundleCopy) -> None:
        self.copy = copy
        self.manifest = copy.json(admission)
        self.added: list[dict[str, Any]] = []

    def derived(self, name: str, source: str = record, **members: Any) -> str:
        path = f"admission/records/more/{name}.json"
        self.copy.write(path, self.copy.json(source) | members)
        listed(self.manifest, path)
        return path

    def expect(self, name: str, expected: Reason | str, **parts: Any) -> None:
        """First admission of the Command unless `parts` say otherwise; a text is the path of the record."""
        expectation = (
            {"stage": "complete", "wireCode": None, "record": expected}
            if isinstance(expected, str)
            else {"stage": "admission", "wireCode": "AUTH_INVALID_SIGNATURE", "reason": expected.value}
        )
        stated = {
            "id": name,
            "profileId": "command",
            "mode": "first-admission",
            "document": f"{documents}/command.json",
            "registry": "cryptography/keys/registry-valid.json",
            "trustedContext": context(),
            "lookup": absent,
            "append": None,
            "expect": expectation,
        }
        self.added.append(stated | parts)

    def replay(self, name: str, expected: Reason | str, lookup: dict[str, Any], **parts: Any) -> None:
        self.expect(name, expected, mode="historical-replay", trustedContext=None, lookup=lookup, **parts)

    def seal(self) -> None:
        self.manifest["cases"].append({"id": "more", "evaluations": self.added})
        self.copy.seal_all(self.copy.json(cryptography), self.manifest)


def look_ups(larger: Larger) -> None:
    """Every status of a look-up, in both modes where both mean the same."""
    failing = {
        "unauthenticated": Reason.LOG_AUTHENTICATION_FAILED,
        "integrity-failed": Reason.APPEND_INTEGRITY_NOT_ESTABLISHED,
        "unavailable": Reason.LOG_UNAVAILABLE,
        "indeterminate": Reason.LOG_INDETERMINATE,
    }
    assert {*failing, "authoritative-absence"} == {miss.value for miss in LookupMiss}
    for status, reason in failing.items():
        larger.replay(f"replay-{status}", reason, outcome(status))
        larger.expect(f"first-{status}", reason, lookup=outcome(status))
    larger.replay("replay-absent", Reason.RECORD_MISSING, absent)
    larger.replay("replay-found", record, outcome("found", record))
    larger.expect("first-found", record, lookup=outcome("found", record))


def appends(larger: Larger) -> None:
    """Every status of an append."""
    failing = {
        "conflict": Reason.RECORD_CONFLICT,
        "unauthenticated": Reason.LOG_AUTHENTICATION_FAILED,
        "integrity-failed": Reason.APPEND_INTEGRITY_NOT_ESTABLISHED,
        "unavailable": Reason.COMMIT_FAILED,
        "indeterminate": Reason.COMMIT_FAILED,
    }
    assert set(failing) == {miss.value for miss in AppendMiss}
    for status, reason in failing.items():
        larger.expect(f"append-{status}", reason, append=outcome(status))
    larger.expect("append-nothing", Reason.COMMIT_FAILED)
    parallel = larger.derived(
        "parallel", admissionRecordId="urn:x:winner", trustedAcceptedAt="2026-07-15T00:04:00Z", acceptedBy=other_service
    )
    larger.expect("append-existing", parallel, append=outcome("existing", parallel, other_service))
    integrity = Reason.APPEND_INTEGRITY_NOT_ESTABLISHED
    larger.expect("append-another", integrity, append=outcome("committed", parallel, other_service))
    late = larger.derived("late", trustedAcceptedAt="2026-07-16T00:00:00Z")
    outside = Reason.TRUSTED_TIME_OUTSIDE_KEY_INTERVAL
    larger.expect("append-existing-late", outside, append=outcome("existing", late))


def bindings(larger: Larger) -> None:
    """Each binding of a record, and its form."""
    for name, members in {
        "organization": {"organizationId": "urn:missionweaveprotocol:organization:other"},
        "kind": {"documentKind": "event"},
        "hash": {"signingHash": "sha256:" + "1" * 64},
        "key": {"keyId": "urn:missionweaveprotocol:key:other"},
        "principal": {"principal": {"type": "human", "id": "urn:missionweaveprotocol:agent:crypto-vector-coordinator"}},
    }.items():
        path = larger.derived(f"other-{name}", **members)
        larger.replay(f"replay-{name}", Reason.RECORD_BINDING_MISMATCH, outcome("found", path))
        larger.expect(f"append-{name}", Reason.RECORD_BINDING_MISMATCH, append=outcome("existing", path))
    for name, members in {
        "time": {"trustedAcceptedAt": "2026-07-15T00:05:00-00:00"},
        "id": {"admissionRecordId": "no uri"},
        "human": {"acceptedBy": {"type": "human", "id": "urn:x:y"}},
        "member": {"note": "more"},
    }.items():
        path = larger.derived(f"malformed-{name}", **members)
        larger.replay(f"replay-malformed-{name}", Reason.RECORD_SCHEMA_INVALID, outcome("found", path))
    authentication = Reason.LOG_AUTHENTICATION_FAILED
    larger.replay("replay-other-service", authentication, outcome("found", record, other_service))


def times(larger: Larger) -> None:
    """What stands in the trusted context, and the key's interval."""
    for number, time in enumerate(("yesterday", "2026-07-15T00:05:60Z", "0000-07-15T00:05:00Z", "2026-07-15T00:05:00")):
        malformed = context(trustedAcceptedAt=time)
        larger.expect(f"malformed-{number}", Reason.MALFORMED_TRUSTED_TIME, trustedContext=malformed)
    larger.expect("no-context", Reason.MALFORMED_TRUSTED_TIME, trustedContext=None)
    last = "2026-07-15T23:59:59.99999999999999999999Z"
    path = larger.derived("last-moment", trustedAcceptedAt=last)
    larger.expect("last", path, trustedContext=context(trustedAcceptedAt=last), append=outcome("committed", path))
    ended = larger.derived("ended", trustedAcceptedAt="2026-07-16T00:00:00Z")
    larger.replay("replay-ended", Reason.TRUSTED_TIME_OUTSIDE_KEY_INTERVAL, outcome("found", ended))
    revoked = larger.derived("revoked", trustedAcceptedAt="2026-07-15T09:00:00+08:00")
    registry = "admission/registries/registry-later-revocation.json"
    outside = Reason.TRUSTED_TIME_OUTSIDE_KEY_INTERVAL
    larger.replay("replay-revoked", outside, outcome("found", revoked), registry=registry)


def events(larger: Larger) -> None:
    """An Event is never its own evidence."""
    event = f"{documents}/event.json"
    written = larger.copy.json(event)
    parts = {"profileId": "event", "document": event}
    anchoring = Reason.EVENT_SELF_ANCHORING
    own_word = context(trustedAcceptedAt="2026-07-15T01:00:01.0+01:00", acceptedBy=written["acceptedBy"])
    larger.expect("event-own-word", anchoring, trustedContext=own_word, **parts)
    own_id = context(admissionRecordId=written["eventId"])
    larger.expect("event-own-id", anchoring, trustedContext=own_id, **parts)
    larger.expect("event-nothing", anchoring, trustedContext=None, **parts)
    valid = "admission/records/valid/event.json"
    larger.expect("event-retry", valid, trustedContext=None, lookup=outcome("found", valid), **parts)
    larger.replay("event-replay-absent", Reason.RECORD_MISSING, absent, **parts)
    larger.replay("event-itself", anchoring, outcome("found", event), **parts)
    named = larger.derived("event-id", valid, admissionRecordId=written["eventId"])
    larger.replay("event-record-of-its-id", anchoring, outcome("found", named), **parts)


def test_every_reason_and_every_outcome(tmp_path: Path) -> None:
    """TRU-4: all twelve reasons, all statuses of look-up and append, in a manifest of the public form."""
    larger = Larger(BundleCopy(tmp_path))
    for add in (look_ups, appends, bindings, times, events):
        add(larger)
    larger.seal()
    judge = SchemaJudge({"manifest": larger.copy.json("admission/manifest.schema.json")})
    of_public_form = judge.validator("manifest").evolve(
        schema={"$ref": "https://missionweaveprotocol.dev/admission/0.1/manifest.schema.json#/$defs/evaluation"}
    )
    for evaluation in larger.added:
        of_public_form.validate(evaluation)
    report = larger.copy.run()
    assert report.ok, report.admission.failures
    assert report.admission.passed == 19 + len(larger.added)
    reasons = {evaluation["expect"].get("reason") for evaluation in larger.added} - {None}
    assert reasons == {reason.value for reason in Reason}


def test_what_is_not_as_expected_is_named(tmp_path: Path) -> None:
    """TRU-4: a forged or malformed evaluation fails under a true digest, and alone."""
    refused = {"stage": "admission", "wireCode": "AUTH_INVALID_SIGNATURE", "reason": "record-conflict"}
    forged: dict[str, dict[str, Any]] = {
        "AUTH_INVALID_SIGNATURE, record-missing: the look-up ended with authoritative-absence": {"expect": refused},
        "stage admission, AUTH_INVALID_SIGNATURE, record-missing: ": {
            "expect": {"stage": "complete", "wireCode": None, "record": record}
        },
        "stage schema, SCHEMA_VALIDATION_FAILED": {"document": f"{documents}/event.json"},
        "says found without a record": {"lookup": {"status": "found"}},
        "'perhaps' is not a valid LookupMiss": {"lookup": {"status": "perhaps"}},
        "Invalid enum value 'no-such'": {"mode": "no-such"},
        "unknown field `note`": {"note": 1},
        "Invalid enum value 'complete'": {"expect": {"stage": "complete"}},
    }
    copy = BundleCopy(tmp_path)
    manifest = copy.json(admission)
    missing = evaluation_of(manifest, "reject.admission.failure-matrix")
    manifest["cases"].append({"id": "forged", "evaluations": [missing | members for members in forged.values()]})
    copy.seal_all(copy.json(cryptography), manifest)
    tally = copy.run().admission
    assert tally.passed == 19
    for failure, observed in zip(tally.failures, forged, strict=True):
        assert failure.case == "forged"
        assert observed in failure.observed


def test_another_record_than_expected_is_named(tmp_path: Path) -> None:
    """TRU-4: the record that comes out must be the expected one, member by member."""
    larger = Larger(BundleCopy(tmp_path))
    other = larger.derived("other", trustedAcceptedAt="2026-07-15T00:05:00.0Z")
    larger.replay("other", other, outcome("found", record))
    larger.seal()
    observed = only_failure(larger.copy.run().admission).observed
    assert observed.startswith('complete with the record {"acceptedBy"')


def test_the_cryptography_bundle_is_the_one_that_was_meant(tmp_path: Path) -> None:
    """TRU-4: the reference to its digest is compared with the bundle that is there."""
    copy = BundleCopy(tmp_path)
    manifest = copy.json(admission)
    manifest["cryptography"]["artifactDigest"] = "sha256:" + "0" * 64
    copy.seal(admission, manifest)
    failure = only_failure(copy.run().admission)
    assert (failure.case, failure.evaluation) == (admission, "cryptography")
    assert '"sha256:000' in failure.expected
    assert copy.json(cryptography)["artifactDigest"] in failure.observed

"""`weavehold conformance` on the bundles as they are and on damaged copies (TRU-1, TRU-4, OPS-2)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ops.command_fault import UsageFault
from ops.conformance.evaluation import Tally
from tests.vectors.bundle_copy import (
    BundleCopy,
    admission,
    cryptography,
    evaluation_of,
    only_failure,
    structural,
)
from tests.vectors.protocol_schemas import bundle, needs_bundle

pytestmark = needs_bundle
golden = "accept.command.golden"
command = "cryptography/vectors/signed-documents/valid/command.json"
secret = "what nobody may read"


@pytest.fixture
def copy(tmp_path: Path) -> BundleCopy:
    return BundleCopy(tmp_path)


def weavehold(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ops.cli", "conformance", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parents[2],
    )


def observed(tally: Tally) -> str:
    return "\n".join(failure.observed for failure in tally.failures)


# The command.


def test_everything_passes() -> None:
    """TRU-1, TRU-2, TRU-3, TRU-4, OPS-2: exactly one object, exit code 0."""
    ended = weavehold("--bundle", bundle, "--json")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout) == {
        "structural": {"passed": 41, "failed": 0, "failures": []},
        "cryptography": {"passed": 45, "failed": 0, "failures": []},
        "admission": {"passed": 19, "failed": 0, "failures": []},
    }
    assert ended.stdout.count("\n") == 1


def test_people_get_a_table() -> None:
    """OPS-2."""
    ended = weavehold("--bundle", bundle)
    assert ended.returncode == 0
    assert all(name in ended.stdout for name in ("structural", "cryptography", "admission", "everything passes"))


def test_a_failure_is_named_and_the_exit_code_is_1(copy: BundleCopy) -> None:
    """OPS-2: case, evaluation, expected and observed, as JSON and for people."""
    manifest = copy.json(cryptography)
    evaluation_of(manifest, "reject.key-resolution.unknown-key")["expect"]["stage"] = "signature"
    copy.seal_all(manifest, copy.json(admission))
    ended = weavehold("--bundle", copy.directory, "--json")
    assert ended.returncode == 1
    report = json.loads(ended.stdout)
    assert report["admission"] == {"passed": 19, "failed": 0, "failures": []}
    assert (report["cryptography"]["passed"], report["cryptography"]["failed"]) == (44, 1)
    [failure] = report["cryptography"]["failures"]
    unregistered = "no key urn:missionweaveprotocol:key:crypto-vector-missing is registered"
    assert failure == {
        "case": "reject.key-resolution.unknown-key",
        "evaluation": "command/unknown-key",
        "expected": "stage signature, AUTH_INVALID_SIGNATURE",
        "observed": f"stage key-resolution, AUTH_INVALID_SIGNATURE: {unregistered}",
    }
    shown = weavehold("--bundle", copy.directory)
    assert shown.returncode == 1
    assert "reject.key-resolution.unknown-key" in shown.stdout


def test_no_folder_and_no_manifest_are_usage_errors(tmp_path: Path) -> None:
    """OPS-2: exit code 2 and the remedy."""
    for directory, words in ((tmp_path / "none", "is no folder"), (tmp_path, "has no conformance/manifest.json")):
        ended = weavehold("--bundle", directory, "--json")
        assert ended.returncode == 2
        assert words in json.loads(ended.stdout)["fault"]
        assert "--bundle names the" in ended.stderr
    assert weavehold("--json").returncode == 2


@pytest.mark.parametrize("name", [structural, cryptography, admission])
def test_every_manifest_must_be_there(copy: BundleCopy, name: str) -> None:
    """OPS-2: a bundle of two thirds proves nothing."""
    copy.path(name).unlink()
    with pytest.raises(UsageFault, match=name):
        copy.run()


@pytest.mark.parametrize(
    "members", [{"protocolVersion": "0.2"}, {"manifestVersion": 2}, {"profileId": "missionweaveprotocol.other.v0.1"}]
)
@pytest.mark.parametrize("name", [cryptography, admission])
def test_another_version_is_a_usage_error(copy: BundleCopy, name: str, members: dict[str, Any]) -> None:
    """OPS-2: what is written for another protocol is not judged by this one."""
    copy.write(name, copy.json(name) | members)
    with pytest.raises(UsageFault, match="and this runner knows"):
        copy.run()


# Damage.


def test_a_flipped_byte_fails_what_uses_the_file(copy: BundleCopy) -> None:
    """TRU-3: every evaluation with this document, in both bundles, and nothing else."""
    copy.flip_byte(command)
    uses = {
        name: json.dumps(copy.json(name)["cases"]).count(f'"document": "{command}"')
        for name in (cryptography, admission)
    }
    report = copy.run()
    assert report.structural.failed == 0
    for tally, name, total in ((report.cryptography, cryptography, 45), (report.admission, admission, 19)):
        assert (tally.failed, tally.passed) == (uses[name], total - uses[name])
        assert all(f"{command} has " in failure.observed for failure in tally.failures)


def test_a_missing_file_fails_what_uses_it(copy: BundleCopy) -> None:
    """TRU-3: it is counted, it never ends the run."""
    copy.path("cryptography/vectors/canonicalization/event.signing.jcs").unlink()
    copy.path("admission/records/valid/event.json").unlink()
    copy.path("conformance/vectors/valid/event.json").unlink()
    report = copy.run()
    for tally, path in (
        (report.cryptography, "cryptography/vectors/canonicalization/event.signing.jcs"),
        (report.admission, "admission/records/valid/event.json"),
        (report.structural, "conformance/vectors/valid/event.json"),
    ):
        assert only_failure(tally).observed == f"{path} is missing"


def test_a_bad_file_that_no_evaluation_uses_is_a_failure_of_its_own(copy: BundleCopy) -> None:
    """TRU-3: the manifest vouches for it all the same."""
    for path in ("cryptography/keys/signing-test-reviewer.json", "admission/manifest.schema.json"):
        copy.flip_byte(path)
    report = copy.run()
    assert (report.cryptography.passed, report.admission.passed) == (45, 19)
    failure = only_failure(report.cryptography)
    assert (failure.case, failure.evaluation) == (cryptography, "cryptography/keys/signing-test-reviewer.json")
    assert only_failure(report.admission).evaluation == "admission/manifest.schema.json"
    assert not report.ok


def test_a_flipped_byte_in_a_schema_fails_what_it_judges(copy: BundleCopy) -> None:
    """TRU-1: schemas are artifacts too, also those that others refer to."""
    copy.flip_byte(
        "schemas/common.schema.json", copy.path("schemas/common.schema.json").read_bytes().index(b"MissionWeave")
    )
    report = copy.run()
    assert "schemas/common.schema.json has 6844 bytes" in observed(report.cryptography)
    assert report.admission.passed < 19
    copy.flip_byte("cryptography/registry-fixture.schema.json", 3)
    report = copy.run()
    assert (report.cryptography.passed, report.admission.passed) == (1, 0)


def test_a_wrong_digest_in_the_manifest(copy: BundleCopy) -> None:
    """TRU-3: a listed digest or length that is wrong, and the manifest's own digest."""
    manifest = copy.json(cryptography)
    [entry] = [each for each in manifest["artifacts"] if each["path"] == "cryptography/manifest.schema.json"]
    entry["byteLength"] += 1
    copy.write(cryptography, manifest)
    report = copy.run()
    assert report.cryptography.passed == 45
    digest, artifact = report.cryptography.failures
    assert (digest.evaluation, digest.expected) == ("artifactDigest", manifest["artifactDigest"])
    assert artifact.evaluation == "cryptography/manifest.schema.json"
    # The admission bundle names the digest that the manifest should have.
    assert only_failure(report.admission).evaluation == "cryptography"


def test_a_forged_expectation_without_a_new_digest(copy: BundleCopy) -> None:
    """TRU-3: a changed manifest is noticed even where every evaluation passes."""
    manifest = copy.json(admission)
    manifest["cases"].pop()
    copy.write(admission, manifest)
    tally = copy.run().admission
    assert tally.passed == 8
    assert only_failure(tally).evaluation == "artifactDigest"


def test_a_file_that_no_manifest_lists_is_not_used(copy: BundleCopy) -> None:
    """TRU-3: nobody vouches for it."""
    manifest = copy.json(cryptography)
    manifest["artifacts"] = [each for each in manifest["artifacts"] if each["path"] != command]
    copy.seal_all(manifest, copy.json(admission))
    report = copy.run()
    assert f"{command} is not among the manifest's artifacts" in observed(report.cryptography)
    assert f"{command} is not among the manifest's artifacts" in observed(report.admission)


def test_fixtures_are_judged_by_their_schemas(copy: BundleCopy) -> None:
    """TRU-2: a registry or key that the fixture's schema refuses is no basis, whatever it leads to."""
    manifest = copy.json(cryptography)
    for path, members in (
        ("cryptography/keys/registry-wrong-principal.json", {"more": 1}),
        ("cryptography/keys/signing-group-authority.json", {"testOnly": False}),
    ):
        copy.write(path, copy.json(path) | members)
    copy.seal_all(manifest, copy.json(admission))
    tally = copy.run().cryptography
    assert {failure.observed for failure in tally.failures} == {
        "cryptography/keys/registry-wrong-principal.json is refused by cryptography/registry-fixture.schema.json",
        "cryptography/keys/signing-group-authority.json is refused by cryptography/signing-key-fixture.schema.json",
    }
    assert {failure.evaluation for failure in tally.failures} >= {"command/wrong-principal-binding", "event"}


# Manifests.


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"7", b'{"a": 1, "a": 1}'])
@pytest.mark.parametrize("name", [structural, cryptography, admission])
def test_a_manifest_that_is_none_is_one_failure(copy: BundleCopy, name: str, raw: bytes) -> None:
    """OPS-2: a damaged manifest is a finding, not a crash."""
    copy.write(name, raw)
    report = copy.run()
    tally = {structural: report.structural, cryptography: report.cryptography, admission: report.admission}[name]
    assert tally.passed == 0
    failure = only_failure(tally)
    assert (failure.case, failure.evaluation) == (name, "manifest")
    assert not report.ok


def test_bundles_without_evaluations_prove_nothing(copy: BundleCopy) -> None:
    """OPS-2: exit code 0 needs something that was run."""
    copy.write(structural, [])
    copy.seal_all(copy.json(cryptography) | {"cases": []}, copy.json(admission) | {"cases": []})
    report = copy.run()
    assert not report.ok
    for _, tally in report.tallies():
        assert (only_failure(tally).evaluation, tally.passed) == ("evaluations", 0)


def test_malformed_parts_of_a_manifest_are_named(copy: BundleCopy) -> None:
    """OPS-2: each once, and whatever else is sound is run."""
    manifest = copy.json(admission) | {"semanticStage": "other", "wireCode": "OTHER"}
    manifest["artifacts"].append({"path": 7})
    manifest["cases"] += [7, {"id": "x"}, {"id": "x", "evaluations": []}, {"id": "x\ud800", "evaluations": [None]}]
    copy.write(admission, manifest)
    tally = copy.run().admission
    assert tally.passed == 19
    assert [failure.evaluation for failure in tally.failures] == [
        *("evaluation 1", "artifactDigest", "artifact 15", "case 5", "case 6", "case 7", "semanticStage", "wireCode"),
    ]
    assert tally.failures[0].case == "x?"
    assert weavehold("--bundle", copy.directory, "--json").returncode == 1


def test_a_manifest_of_nothing_but_its_version(copy: BundleCopy) -> None:
    """OPS-2."""
    for name in (cryptography, admission):
        known = ("protocolVersion", "manifestVersion", "profileId")
        copy.write(name, {member: copy.json(name)[member] for member in known})
    report = copy.run()
    for tally in (report.cryptography, report.admission):
        assert tally.passed == 0
        assert {"artifacts", "cases", "fixtureSchemas/registry"} <= {each.evaluation for each in tally.failures}


# Paths.


def test_no_path_leads_out_of_the_bundle(copy: BundleCopy) -> None:
    """TRU-3: refused by name, never read, whichever way it points."""
    outside = copy.directory.parent / "outside.json"
    outside.write_text(secret)
    copy.path("link.json").symlink_to(outside)
    copy.path("folder").symlink_to(copy.directory.parent)
    copy.path("loop").symlink_to("loop")
    escapes = [
        *("../outside.json", "schemas/../../outside.json", str(outside), "link.json", "folder/outside.json"),
        *("schemas\\..\\..\\outside.json", "c:/outside.json", "./schemas", "schemas//x", "", "a\0b", "\ud800"),
        *("loop", "schemas"),
        "x" * 5_000,
    ]
    manifest = copy.json(cryptography)
    canonical = evaluation_of(manifest, "accept.canonicalization.rfc8785-section-3.2.2")
    evaluations = [canonical | {"input": escape} for escape in escapes]
    manifest["cases"].append({"id": "escapes", "kind": "canonicalization", "evaluations": evaluations})
    # Listed or not, the answer is the same.
    manifest["artifacts"] += [{"path": path, "byteLength": 20, "sha256": "sha256:" + "0" * 64} for path in escapes]
    copy.write(cryptography, manifest)
    event = {"name": "x", "schema": "schemas/event.schema.json", "valid": True}
    copy.write(structural, [*copy.json(structural), *(event | {"instance": escape} for escape in escapes)])
    report = copy.run()
    assert (report.structural.passed, report.cryptography.passed) == (41, 45)
    refused = ("was not read", "is missing", "cannot be read")
    failures = [failure for failure in report.cryptography.failures if failure.case == "escapes"]
    for failure in [*failures, *report.structural.failures]:
        assert failure.observed.endswith(refused[:2]) or refused[2] in failure.observed, failure
    assert (len(failures), report.structural.failed) == (len(escapes), len(escapes))
    # Nothing of them is reported twice: the manifest's digest is the only other failure.
    assert report.cryptography.failed == len(escapes) + 1
    assert secret not in weavehold("--bundle", copy.directory, "--json").stdout


def test_a_manifest_outside_is_not_read(copy: BundleCopy) -> None:
    """TRU-3: the manifests' own names may be links too."""
    outside = copy.directory.parent / "manifest.json"
    copy.path(structural).rename(outside)
    copy.path(structural).symlink_to(outside)
    tally = copy.run().structural
    assert only_failure(tally).observed == f"{structural} leads out of the bundle; it was not read"


def test_links_inside_the_bundle_are_followed(copy: BundleCopy) -> None:
    """TRU-3: only what leads out is refused."""
    copy.path("moved.json").write_bytes(copy.path(command).read_bytes())
    copy.path(command).unlink()
    copy.path(command).symlink_to(copy.path("moved.json"))
    assert copy.run().ok

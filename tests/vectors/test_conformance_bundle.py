"""The structural bundle: every instance is accepted or refused as its manifest says (TRU-1, stage `schema`)."""

from pathlib import Path

import msgspec
import pytest

from contracts.command import coordinator_only_kinds, core_command_kinds, organization_scoped_kinds
from contracts.document_kinds import DocumentKind
from contracts.documents.schemas import document_types, schema_names
from contracts.event import core_event_kinds
from contracts.rejection import Code
from ops.conformance.evaluation import Evaluation, try_evaluation
from ops.conformance.run import open_sections
from tests.vectors.bundle_copy import BundleCopy, structural
from tests.vectors.protocol_schemas import bundle, needs_bundle, schema, schema_files

pytestmark = needs_bundle
section = open_sections(bundle)["structural"] if bundle.is_dir() else None
evaluations = section.evaluations if section else ()


@pytest.mark.parametrize("evaluation", evaluations, ids=lambda evaluation: evaluation.case)
def test_tru_1_instance_is_judged_as_the_manifest_says(evaluation: Evaluation) -> None:
    """TRU-1: our Structs and the schemas agree with the manifest."""
    assert try_evaluation(evaluation, set()) is None


def test_every_entry_of_the_manifest_is_an_evaluation() -> None:
    """TRU-1."""
    assert section is not None
    assert (len(section.evaluations), section.faults) == (41, [])


def test_tru_1_every_schema_has_its_struct() -> None:
    """TRU-1: all 22 schemas are covered; `common` defines parts only."""
    assert schema_names | {"common"} == schema_files()
    assert len(schema_files()) == 22
    for name, struct in document_types.items():
        members = {field.encode_name: field.required for field in msgspec.structs.fields(struct)}
        assert set(members) == set(schema(name)["properties"]), name
        assert {member for member, required in members.items() if required} == set(schema(name)["required"]), name


def test_tru_1_kinds_of_commands_and_events_are_those_of_the_schemas() -> None:
    """TRU-1: our sets of kinds against the enumerations of the envelopes."""
    definitions = schema("command")["$defs"]
    assert core_command_kinds == set(definitions["coreCommandKind"]["enum"])
    assert organization_scoped_kinds == set(definitions["organizationScopedKind"]["enum"])
    assert coordinator_only_kinds == set(definitions["coordinatorOnlyKind"]["enum"])
    assert core_event_kinds == set(schema("event")["properties"]["kind"]["anyOf"][0]["enum"])
    assert {kind.value for kind in DocumentKind} == set(
        schema("first-admission-record")["properties"]["documentKind"]["enum"]
    )


def test_err_1_codes_are_those_of_the_schema_in_its_order() -> None:
    """ERR-1: the 27 codes."""
    assert [code.value for code in Code] == schema("error")["properties"]["code"]["enum"]


def test_a_wrong_verdict_is_named(tmp_path: Path) -> None:
    """TRU-1: an entry that says the opposite, whichever way, fails by its name."""
    copy = BundleCopy(tmp_path)
    entries = copy.json(structural)
    for entry in (entries[0], entries[-1]):
        entry["valid"] = not entry["valid"]
    copy.write(structural, entries)
    tally = copy.run().structural
    assert (tally.passed, tally.failed) == (39, 2)
    assert [(each.case, each.evaluation) for each in tally.failures] == [
        (entry["name"], entry["instance"]) for entry in (entries[0], entries[-1])
    ]
    assert (tally.failures[0].expected, tally.failures[0].observed) == ("refused", "accepted")


def test_more_members_and_more_entries_are_no_obstacle(tmp_path: Path) -> None:
    """TRU-1: the complete bundle has more of both than this one."""
    copy = BundleCopy(tmp_path)
    entries = copy.json(structural)
    copy.write(structural, [{**entry, "note": "more"} for entry in entries * 2])
    assert copy.run().structural.passed == 82


def test_our_struct_and_a_schema_of_the_bundle_must_agree(tmp_path: Path) -> None:
    """TRU-1: a schema that was loosened is noticed, since two judges give each verdict."""
    copy = BundleCopy(tmp_path)
    loosened = copy.json("schemas/mission.schema.json")
    copy.write("schemas/mission.schema.json", {"$id": loosened["$id"]})
    tally = copy.run().structural
    assert tally.failed == 1
    assert "accepted by schemas/mission.schema.json, refused by us" in tally.failures[0].observed


def test_an_entry_that_cannot_be_judged_fails(tmp_path: Path) -> None:
    """TRU-1: neither skipped nor the end of the run."""
    event = {"name": "x", "schema": "schemas/event.schema.json", "valid": False}
    entries: dict[str, object] = {
        "the schema of no document kind": event | {"schema": "schemas/common.schema.json", "instance": "LICENSE"},
        "LICENSE is no JSON": event | {"instance": "LICENSE"},
        "no.json is missing": event | {"instance": "no.json"},
        "required field `instance`": event,
        "Expected `object`": 7,
    }
    copy = BundleCopy(tmp_path)
    copy.write(structural, [*copy.json(structural), *entries.values()])
    tally = copy.run().structural
    assert (tally.passed, tally.failed) == (41, len(entries))
    for failure, observed in zip(tally.failures, entries, strict=True):
        assert observed in failure.observed

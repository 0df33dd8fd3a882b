"""The conformance bundle: every instance is accepted or refused as its manifest says (TRU-1, stage `schema`)."""

import json
from typing import Any

import msgspec
import pytest

from contracts.command import coordinator_only_kinds, core_command_kinds, organization_scoped_kinds
from contracts.document_kinds import DocumentKind
from contracts.documents.schemas import document_types, read_document, schema_names
from contracts.event import core_event_kinds
from contracts.rejection import Code
from tests.vectors.protocol_schemas import accepts, bundle, needs_bundle, schema, schema_files

pytestmark = needs_bundle


def _manifest() -> list[dict[str, Any]]:
    path = bundle / "conformance" / "manifest.json"
    return json.loads(path.read_text()) if path.is_file() else []


@pytest.mark.parametrize("case", _manifest(), ids=lambda case: case["name"])
def test_tru_1_instance_is_judged_as_the_manifest_says(case: dict[str, Any]) -> None:
    """TRU-1: our Structs and the schemas agree with the manifest."""
    name = case["schema"].removeprefix("schemas/").removesuffix(".schema.json")
    instance = json.loads((bundle / case["instance"]).read_text())
    assert accepts(name, instance) is case["valid"]
    if case["valid"]:
        assert json.loads(msgspec.json.encode(read_document(name, instance))) == instance
    else:
        with pytest.raises(msgspec.ValidationError):
            read_document(name, instance)


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

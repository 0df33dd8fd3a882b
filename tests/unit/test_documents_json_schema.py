"""What `weavehold schema` prints: valid, complete, ECMAScript, and judging as the bundle says (TRU-1)."""

import json
import os
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from contracts.documents.common import Actor, Document
from contracts.documents.conditions import always, unique
from contracts.documents.json_schema import SchemaWriter, dialect, ecma_pattern, json_schema, kinds
from contracts.documents.reading import read as read_struct
from contracts.documents.schemas import document_types, schema_names
from contracts.identifiers import uri_pattern
from contracts.payloads.registry import command_payloads, event_payloads, read_command_payload
from contracts.rejection import Rejection
from ops.cli import app
from ops.command_fault import UsageFault
from ops.commands.schema import groups, schema_of
from ops.conformance.schema_judge import SchemaJudge
from tests import document_samples as samples
from tests.unit.test_payloads import command, payloads
from tests.vectors.document_instances import uris
from tests.vectors.document_neighbours import no_uris
from tests.vectors.protocol_schemas import bundle, is_uri, needs_bundle, schema_files

node: Final = shutil.which("node")


def _patterns(part: Any) -> set[str]:
    found: set[str] = set()
    if isinstance(part, dict):
        if isinstance(part.get("pattern"), str):
            found.add(part["pattern"])
        found.update(*(_patterns(inner) for inner in part.values()))
    elif isinstance(part, list):
        found.update(*(_patterns(inner) for inner in part))
    return found


@pytest.mark.parametrize("kind", kinds)
def test_tru_1_written_schemas_are_schemas(kind: str) -> None:
    """TRU-1: each is valid Draft 2020-12 and refers to nothing outside itself or unused inside."""
    written = json_schema(kind)
    assert written["$schema"] == dialect
    Draft202012Validator.check_schema(written)
    text = json.dumps(written)
    used = {name for name in written["$defs"] if f'"#/$defs/{name}"' in text}
    assert text.count('"$ref"') == text.count('"$ref": "#/$defs/')
    assert kind == "common" or used == set(written["$defs"])


def test_tru_1_there_are_22_kinds() -> None:
    """TRU-1: every document, and the common parts."""
    assert set(kinds) == schema_names | {"common"}
    assert len(kinds) == 22


@needs_bundle
def test_tru_1_the_kinds_are_those_of_the_protocol() -> None:
    """TRU-1: one for each schema of the bundle."""
    assert set(kinds) == schema_files()


def _manifest() -> list[dict[str, Any]]:
    path = bundle / "conformance" / "manifest.json"
    return json.loads(path.read_text()) if path.is_file() else []


@needs_bundle
@pytest.mark.parametrize("case", _manifest(), ids=lambda case: case["name"])
def test_tru_1_written_schemas_judge_as_the_manifest_says(case: dict[str, Any]) -> None:
    """TRU-1: the conformance instances."""
    kind = case["schema"].removeprefix("schemas/").removesuffix(".schema.json")
    instance = json.loads((bundle / case["instance"]).read_text())
    assert SchemaJudge({kind: json_schema(kind)}).accepts(kind, instance) is case["valid"]


def test_tru_1_patterns_are_ecmascript() -> None:
    """TRU-1: nothing of Python's own is left in them."""
    for pattern in set[str]().union(*(_patterns(json_schema(kind)) for kind in kinds)):
        assert not any(sign in pattern for sign in (r"\A", r"\Z", "++|", "*+)", "(?P", "(?>")), pattern


@pytest.mark.skipif(node is None, reason="no node here to read the patterns")
def test_tru_1_an_ecmascript_engine_reads_the_patterns_alike() -> None:
    """TRU-1: V8 compiles every pattern with the flag `u`, and finds in URIs what the reading by hand finds, fast."""
    patterns = sorted(set[str]().union(*(_patterns(json_schema(kind)) for kind in kinds)))
    texts = [*uris, *no_uris, "a:" + "a" * 200_000 + " ", "a://" + "a:" * 100_000 + "@@"]
    program = (
        "const {patterns, uri, texts} = JSON.parse(require('fs').readFileSync(0));"
        "patterns.forEach(pattern => new RegExp(pattern, 'u'));"
        "console.log(JSON.stringify(texts.map(text => new RegExp(uri, 'u').test(text))))"
    )
    asked = json.dumps({"patterns": patterns, "uri": ecma_pattern(uri_pattern), "texts": texts})
    ended = subprocess.run(
        [str(node), "-e", program], input=asked, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [is_uri(text) for text in texts]


def test_tru_1_an_unprintable_pattern_is_an_error() -> None:
    """TRU-1: possession that cannot be left out is noticed, not dropped."""
    with pytest.raises(ValueError, match="no equal in ECMAScript"):
        ecma_pattern(r"\A(?:a|b)++\Z")


def test_tru_1_conditions_name_members_that_exist() -> None:
    """TRU-1: a misspelled member is found when the schema is written, at the latest."""

    class Misspelled(Document, frozen=True, kw_only=True):
        names: tuple[str, ...]
        rules = unique("nams")

    with pytest.raises(AttributeError, match="nams"):
        msgspec.convert({"names": ["a", "b"]}, Misspelled)


def test_tru_1_every_condition_is_about_its_document() -> None:
    """TRU-1: what the written schemas demand or refuse are members of the documents."""
    for kind in document_types:
        written = json_schema(kind)
        for holder in [written, *written["$defs"].values()]:
            members = set(holder.get("properties", {}))
            for part in holder.get("allOf", ()):
                assert _members_named(part) <= members, kind


def _members_named(part: dict[str, Any]) -> set[str]:
    """Members of the object itself that a condition names."""
    named = {*part.get("required", ()), *part.get("properties", {})}
    inner = [part[key] for key in ("if", "then", "not") if key in part]
    inner += [each for key in ("allOf", "anyOf") for each in part.get(key, ())]
    return named.union(*(_members_named(each) for each in inner))


def test_tru_1_an_undeclared_check_is_an_error() -> None:
    """TRU-1: a Struct that checks by hand would print a schema that accepts more than it does."""

    class ByHand(Document, frozen=True, kw_only=True):
        actor: Actor

        def __post_init__(self) -> None:
            raise ValueError

    class Holding(Document, frozen=True, kw_only=True):
        inner: ByHand
        rules = (always(holder="this", takes={}),)

    with pytest.raises(TypeError, match="ByHand has a __post_init__ of its own"):
        SchemaWriter().object_of(msgspec.inspect.type_info(Holding))


def test_tru_1_the_same_schema_every_time() -> None:
    """TRU-1: the sets of names in it have one order, whatever a process makes of them."""
    program = (
        "import json; from contracts.documents.json_schema import *; print(json.dumps([*map(json_schema, kinds)]))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": number, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            check=True,
        ).stdout
        for number in ("1", "2")
    }
    assert len(texts) == 1


@pytest.mark.parametrize("kind", [*command_payloads, *event_payloads])
def test_tru_1_payload_schemas_are_schemas(kind: str) -> None:
    """TRU-1: of every Command and Event kind; closed, whole, and valid Draft 2020-12."""
    written = schema_of(kind)
    assert written["$schema"] == dialect
    SchemaJudge({kind: written}).validator(kind)
    text = json.dumps(written)
    assert {name for name in written["$defs"] if f'"#/$defs/{name}"' in text} == set(written["$defs"])
    assert text.count('"$ref"') == text.count('"$ref": "#/$defs/')
    assert not any(sign in pattern for pattern in _patterns(written) for sign in (r"\A", r"\Z", "++|", "*+)"))
    shape = {**command_payloads, **event_payloads}[kind]
    assert set(written["properties"]) == {field.encode_name for field in msgspec.structs.fields(shape)}


@pytest.mark.parametrize("kind", sorted(payloads))
def test_tru_1_payload_schemas_judge_as_the_structs_do(kind: str) -> None:
    """TRU-1, RULE-01: the least payload is accepted; another member, and each member left out or null, as read."""
    judge, least = SchemaJudge({kind: schema_of(kind)}), payloads[kind]
    assert judge.accepts(kind, least)
    assert not judge.accepts(kind, {**least, "authority": True})
    for member in least:
        without = {name: value for name, value in least.items() if name != member}
        for payload in (without, {**least, member: None}):
            read = not isinstance(read_command_payload(command(kind, payload)), Rejection)
            assert judge.accepts(kind, payload) is read, (member, payload)


@pytest.mark.parametrize(
    ("kind", "payload", "valid"),
    [
        ("message.posted", {"message": samples.documents["message"]}, True),
        ("message.posted", {"message": samples.documents["message"], "note": ""}, False),
        ("membership.changed", {"membership": samples.documents["membership"]}, True),
        ("membership.changed", {}, False),
        *(
            (
                "work.authorized",
                {
                    "workItem": samples.documents["work-item"],
                    "conversation": samples.documents["conversation"],
                    **proposal,
                },
                valid,
            )
            for proposal, valid in (
                ({"proposalId": None}, True),
                ({"proposalId": "a:b"}, True),
                ({"proposalId": 1}, False),
                ({}, False),
            )
        ),
    ],
)
def test_tru_1_event_payload_schemas_judge_as_the_structs_do(kind: str, payload: dict[str, Any], valid: bool) -> None:
    """TRU-1: of Events; null is allowed only where the Struct names it."""
    assert SchemaJudge({kind: schema_of(kind)}).accepts(kind, payload) is valid
    try:
        read = bool(read_struct(payload, event_payloads[kind]))
    except msgspec.ValidationError:
        read = False
    assert read is valid


def test_tru_1_the_shipped_command_is_what_the_schema_says() -> None:
    """TRU-1, OPS-2: the sample that README sends has a payload of its kind and lacks only what `send` adds."""
    sample = json.loads((Path(__file__).parents[2] / "ops" / "demo" / "samples" / "register-key.json").read_text())
    assert SchemaJudge({"payload": schema_of(sample["kind"])}).accepts("payload", sample["payload"])
    added = {name: samples.documents["command"][name] for name in _added_by_send}
    judge = SchemaJudge({"command": json_schema("command")})
    assert judge.accepts("command", {**sample, **added, "actor": samples.service})


_added_by_send: Final = ("protocolVersion", "actionId", "correlationId", "issuedAt", "signature")


@pytest.mark.parametrize("kind", ["work-item", "mission.create", "message.posted"])
def test_ops_2_schema_prints_one_object(kind: str) -> None:
    """OPS-2: the schema alone on stdout, with and without --json."""
    for extra in ([], ["--json"]):
        ended = CliRunner().invoke(app, ["schema", kind, *extra])
        assert ended.exit_code == 0
        assert json.loads(ended.stdout) == schema_of(kind)


def test_ops_2_schema_lists_the_kinds() -> None:
    """OPS-2: without a kind, or when asked: documents, Commands, Events."""
    listed = {"documents": list(kinds), "commandKinds": list(command_payloads), "eventKinds": list(event_payloads)}
    for arguments in (["schema"], ["schema", "--list"]):
        shown = CliRunner().invoke(app, arguments).stdout.splitlines()
        assert [each.strip() for each in shown if each.startswith("  ")] == list(chain(*listed.values()))
        assert [each for each in shown if not each.startswith("  ")] == [
            "Documents:",
            "Payloads of Commands:",
            "Payloads of Events:",
        ]
    assert json.loads(CliRunner().invoke(app, ["schema", "--json"]).stdout) == listed


def test_ops_2_a_kind_names_one_thing() -> None:
    """OPS-2: no name of a document, Command or Event means two schemas."""
    names = [name for group in groups.values() for name in group]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("comand", "did you mean command"),
        ("mission.creat", "did you mean mission.create "),
        ("Message.Posted", "did you mean message.posted "),
        ("key_register", "did you mean ext.weavehold.registry.key_register"),
        ("zzz", "--list shows all"),
        ("", "--list shows all"),
    ],
)
def test_ops_2_a_wrong_kind_is_a_usage_error(kind: str, words: str) -> None:
    """OPS-2: the message proposes near ones; a UsageFault ends with 2."""
    ended = CliRunner().invoke(app, ["schema", kind])
    assert isinstance(ended.exception, UsageFault)
    assert ended.exception.exit_code == 2
    assert words in str(ended.exception)

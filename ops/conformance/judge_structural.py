"""The structural bundle: an instance is accepted or refused by a schema's document kind (TRU-1, stage `schema`).

Our Structs and the bundle's own schemas must both say what the manifest says.
"""

from functools import partial
from typing import Any, Final

from msgspec import Struct, ValidationError

from contracts.canonical import canonical_bytes
from contracts.documents.reading import read
from contracts.documents.schemas import read_document, schema_names
from ops.conformance.bundle_schemas import BundleSchemas
from ops.conformance.evaluation import Evaluation, Failure, Section, failure, unreadable
from ops.conformance.read_bundle import Bundle, BundleFault, json_of
from ops.conformance.read_manifest import require

structural_manifest: Final = "conformance/manifest.json"
_accepted: Final = "accepted"
_refused: Final = "refused"


class StructuralCase(Struct, frozen=True, kw_only=True):
    """One entry of the manifest: whether the schema accepts the instance."""

    name: str
    schema: str
    instance: str
    valid: bool


def structural_section(bundle: Bundle) -> Section:
    """Every entry of the manifest as one evaluation. Raises UsageFault when there is no manifest."""
    require(bundle, structural_manifest)
    faults: list[Failure] = []
    try:
        entries = _entries(bundle)
    except BundleFault as fault:
        entries = []
        faults.append(failure(structural_manifest, "manifest", "a list of cases", str(fault)))
    schemas = BundleSchemas(bundle, bundle.read)
    evaluations = [_evaluation(bundle, schemas, number, entry) for number, entry in enumerate(entries, 1)]
    return Section(manifest=structural_manifest, evaluations=evaluations, faults=faults)


def _entries(bundle: Bundle) -> list[Any]:
    entries = json_of(structural_manifest, bundle.read(structural_manifest))
    if isinstance(entries, list):
        return entries
    raise BundleFault(structural_manifest, "is no list of cases")


def _evaluation(bundle: Bundle, schemas: BundleSchemas, number: int, entry: Any) -> Evaluation:
    try:
        case = read(entry, StructuralCase)
    except ValidationError as fault:
        return unreadable(structural_manifest, f"case {number}", fault)
    expected = _accepted if case.valid else _refused
    return Evaluation(case.name, case.instance, expected, partial(_observe, bundle, schemas, case))


def _observe(bundle: Bundle, schemas: BundleSchemas, case: StructuralCase) -> str:
    name = case.schema.removeprefix("schemas/").removesuffix(".schema.json")
    if name not in schema_names:
        return f"{case.schema} is the schema of no document kind"
    instance = json_of(case.instance, bundle.read(case.instance))
    judged = schemas.accepts(case.schema, instance)
    try:
        document = read_document(name, instance)
    except ValidationError as fault:
        return f"accepted by {case.schema}, refused by us: {fault}" if judged else _refused
    if not judged:
        return f"refused by {case.schema}, accepted by us"
    return (
        _accepted if canonical_bytes(document) == canonical_bytes(instance) else "accepted, but read as something else"
    )

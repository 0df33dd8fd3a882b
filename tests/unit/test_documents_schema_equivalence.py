"""Our Structs accept and refuse exactly what the protocol's JSON Schemas accept and refuse (TRU-1, stage `schema`)."""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from contracts.documents.schemas import read_document, schema_names
from tests.vectors.document_instances import instances, normalized
from tests.vectors.document_neighbours import neighbours, variants
from tests.vectors.protocol_schemas import accepts, needs_bundle

pytestmark = needs_bundle

quick_examples = 3
"""Instances of one schema in `make test`."""
quick_neighbours = 25
"""Neighbours of each that are judged in `make test`."""
thorough_examples = 2
"""Instances of one schema in `make fault`; all neighbours of all variants are judged."""

# A neighbour names its one change, so there is nothing to shrink.
_common = settings(
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
quick = settings(_common, max_examples=quick_examples)
thorough = settings(_common, max_examples=thorough_examples)


@pytest.mark.parametrize("name", sorted(schema_names))
@quick
@given(data=st.data())
def test_tru_1_structs_and_schemas_judge_alike(name: str, data: st.DataObject) -> None:
    """TRU-1: drawn instances and some neighbours of one of their variants."""
    instance = data.draw(instances(name))
    judge_alike(name, "as drawn", instance)
    variant = data.draw(st.sampled_from(variants(name, instance)))
    judge_alike(name, "as varied", variant)
    chance = data.draw(st.randoms(use_true_random=True))
    near = list(neighbours(name, variant))
    for what, neighbour in chance.sample(near, min(quick_neighbours, len(near))):
        judge_alike(name, what, neighbour)


@pytest.mark.fault
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", sorted(schema_names))
@thorough
@given(data=st.data())
def test_tru_1_all_neighbours_are_judged_alike(name: str, data: st.DataObject) -> None:
    """TRU-1: drawn instances, all their variants, and every neighbour of each."""
    for variant in variants(name, data.draw(instances(name))):
        judge_alike(name, "as varied", variant)
        for what, neighbour in neighbours(name, variant):
            judge_alike(name, what, neighbour)


def judge_alike(name: str, what: str, instance: Any) -> None:
    """Assert that Struct and schema agree, and that reading keeps everything."""
    value = normalized(instance)
    document = _read(name, value)
    if isinstance(document, msgspec.ValidationError):
        assert not accepts(name, instance), f"{what}: the schema accepts what the Struct refuses: {document}"
    else:
        assert accepts(name, instance), f"{what}: the Struct accepts what the schema refuses"
        assert _listed(msgspec.to_builtins(document)) == value, f"{what}: reading loses or changes something"


def _read(name: str, value: Any) -> msgspec.Struct | msgspec.ValidationError:
    try:
        return read_document(name, value)
    except msgspec.ValidationError as fault:
        return fault


def _listed(value: Any) -> Any:
    """Plain JSON: tuples as lists."""
    if isinstance(value, dict):
        return {name: _listed(member) for name, member in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value

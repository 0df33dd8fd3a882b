"""What was signed once means the same for ever: every recorded history through every reader, on every store (PRJ-5).

A reader whose digest differs has changed what old Events mean; the failure says what to do. See `tests.histories`.
"""

import secrets
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from contracts.bounds import event_bytes_max
from contracts.chain import chain_next, chain_start
from contracts.document_kinds import DocumentKind
from contracts.event import Event, agent_card_registered, session_opened
from contracts.payloads.registry import event_payloads
from contracts.service_principals import authority
from contracts.timestamps import instant
from contracts.verification import Verified, verify_document
from ops.embedded.postgres_server import PostgresServer
from projections.listing import listed_consumers
from tests.conftest import create_database, drop_database
from tests.histories.recorded import Head, Made, Reached, Recorded, read_recorded, recorded_names
from tests.histories.replay import RecordedKeys, consumers_of, difference, fold, project, record_digests, state_reader
from tests.store_kinds import StoreKind, store_kinds

names = recorded_names()
readers = [each.name for each in listed_consumers("urn:test:agent")]
organization_scoped = "stands in the Organization's own history, which neither a consumer nor a Group's fold reads"
unrecorded = {agent_card_registered: organization_scoped, session_opened: organization_scoped}
"""Event kind → why no recorded history holds one. A new kind belongs into a scene of a new history, not in here."""


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """One database for the projections of all these tests; each has a schema of its own."""
    name = f"recorded_{secrets.token_hex(6)}"
    yield create_database(postgres_server, name)
    drop_database(postgres_server, name)


@pytest.fixture(params=store_kinds)
def kind(request: pytest.FixtureRequest) -> StoreKind:
    """One kind of store."""
    return store_kinds[request.param]("" if request.param == "sqlite" else request.getfixturevalue("database"))


@pytest.fixture(scope="module", params=names)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    """One recorded history."""
    return read_recorded(request.param)


def test_the_recorded_histories_are_there() -> None:
    """PRJ-5: a recorded history is kept for ever; more may come."""
    assert {"whole-mission", "troubled-mission", "unknown-kinds-and-marks"} <= set(names)


def test_every_kind_is_recorded() -> None:
    """PRJ-5: each Event kind that is written stands in a recorded history, or it is said why in none."""
    events = [msgspec.json.decode(raw, type=Event) for name in names for raw in read_recorded(name).events]
    missing = event_payloads.keys() - {event.kind for event in events}
    assert missing == unrecorded.keys(), (
        f"{', '.join(sorted(missing ^ unrecorded.keys()))}: record a history that holds each new kind (a scene in "
        "tests/histories/scenes.py, then python -m tests.histories.record NAME), and excuse none that is recorded"
    )


def test_a_history_proves_itself(recorded: Recorded) -> None:
    """NEW-5: every signature verifies and every Group chains from its start to its head, by what is recorded alone."""
    reached: dict[str, Head] = {}
    keys = RecordedKeys(recorded)
    for raw in recorded.events:
        verified = verify_document(DocumentKind.EVENT, raw, keys, event_bytes_max)
        assert isinstance(verified, Verified), verified
        assert verified.principal == authority
        event = msgspec.json.decode(raw, type=Event)
        key = keys.resolve(verified.key_id)
        assert key is not None
        assert key.covers(instant(event.occurred_at))
        group_id, history = str(event.group_id), event.history
        start = Head(history.incarnation, 0, chain_start(recorded.proof.organization_id, group_id).hex())
        before = reached.get(group_id, start)
        assert (event.sequence, history.previous_hash) == (before.sequence + 1, before.chain_hash)
        chain_hash = chain_next(history.previous, verified.signing_hash)
        reached[group_id] = Head(history.incarnation, event.group_sequence, chain_hash.hex())
    assert reached == recorded.proof.heads


@pytest.mark.parametrize("place", range(len(readers)), ids=readers)
async def test_a_consumer_makes_of_it_what_it_made_then(
    recorded: Recorded, place: int, kind: StoreKind, tmp_path: Path
) -> None:
    """PRJ-5, MWP-WRK-008: the rows are digest for digest those of when the history was recorded, on both stores."""
    consumer = consumers_of(recorded)[place]
    store = await kind.open(tmp_path / secrets.token_hex(6), consumer)
    try:
        made = await project(store, recorded)
    finally:
        await store.close()
    if (fault := difference(recorded.name, consumer.name, recorded.expected().get(consumer.name), made)) is not None:
        pytest.fail(fault, pytrace=False)


def test_the_fold_makes_of_it_what_it_made_then(recorded: Recorded) -> None:
    """PRJ-5, NEW-4: the authority's state is digest for digest that of when the history was recorded."""
    expected = recorded.expected().get(state_reader)
    if (fault := difference(recorded.name, state_reader, expected, fold(recorded))) is not None:
        pytest.fail(fault, pytrace=False)


def test_no_digest_is_left_of_a_reader_that_is_gone(recorded: Recorded) -> None:
    """PRJ-5: what is expected is expected of somebody."""
    gone = recorded.expected().keys() - {state_reader, *readers}
    assert not gone, f"{', '.join(gone)} is listed no more: run {record_digests}"


def test_a_difference_is_told_with_its_remedy() -> None:
    """PRJ-5: the failure says which version of which reader differs where, and which command or change mends it."""
    made = Made(3, {"urn:test:group:one": Reached(7, "sha256:00")})
    assert difference("a-history", "board", made, made) is None
    new = difference("a-history", "board", None, made)
    assert new is not None
    assert "python -m tests.histories.record --digests" in new
    risen = difference("a-history", "board", replace(made, version=2), made)
    assert risen is not None
    assert "version 2 of board, which is at version 3 now: run python -m tests.histories.record --digests" in risen
    other = Made(3, {"urn:test:group:one": Reached(7, "sha256:01")})
    for reader, remedy in (
        ("board", "raise the version of board"),
        (state_reader, "raise contracts.entities.state_ver"),
    ):
        changed = difference("a-history", reader, made, other)
        assert changed is not None
        assert "urn:test:group:one in a-history. Undo the change, or give the Event kind a new contract ver" in changed
        assert remedy in changed


def test_a_recorded_history_is_never_written_over() -> None:
    """PRJ-5: what was signed once stays as it was signed."""
    with pytest.raises(FileExistsError):
        read_recorded(names[0]).write()

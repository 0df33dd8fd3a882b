"""Acknowledgements: the highest contiguous durable Cursor as the authority keeps it (MWP-WRK-030)."""

from pathlib import Path
from typing import Any

from contracts import subjects
from contracts.payloads.requests import acknowledge_request
from tests.builders import BuiltEvent
from tests.reads_rig import Asker, PlantedOrganization, code_of, planted, serving

group = "urn:weavehold:group:alpha"


def report(org: PlantedOrganization, event: BuiltEvent, **other: Any) -> dict[str, Any]:
    """An acknowledgement of one Event's place; `other` members replace the true ones."""
    place = {
        "groupId": group,
        "incarnation": org.incarnation,
        "sequence": event.mark.sequence,
        "chainHash": event.mark.chain_hash.hex(),
    }
    return place | other


async def kept(org: PlantedOrganization) -> list[tuple[str, int, bytes]]:
    """What the database holds: (Principal, sequence, chain hash)."""
    cursor = await org.connection.execute(
        "SELECT principal_id, sequence, chain_hash FROM acknowledgement WHERE organization_id = %s", (org.id,)
    )
    return await cursor.fetchall()


async def test_an_acknowledgement_moves_forward_only(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """MWP-WRK-030: a report moves the place forward; the same or a lower one changes nothing and says where it is."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("worker")
        built = await org.plant_group(group, 9)
        await org.plant_membership(group, key.principal)
        asker, subject = Asker(authority.nc, org.id, key), subjects.acknowledgement(org.id)
        answers = [await asker.ask(subject, acknowledge_request, report(org, built[index])) for index in (3, 7, 7, 2)]
        held = await kept(org)
        cursor = await org.connection.execute("SELECT count(*) FROM event_log WHERE group_id = %s", (group,))
        assert await cursor.fetchone() == (9,)
    assert [answer["acknowledged"]["sequence"] for answer in answers] == [4, 8, 8, 8]
    assert answers[3]["acknowledged"] == report(org, built[7])
    assert held == [(key.principal.id, 8, built[7].mark.chain_hash)]


async def test_a_place_that_the_log_does_not_have_is_refused(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """MWP-WRK-030, PRJ-3: beyond the head, with another hash or incarnation: refused, and the place stays."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        key = await org.add_agent("worker")
        built = await org.plant_group(group, 5)
        await org.plant_membership(group, key.principal)
        asker, subject = Asker(authority.nc, org.id, key), subjects.acknowledgement(org.id)
        nothing_yet = await asker.ask(subject, acknowledge_request, report(org, built[4], sequence=6))
        assert await kept(org) == []
        await asker.ask(subject, acknowledge_request, report(org, built[1]))
        refused = [
            await asker.ask(subject, acknowledge_request, report(org, built[4], **wrong))
            for wrong in (
                {"sequence": 6},
                {"sequence": 2**53 - 1},
                {"chainHash": built[3].mark.chain_hash.hex()},
                {"incarnation": "f" * 32},
            )
        ]
        malformed = [
            await asker.ask(subject, acknowledge_request, report(org, built[4], **wrong))
            for wrong in ({"sequence": 0}, {"chainHash": "00"}, {"chainHash": "F" * 64}, {"extra": 1})
        ]
        held = await kept(org)
    assert {code_of(answer) for answer in (nothing_yet, *refused)} == {"INVALID_COMMAND"}
    assert {code_of(answer) for answer in malformed} == {"SCHEMA_VALIDATION_FAILED"}
    assert held == [(key.principal.id, 2, built[1].mark.chain_hash)]


async def test_only_members_acknowledge(database_url: str, nats_url: str, tmp_path: Path) -> None:
    """MWP-WRK-030, RULE-30: a stranger and an ended member get GROUP_NOT_FOUND; each member has a place of its own."""
    async with planted(database_url, tmp_path) as org, serving(database_url, nats_url, org) as authority:
        first, second, gone = [await org.add_agent(name) for name in ("first", "second", "gone")]
        built = await org.plant_group(group, 5)
        for key in (first, second):
            await org.plant_membership(group, key.principal)
        await org.plant_membership(group, gone.principal, state="ended")
        subject = subjects.acknowledgement(org.id)
        for key, index in ((first, 1), (second, 4)):
            await Asker(authority.nc, org.id, key).ask(subject, acknowledge_request, report(org, built[index]))
        refused = await Asker(authority.nc, org.id, gone).ask(subject, acknowledge_request, report(org, built[0]))
        held = await kept(org)
    assert code_of(refused) == "GROUP_NOT_FOUND"
    assert sorted((name, sequence) for name, sequence, _ in held) == [
        (first.principal.id, 2),
        (second.principal.id, 5),
    ]


async def test_acknowledgements_of_two_organizations_stay_apart(
    database_url: str, nats_url: str, tmp_path: Path
) -> None:
    """RULE-32: the same Agent and Group in two Organizations: a place of one history means nothing in the other."""
    async with planted(database_url, tmp_path, "one") as one, planted(database_url, tmp_path, "two") as two:
        histories = {}
        for org in (one, two):
            key = await org.add_agent("worker")
            histories[org.id] = await org.plant_group(group, 3)
            await org.plant_membership(group, key.principal)
        async with serving(database_url, nats_url, one) as authority:
            asker, subject = Asker(authority.nc, one.id, key), subjects.acknowledgement(one.id)
            foreign = await asker.ask(subject, acknowledge_request, report(two, histories[two.id][2]))
            own = await asker.ask(subject, acknowledge_request, report(one, histories[one.id][1]))
        held = [await kept(org) for org in (one, two)]
    assert code_of(foreign) == "INVALID_COMMAND"
    assert own["acknowledged"]["sequence"] == 2
    assert held == [[(key.principal.id, 2, histories[one.id][1].mark.chain_hash)], []]

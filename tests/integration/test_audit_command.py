"""`weavehold audit search`, `usage` and `consumer rows` on projections in either store (OPS-2, PRJ-2)."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from projections.apply_event import apply_events
from projections.arrival import read_arrival
from projections.audit_trail.consumer import AuditTrail
from projections.group_run import ApplyRules
from projections.usage_report.consumer import UsageReport
from services.projector.projection_store import ProjectionSettings, open_store
from tests.builders import test_organization
from tests.command_rig import weavehold
from tests.mission_history import mission_history

one, two = "urn:test:group:one", "urn:test:group:two"


@pytest.fixture(params=["sqlite", "postgres"])
async def shelf(request, tmp_path):
    """Both projections of two Missions, and the variables that lead to them."""
    url = request.getfixturevalue("empty_database_url") if request.param == "postgres" else None
    settings = ProjectionSettings(tmp_path / "projections", url)
    arrivals = [read_arrival(built.raw) for group in (one, two) for built in mission_history(group)]
    for consumer in (AuditTrail(), UsageReport()):
        store = await open_store(settings, consumer, test_organization)
        assert (await apply_events(store, arrivals, ApplyRules())).applied == len(arrivals)
        await store.close()
    variables = {
        "WEAVEHOLD_ORGANIZATION": test_organization,
        "WEAVEHOLD_PROJECTION_STORE": request.param,
        "WEAVEHOLD_PROJECTION_DATABASE_URL": url or "",
        "WEAVEHOLD_PROJECTIONS_DIR": str(settings.folder),
        "WEAVEHOLD_DIRECTORY": str(tmp_path),
    }
    return SimpleNamespace(variables=variables)


async def test_audit_search(shelf):
    """Filters, pages with a continuation, people's table with whole identifiers, exit codes."""
    whole = (await weavehold(shelf, "audit", "search", "--limit", "1000", "--json")).json
    assert whole["organizationId"] == test_organization
    assert (whole["next"], whole["stopped"]) == (None, [])
    assert len(whole["events"]) == 2 * len(mission_history(one))
    paged, after = [], ()
    while True:
        page = (await weavehold(shelf, "audit", "search", "--limit", "50", "--json", *after)).json
        paged += page["events"]
        if page["next"] is None:
            break
        after = ("--after", page["next"])
    assert paged == whole["events"]
    asked = ("--text", "HELLO", "--group", two, "--kind", "message.*", "--since", "2026-07-15T00:00:00Z")
    found = (await weavehold(shelf, "audit", "search", *asked, "--json")).json["events"]
    assert [event["groupId"] for event in found] == [two] * 6
    assert {event["causeType"] for event in found} == {"command"}
    shown = await weavehold(shelf, "audit", "search", *asked, "--limit", "2", COLUMNS="400")
    assert shown.code == 0
    assert all(event["eventId"] in shown.out for event in found[:2])
    assert "more follows: --after " in shown.out
    for wrong in (("--since", "yesterday"), ("--after", "here"), ("--actor", "ada"), ("--text", "x" * 201)):
        refused = await weavehold(shelf, "audit", "search", *wrong)
        assert (refused.code, wrong[0] in refused.err) == (2, True), refused.err


async def test_usage(shelf):
    """BUD-1: per Mission and in total, money as text; a Group that is not there is a fault with a remedy."""
    told = (await weavehold(shelf, "usage", "--json")).json
    assert [mission["groupId"] for mission in told["missions"]] == [one, two]
    total = told["totals"]
    assert (total["missions"], total["outcomes"]["messages"], total["outcomes"]["checkpoints"]) == (2, 12, 2)
    assert total["budget"]["money"] == [{"currency": "USD", "limit": "200", "reserved": "0", "remaining": "200"}]
    [tokens] = [line for line in total["budget"]["counted"] if line["dimension"] == "modelTokens"]
    assert tokens == {"dimension": "modelTokens", "limit": 200_000, "reserved": 12_000, "remaining": 188_000}
    narrowed = (await weavehold(shelf, "usage", "--group", two, "--json")).json
    assert narrowed["missions"] == [told["missions"][1]]
    shown = await weavehold(shelf, "usage")
    assert (shown.code, "all 2 Missions" in shown.out, "188,000" in shown.out) == (0, True, True)
    absent = await weavehold(shelf, "usage", "--group", "urn:test:group:absent")
    assert (absent.code, "wait until it is projected" in absent.err) == (1, True)


async def test_consumer_rows(shelf):
    """Any projection's rows as they lie there, bounded; a name that is nobody's is wrong usage."""
    told = (await weavehold(shelf, "consumer", "rows", "usage_report", "--json")).json
    tables = {table["table"]: table for table in told["tables"]}
    assert set(tables) == {"usage_report_mission", "usage_report_work_item"}
    assert len(tables["usage_report_mission"]["rows"]) == 2
    few = (await weavehold(shelf, "consumer", "rows", "audit_trail", "--group", two, "--limit", "3", "--json")).json
    [events] = few["tables"]
    assert (len(events["rows"]), events["more"]) == (3, True)
    assert {dict(zip(events["columns"], row, strict=True))["group_id"] for row in events["rows"]} == {two}
    assert (await weavehold(shelf, "consumer", "rows", "usage_report")).code == 0
    assert (await weavehold(shelf, "consumer", "rows", "nobody_s")).code == 2
    assert (await weavehold(shelf, "consumer", "rows", "audit_trail", "--group", "urn:test:absent")).code == 1


async def test_without_a_projection_the_remedy_is_told(tmp_path: Path):
    """OPS-2: nothing was projected yet."""
    nothing = SimpleNamespace(variables={"WEAVEHOLD_DIRECTORY": str(tmp_path)})
    for command in (("audit", "search"), ("usage",)):
        refused = await weavehold(nothing, *command)
        assert (refused.code, "run a projector" in refused.err) == (1, True)

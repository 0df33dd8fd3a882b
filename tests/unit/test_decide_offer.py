"""Decisions that bring work to an owner: contracts, budgets (BUD-1), offers, the race for acceptance, fencing."""

from typing import Any

import pytest
from msgspec import convert

from contracts.documents.lease import LeaseState
from contracts.documents.work_item import OfferStatus, WorkItemState
from contracts.payloads.work import WorkAuthorized, WorkOfferAccepted, WorkOfferCreated
from contracts.rejection import Code, Rejection
from tests.builders import later
from tests.mission_documents import (
    Document,
    capability,
    contract,
    coordinator,
    criteria,
    item,
    owner,
    rival,
    selection_basis,
    stranger,
    worker,
)
from tests.scene import Scene


def authorize(work_item_id: str = item, **members: Any) -> Document:
    """Payload of an authorisation."""
    return {"workItemId": work_item_id, "contract": contract(**members)}


# --- authorisation -------------------------------------------------------------------------------------------------


def test_authorisation_opens_a_work_item_with_its_conversation() -> None:
    """STM-W: a new WorkItem at revision 1; the Mission's plan moved, so its revision rises."""
    scene = Scene().with_mission()
    (draft,) = scene.accept("work.authorize", authorize(), coordinator)
    event = convert(draft.payload, WorkAuthorized)
    assert (event.work_item.state, event.work_item.revision, draft.aggregate_revision) == (WorkItemState.OPEN, 1, 1)
    assert event.conversation.primary_work_item_id == item
    assert scene.state.conversation(event.work_item.conversation_id) == event.conversation
    assert scene.state.mission.revision == 2


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"acceptanceCriteria": []}, Code.WORK_CONTRACT_INCOMPLETE),
        ({"deadline": None}, Code.WORK_CONTRACT_INCOMPLETE),
        ({"sideEffectRisk": "high_risk"}, Code.WORK_CONTRACT_INCOMPLETE),
        ({"sideEffectRisk": "destructive", "executionApproval": "policy_required"}, Code.WORK_CONTRACT_INCOMPLETE),
        ({"acceptanceCriteria": criteria("a", "a")}, Code.INVALID_COMMAND),
        ({"deadline": "2026-07-01T00:00:00Z"}, Code.INVALID_COMMAND),
        ({"deadline": "2026-08-01T00:00:00.000000001Z"}, Code.INVALID_COMMAND),
        ({"dependencyWorkItemIds": ["urn:test:none"]}, Code.INVALID_COMMAND),
        ({"dependencyWorkItemIds": [item]}, Code.INVALID_COMMAND),
    ],
)
def test_a_contract_is_complete_and_fits_its_mission(members: Document, code: Code) -> None:
    """STM-W: what is missing is WORK_CONTRACT_INCOMPLETE, what cannot be INVALID_COMMAND; times compare exactly."""
    payload = authorize()
    payload["contract"] = {name: value for name, value in (contract() | members).items() if value is not None}
    assert Scene().with_mission().code("work.authorize", payload, coordinator) is code


def test_a_deadline_equal_to_the_missions_fits() -> None:
    """STM-W: the same moment in another time zone is the same moment."""
    Scene().with_mission().accept("work.authorize", authorize(deadline="2026-08-01T02:00:00+02:00"), coordinator)


@pytest.mark.parametrize(
    ("budget", "dimension"),
    [
        ({"currency": "USD", "financialLimit": 100.01}, "financialLimit"),
        ({"currency": "EUR", "financialLimit": 1}, "financialLimit"),
        ({"modelTokenLimit": 100_001}, "modelTokenLimit"),
        ({"toolCallLimit": 1}, "toolCallLimit"),
        ({"computeSecondsLimit": 1}, "computeSecondsLimit"),
        ({"wallClockSecondsLimit": 1}, "wallClockSecondsLimit"),
        ({"externalSideEffectLimit": 1}, "externalSideEffectLimit"),
    ],
)
def test_a_contract_does_not_exceed_its_mission_in_any_dimension(budget: Document, dimension: str) -> None:
    """BUD-1: children never exceed parents; a limit that the Mission lacks is zero there."""
    refusal = Scene().with_mission().refuse("work.authorize", authorize(budget=budget), coordinator)
    assert (refusal.code, refusal.details) == (Code.BUDGET_EXCEEDED, {"dimension": dimension})


def test_contracts_together_do_not_exceed_their_mission() -> None:
    """BUD-1: money is summed exactly: ten times 0.1 is 1, which binary floats would miss."""
    scene = Scene().with_mission(budget={"currency": "USD", "financialLimit": 1})
    cents = {"currency": "USD", "financialLimit": 0.1}
    for number in range(10):
        scene.accept("work.authorize", authorize(f"urn:test:work:{number}", budget=cents), coordinator)
    least = {"currency": "USD", "financialLimit": 1e-9}
    code = scene.code("work.authorize", authorize("urn:test:work:last", budget=least), coordinator)
    assert code is Code.BUDGET_EXCEEDED
    nothing = {"currency": "USD", "financialLimit": 0}
    scene.accept("work.authorize", authorize("urn:test:work:last", budget=nothing), coordinator)


def test_a_failed_work_item_gives_its_budget_back_and_takes_it_again() -> None:
    """BUD-1: what a failed WorkItem reserved is free until it is offered anew."""
    scene = Scene().with_work("open", budget={"modelTokenLimit": 100_000}).force_work(WorkItemState.FAILED)
    everything = authorize("urn:test:second", budget={"modelTokenLimit": 100_000})
    scene.accept("work.authorize", everything, coordinator)
    assert scene.code("work.offer", scene.offer(worker), coordinator) is Code.BUDGET_EXCEEDED


def test_only_the_coordinator_authorises() -> None:
    """STM-W: neither the MissionOwner nor a Worker authorises work."""
    scene = Scene().with_mission()
    for actor in (owner, worker):
        assert scene.code("work.authorize", authorize(), actor) is Code.AUTH_FORBIDDEN


# --- offers --------------------------------------------------------------------------------------------------------


def test_an_offer_carries_the_contract_and_keeps_earlier_open_offers() -> None:
    """STM-W: a late member needs no earlier Event; unexpired offers to others stand beside the new one."""
    scene = Scene().with_work("open")
    (first,) = scene.accept("work.offer", scene.offer(worker, offerExpiresInSeconds=60), coordinator)
    assert convert(first.payload, WorkOfferCreated).contract == scene.work().item.contract
    scene.pass_time(30)
    (second,) = scene.accept("work.offer", scene.offer(rival), coordinator)
    assert second.payload["candidateAgentIds"] == (worker.id, rival.id)
    scene.pass_time(30)
    (third,) = scene.accept("work.offer", scene.offer(rival), coordinator)
    assert third.payload["candidateAgentIds"] == (rival.id,)
    assert third.aggregate_revision == 4


def test_candidates_are_eligible() -> None:
    """STM-W: members with the worker role, registered, capable in a compatible version; policy is AUTH_FORBIDDEN."""
    scene = Scene().with_work("open")
    assert scene.code("work.offer", scene.offer(stranger), coordinator) is Code.AUTH_FORBIDDEN
    assert scene.code("work.offer", scene.offer(coordinator), coordinator) is Code.AUTH_FORBIDDEN
    ineligible = scene.offer(worker, selectionBasis=selection_basis(authorizationEligible=False))
    assert scene.code("work.offer", ineligible, coordinator) is Code.AUTH_FORBIDDEN
    scene.with_work("open", "urn:test:second", requiredCapabilities=[capability | {"version": "3.0.0"}])
    payload = scene.offer(worker, work_item_id="urn:test:second")
    refusal = scene.refuse("work.offer", payload, coordinator)
    assert refusal.code is Code.AUTH_FORBIDDEN
    assert "acme.software.python" in refusal.message


# --- acceptance ----------------------------------------------------------------------------------------------------


def test_the_first_acceptance_wins_and_the_others_lose() -> None:
    """STM-W, MWP-EVT-007: first ownership is compare-and-set; the other offers become `lost_race`."""
    scene = Scene().with_work("offered")
    (draft,) = scene.accept("work.accept_offer", {"workItemId": item, "startBySeconds": 60}, rival)
    event = convert(draft.payload, WorkOfferAccepted)
    assert (event.owner.ownership_epoch, event.owner.agent_id, event.agent_card_version) == (1, rival.id, 1)
    assert event.lease.start_by == later(scene.time, 60)
    offers = {offer.agent_id: offer.status for offer in scene.work().item.offers or ()}
    assert offers == {worker.id: OfferStatus.LOST_RACE, rival.id: OfferStatus.ACCEPTED}
    assert scene.code("work.accept_offer", {"workItemId": item}, worker) is Code.WORK_ALREADY_OWNED
    assert scene.code("work.accept_offer", {"workItemId": item}, rival) is Code.WORK_ALREADY_OWNED


def test_the_pinned_versions_are_those_of_the_card_at_acceptance() -> None:
    """STM-W: the card may have changed since the offer; what it offers now is pinned, if it still serves."""
    scene = Scene().with_work("offered")
    better = {**capability, "version": "2.4.0"}
    assert scene.agents[worker.id].card is not None
    scene.register(worker, capabilities=[_offering(better)])
    (draft,) = scene.accept("work.accept_offer", {"workItemId": item}, worker)
    assert draft.payload["owner"]["capabilityPins"] == (better,)
    assert draft.payload["agentCardVersion"] == 2
    scene = Scene().with_work("offered").register(worker, capabilities=[_offering({**capability, "version": "1.9.0"})])
    assert scene.code("work.accept_offer", {"workItemId": item}, worker) is Code.AUTH_FORBIDDEN


def _offering(what: Document) -> Document:
    digest = f"sha256:{'c' * 64}"
    schema = {
        "inputSchema": "urn:t:i",
        "inputSchemaHash": digest,
        "outputSchema": "urn:t:o",
        "outputSchemaHash": digest,
    }
    return {**what, **schema, "constraints": {}, "verifiedEvidence": ["urn:test:proof"]}


def test_offer_expiry_appends_nothing_and_refuses_the_acceptance() -> None:
    """STM-W, RULE-10: an expired offer is WORK_OFFER_EXPIRED and the WorkItem stays `offered`."""
    scene = Scene().with_work("offered").pass_time(300)
    before = len(scene.events)
    assert scene.code("work.accept_offer", {"workItemId": item}, worker) is Code.WORK_OFFER_EXPIRED
    assert len(scene.events) == before
    assert scene.work().item.state is WorkItemState.OFFERED


def test_an_offer_is_accepted_by_its_agent_only() -> None:
    """STM-W: whoever was not offered the work may not take it."""
    scene = Scene().with_work("open")
    scene.accept("work.offer", scene.offer(rival), coordinator)
    assert scene.code("work.accept_offer", {"workItemId": item}, worker) is Code.AUTH_FORBIDDEN
    assert scene.code("work.accept_offer", {"workItemId": item}, owner) is Code.AUTH_FORBIDDEN


# --- fencing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acceptance", "seconds"),
    [({"startBySeconds": 60}, 60), ({"ownershipLeaseSeconds": 60, "startBySeconds": 600}, 60)],
)
def test_a_missed_start_lets_another_owner_resume(acceptance: Document, seconds: int) -> None:
    """MWP-WRK-019: past the start-by deadline or the lease the owner can start no more and is fenced by an offer."""
    scene = Scene().with_work("offered")
    scene.accept("work.accept_offer", {"workItemId": item} | acceptance, worker)
    start = {"workItemId": item, "ownershipEpoch": 1}
    scene.pass_time(seconds - 0.000_001)
    assert scene.code("work.offer", scene.offer(rival), coordinator) is Code.WORK_ALREADY_OWNED
    scene.pass_time(0.000_001)
    assert scene.code("work.start", start, worker) is Code.WORK_LEASE_EXPIRED
    scene.accept("work.offer", scene.offer(rival), coordinator)
    assert not scene.work().item.owner
    assert scene.code("work.start", start, worker) is Code.WORK_STALE_OWNERSHIP
    scene.accept("work.accept_offer", {"workItemId": item}, rival)
    assert scene.epoch() == 2
    assert scene.code("work.start", start, worker) is Code.WORK_STALE_OWNERSHIP
    scene.accept("work.start", {"workItemId": item, "ownershipEpoch": 2}, rival)


def test_a_start_in_time_keeps_the_ownership_beyond_the_start_by() -> None:
    """MWP-WRK-019: the start-by deadline asks for the first start only."""
    scene = Scene().with_work("active").pass_time(299)
    checkpoint = {"phase": "half", "completedMilestones": [], "createdAt": scene.time}
    scene.accept("work.checkpoint", {**scene.fences(), "checkpoint": checkpoint}, worker)
    scene.pass_time(600)
    scene.accept("work.start", {"workItemId": item, "ownershipEpoch": 1}, worker)


def test_the_new_owner_finds_the_latest_checkpoint() -> None:
    """MWP-WRK-019: what the fenced owner saved outlives its ownership."""
    scene = Scene().with_work("active")
    checkpoint = {"phase": "half", "completedMilestones": ["a"], "createdAt": scene.time}
    scene.accept("work.checkpoint", {**scene.fences(), "checkpoint": checkpoint, "resumeWithinSeconds": 10}, worker)
    scene.pass_time(10)
    scene.accept("work.offer", scene.offer(rival), coordinator)
    scene.accept("work.accept_offer", {"workItemId": item}, rival)
    record = scene.work()
    assert record.latest_checkpoint
    assert record.latest_checkpoint.phase == "half"
    assert [(past.agent_id, past.ownership_epoch) for past in record.past_owners] == [(worker.id, 1)]


def test_an_offer_closes_the_leases_of_the_fenced_owner() -> None:
    """MWP-WRK-014: reassignment leaves no lease running."""
    scene = Scene().with_work("active").pass_time(3_600)
    decision = scene.when("work.offer", scene.offer(rival), coordinator)
    assert not isinstance(decision, Rejection)
    record = scene.work()
    assert record.ownership_lease
    assert record.execution_lease
    assert (record.ownership_lease.state, record.execution_lease.state) == (LeaseState.EXPIRED, LeaseState.EXPIRED)

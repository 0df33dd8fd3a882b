"""The deterministic jobs of the Worker: real results, the same however the work is cut or resumed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.worker.jobs.job import part
from services.worker.work_plan import PlanFault, bind_inputs, job_keys, plan_work

table = "team,hours\nsearch,1.5\nmobile,2\nsearch,0.25\nmobile,10\nsearch,7\n"
examples = {
    "word-count": ({"input": "The cat's hat; the dog. Naïve e-mail, the end"}, []),
    "table-summary": ({"input": table, "column": "hours", "by": "team"}, []),
    "compile-report": ({"title": "Report", "sections": ["A", "B"]}, [b'{"x": 1, "y": {"z": [2, "q"]}}', b'{"w": "v"}']),
}


def run(kind, steps, broken_at=None):
    facts, inputs = examples[kind]
    plan = plan_work({"job": {"type": kind, "steps": steps, **facts}})
    job = bind_inputs(plan, inputs)
    state = job.begin()
    for step in range(steps):
        if step == broken_at:
            job, state = bind_inputs(plan, inputs), json.loads(json.dumps(state))
        state = job.advance(state, step)
    result = job.finish(state)
    assert job.confirm(result)
    return result


def test_every_job_type_has_an_example():
    assert set(examples) == set(job_keys())


@given(st.sampled_from(sorted(examples)), st.integers(1, 12), st.integers(0, 11))
def test_results_do_not_depend_on_steps_or_on_a_resumption(kind, steps, broken_at):
    """MWP-WRK-019: work resumed from a checkpoint in another process gives the bytes that unbroken work gives."""
    assert run(kind, steps, broken_at) == run(kind, 1)


def test_results_are_right():
    words = json.loads(run("word-count", 4).content)
    assert (words["words"], words["distinctWords"], words["counts"]["the"]) == (9, 7, 3)
    groups = json.loads(run("table-summary", 2).content)["groups"]
    assert groups["search"] == {"count": 3, "sum": "8.75", "least": "0.25", "greatest": "7"}
    report = run("compile-report", 2).content.decode()
    assert report.splitlines()[:6] == ["# Report", "", "## A", "", "- x: 1", "- y · z 1: 2"]


@pytest.mark.parametrize("kind", sorted(examples))
def test_wrong_results_are_not_confirmed(kind):
    """MWP-WRK-025: the Evidence of a deterministic test means something: a changed result fails it."""
    facts, inputs = examples[kind]
    job = bind_inputs(plan_work({"job": {"type": kind, **facts}}), inputs)
    right = run(kind, 4)
    wrong = (
        right.content.replace(b"1", b"8") if kind != "word-count" else right.content.replace(b'"the": 3', b'"the": 4')
    )
    assert wrong != right.content
    assert not job.confirm(type(right)(content=wrong, media_type=right.media_type, summary=right.summary))


@given(st.integers(0, 200), st.integers(1, 50))
def test_parts_cover_everything_once(length, steps):
    things = list(range(length))
    assert [thing for step in range(steps) for thing in things[part(length, step, steps)]] == things


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (None, "name no job"),
        ({"type": "juggle"}, "juggle"),
        ({"type": "word-count"}, "input"),
        ({"type": "word-count", "input": "x", "steps": 1001}, "steps is 1001"),
        ({"type": "word-count", "input": "x", "extra": 1}, "extra"),
        ({"type": "table-summary", "input": "a,b\n1,x\n", "column": "b", "by": "a"}, "b is 'x', not a number"),
        ({"type": "table-summary", "input": "a,b\n1,2\n", "column": "c", "by": "a"}, "lacks column 'c'"),
        ({"type": "compile-report", "title": "t", "sections": []}, "sections is empty"),
    ],
)
def test_contracts_that_this_worker_cannot_do_are_refused_with_the_reason(job, words):
    """MWP-WRK-005: admission of work names what is wrong with it."""
    with pytest.raises(PlanFault, match=words):
        plan_work({} if job is None else {"job": job})


def test_inputs_that_do_not_fit_are_refused():
    plan = plan_work({"job": {"type": "compile-report", "title": "t", "sections": ["A"]}})
    with pytest.raises(PlanFault, match="0 input Artifacts for 1 sections"):
        bind_inputs(plan, [])
    with pytest.raises(PlanFault, match="do not fit"):
        bind_inputs(plan, [b"not json"])

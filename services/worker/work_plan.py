"""From a Work Contract to the job that does it.

The contract's `constraints` name the job: `{"job": {"type": "word-count", "input": "…", "steps": 4, "stepMillis": 150,
"checkpointEvery": 2}}`. A contract without a job, or with one that this Worker does not know, is work for another.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from services.worker.jobs.compile_report import CompileReport
from services.worker.jobs.job import Job
from services.worker.jobs.table_summary import TableSummary
from services.worker.jobs.word_count import WordCount

Plan = WordCount | TableSummary | CompileReport
"""A job as a contract describes it: `bind` it to its input Artifacts to do it."""


class PlanFault(Exception):
    """The contract does not say how to do the work in a way that this Worker understands."""


def plan_work(constraints: dict[str, Any]) -> Plan:
    """The job that the contract's constraints name. Raises PlanFault naming what is wrong."""
    if "job" not in constraints:
        raise PlanFault("the Work Contract's constraints name no job")
    try:
        plan: Plan = msgspec.convert(constraints["job"], Plan)
    except msgspec.ValidationError as fault:
        raise PlanFault(f"the Work Contract's job cannot be done here: {fault}") from fault
    return plan


_kinds: Final = {str(kind.__struct_config__.tag): kind for kind in (WordCount, TableSummary, CompileReport)}


def job_keys() -> dict[str, list[str]]:
    """The job types that are known here, each with the keys of its table."""
    return {name: [field.encode_name for field in msgspec.structs.fields(kind)] for name, kind in _kinds.items()}


def job_schemas() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """For each job type the JSON Schemas of its table and of its result."""
    return {name: (msgspec.json.schema(kind), kind.result_schema) for name, kind in _kinds.items()}


def bind_inputs(plan: Plan, inputs: Sequence[bytes]) -> Job:
    """The job with its input Artifacts at hand. Raises PlanFault when they do not fit."""
    try:
        return plan.bind(inputs)
    except ValueError as fault:
        raise PlanFault(f"the input Artifacts do not fit the job: {fault}") from fault

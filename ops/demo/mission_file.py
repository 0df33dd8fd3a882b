"""Mission files: what a demo does, as a person writes it (`README.md` beside this file describes the format).

Loading is strict: the first fault ends it, with the file, the line and the remedy.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final

import msgspec

from ops.demo.mission_fault import MissionFileFault, Source, key_path, named_key
from ops.demo.mission_tables import Criterion, MissionFile, WorkTable
from ops.demo.toml_lines import KeyPath, key_lines
from services.worker.work_plan import PlanFault, job_keys, plan_work

mission_file_bytes_max: Final = 256 * 1024
input_file_bytes_max: Final = 64 * 1024
"""Bytes of a job's `inputFile`: its text travels inside the Work Contract."""
work_items_max: Final = 200


def load_mission_file(path: Path) -> MissionFile:
    """Read and check one file. Raises MissionFileFault for the first thing that is wrong."""
    text = _read(path)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        line = re.search(r"at line (\d+)", str(fault))
        number = int(line.group(1)) if line else text.count("\n") + 1
        raise MissionFileFault(path, number, f"not TOML: {fault}", "Correct the syntax") from fault
    except RecursionError as fault:
        raise MissionFileFault(path, 1, "values are nested too deep", "Nest them less") from fault
    source = Source(path, key_lines(text))
    try:
        file = msgspec.convert(tree, MissionFile)
    except msgspec.ValidationError as fault:
        raise source.shape_fault(str(fault), tree) from fault
    work = tuple(_with_input(source, number, item) for number, item in enumerate(file.work))
    file = msgspec.structs.replace(file, work=work)
    _check_names(source, file)
    _check_agents(source, file)
    _check_order(source, file)
    return file


def _read(path: Path) -> str:
    """The text of the file."""
    try:
        raw = _beginning(path, mission_file_bytes_max)
        if len(raw) > mission_file_bytes_max:
            problem = f"the file has more than {mission_file_bytes_max} bytes"
            raise MissionFileFault(path, 1, problem, "Split it")
        return raw.decode()
    except OSError as fault:
        raise MissionFileFault(
            path, 0, f"cannot be read: {fault.strerror}", "Give the path of a Mission file"
        ) from fault
    except UnicodeDecodeError as fault:
        line = fault.object[: fault.start].count(b"\n") + 1
        raise MissionFileFault(path, line, "not UTF-8", "Save the file as UTF-8") from fault


def _beginning(path: Path, bytes_max: int) -> bytes:
    """The bytes of a file, one more than allowed at most: a device may have no end. Raises OSError, ValueError."""
    with path.open("rb") as opened:
        return opened.read(bytes_max + 1)


def _input_text(source: Source, where: KeyPath, item: WorkTable, job: Mapping[str, Any]) -> str:
    """The text that `inputFile` names."""
    named = job["inputFile"]
    if "input" in job:
        raise source.fault(where, f"work {item.id!r} has both input and inputFile", "Keep one of them")
    if not isinstance(named, str):
        raise source.fault(where, f"inputFile is {named!r}, not a path", "Write a path relative to this file")
    path = source.path.parent / named
    try:
        raw = _beginning(path, input_file_bytes_max)
        if len(raw) > input_file_bytes_max:
            problem = f"the input file {path} has more than {input_file_bytes_max} bytes"
            raise source.fault(where, problem, "More does not fit a Work Contract: shorten it")
        return raw.decode()
    except (OSError, ValueError) as fault:
        problem = f"the input file {str(path)!r} cannot be read: {fault}"
        raise source.fault(where, problem, "Name a UTF-8 text file relative to this file") from fault


def _with_input(source: Source, number: int, item: WorkTable) -> WorkTable:
    """The WorkItem with its job checked and `inputFile` replaced by the file's text."""
    where: KeyPath = ("work", number, "job")
    job = dict(item.job)
    if "inputFile" in job:
        job["input"] = _input_text(source, (*where, "inputFile"), item, job)
        del job["inputFile"]
    try:
        plan_work({"job": job})
    except PlanFault as fault:
        text, _, place = str(fault).removeprefix("the Work Contract's job cannot be done here: ").partition(" - at `$")
        inner = (*where, *key_path(place.rstrip("`")))
        unknown = named_key.search(text)
        if unknown is not None and "unknown" in text:
            inner = (*inner, unknown.group(1))
        problem = f"the job of work {item.id!r}: {text[:1].lower()}{text[1:]}"
        known = "; ".join(f"{kind} ({', '.join(keys)})" for kind, keys in job_keys().items())
        raise source.fault(inner, problem, f"Job types and their keys: {known}") from fault
    return msgspec.structs.replace(item, job=job)


def _check_names(source: Source, file: MissionFile) -> None:
    """Each WorkItem and each criterion once; rework only where changes are requested."""
    seen: set[str] = set()
    for number, item in enumerate(file.work):
        if item.id in seen:
            raise source.fault(("work", number, "id"), f"work {item.id!r} is named twice", "Give each work its own id")
        seen.add(item.id)
        _check_criteria(source, ("work", number), item.criterion)
        if item.rework and file.mission.request_changes is None:
            problem = f"work {item.id!r} is rework, but the owner requests no changes"
            raise source.fault(("work", number, "rework"), problem, "Add requestChanges to [mission] or remove rework")
    if all(item.rework for item in file.work):
        raise source.fault(("work", 0, "rework"), "all work is rework", "The first submission needs work of its own")
    _check_criteria(source, ("mission",), file.mission.criterion)


def _check_criteria(source: Source, table: KeyPath, criteria: Sequence[Criterion]) -> None:
    names = [criterion.id for criterion in criteria]
    for number, name in enumerate(names):
        if name in names[:number]:
            where = (*table, "criterion", number, "id")
            raise source.fault(where, f"criterion {name!r} is named twice", "Give each criterion its own id")


def _check_agents(source: Source, file: MissionFile) -> None:
    """Every Agent is declared once, and its skills are job types."""
    names = [agent.name for agent in file.agent]
    declared = ", ".join(names)
    for number, agent in enumerate(file.agent):
        if agent.name in names[:number]:
            where: KeyPath = ("agent", number, "name")
            raise source.fault(where, f"agent {agent.name!r} is declared twice", "Give each agent its own name")
        for place, skill in enumerate(agent.skills):
            if skill not in job_keys():
                where = ("agent", number, "skills", place)
                remedy = f"Skills are job types: {', '.join(job_keys())}"
                raise source.fault(where, f"agent {agent.name!r} has the unknown skill {skill!r}", remedy)
    coordinator = file.mission.coordinator
    if coordinator not in names:
        problem = f"the coordinator {coordinator!r} is an unknown agent"
        raise source.fault(("mission", "coordinator"), problem, f"Declare it as [[agent]] or use one of: {declared}")
    for number, item in enumerate(file.work):
        for place, name in enumerate(item.candidates):
            where = ("work", number, "candidates", place)
            if name not in names:
                remedy = f"Declare it as [[agent]] or use one of: {declared}"
                raise source.fault(where, f"work {item.id!r} names the unknown agent {name!r}", remedy)
            _check_candidate(source, where, file, item, name)


def _check_candidate(source: Source, where: KeyPath, file: MissionFile, item: WorkTable, name: str) -> None:
    """A candidate is no Coordinator of this Group and has the skill."""
    if name == file.mission.coordinator:
        problem = f"work {item.id!r} is offered to the coordinator {name!r}"
        raise source.fault(where, problem, "An Agent has one role in a Group: name another Agent")
    skills = next(agent.skills for agent in file.agent if agent.name == name)
    if skills and item.job["type"] not in skills:
        problem = f"agent {name!r} has no skill {item.job['type']!r} for work {item.id!r}"
        raise source.fault(where, problem, "Add the skill or name another candidate")


def _check_order(source: Source, file: MissionFile) -> None:
    """Dependencies exist and form no cycle; first work does not wait for rework."""
    number_of = {item.id: number for number, item in enumerate(file.work)}
    for number, item in enumerate(file.work):
        for place, name in enumerate(item.after):
            where: KeyPath = ("work", number, "after", place)
            if name not in number_of:
                remedy = f"Name one of: {', '.join(number_of)}"
                raise source.fault(where, f"work {item.id!r} comes after unknown work {name!r}", remedy)
            if file.work[number_of[name]].rework and not item.rework:
                problem = f"work {item.id!r} comes after the rework {name!r}"
                raise source.fault(where, problem, "Mark it rework = true as well")
    try:
        TopologicalSorter({item.id: item.after for item in file.work}).prepare()
    except CycleError as fault:
        cycle: list[str] = fault.args[1]
        problem = f"cyclic dependencies: {' before '.join(cycle)}"
        remedy = "Remove one of these `after` entries"
        raise source.fault(("work", number_of[cycle[-1]], "after"), problem, remedy) from fault

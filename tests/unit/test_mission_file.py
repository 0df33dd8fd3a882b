"""Mission files: the shipped ones load, and every fault names file, line and remedy."""

import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.demo.mission_fault import MissionFileFault
from ops.demo.mission_file import load_mission_file
from ops.demo.toml_lines import key_lines

shipped = sorted(Path(str(files("ops.demo") / "missions")).glob("*.toml"))

good = """\
format = 1

[mission]
name = "small"
title = "Small"
objective = "Count."
coordinator = "editor"
deadlineMinutes = 10

[[mission.criterion]]
id = "counted"
description = "Words are counted."
evidence = ["reviewer_assessment"]

[[agent]]
name = "editor"

[[agent]]
name = "ada"
slots = 1
skills = ["word-count"]

[[work]]
id = "first"
goal = "Count."
candidates = ["ada"]
job = { type = "word-count", input = "a b c" }

[[work]]
id = "second"
goal = "Count again."
candidates = ["ada"]
after = ["first"]
job = { type = "word-count", input = "a b c", steps = 2 }
"""


def written(tmp_path, text):
    path = tmp_path / "mission.toml"
    path.write_text(text)
    return path


def line_of(text, part):
    return text[: text.index(part)].count("\n") + 1


@pytest.mark.parametrize("path", shipped, ids=lambda path: path.stem)
def test_shipped_mission_files_load(path):
    """The two Missions of the demo are valid and share a Worker."""
    assert len(shipped) == 2
    file = load_mission_file(path)
    assert any("ada" in item.candidates for item in file.work)
    assert all(isinstance(item.job.get("input", ""), str) and "inputFile" not in item.job for item in file.work)


def test_a_good_file_loads(tmp_path):
    file = load_mission_file(written(tmp_path, good))
    assert [item.id for item in file.work] == ["first", "second"]
    assert file.work[0].criterion[0].id == "result-confirmed"


faults = {
    "unknown key": (
        "slots = 1\n",
        "slotz = 1\n",
        "slotz",
        "unknown key 'slotz' in agent[1]. Did you mean 'slots'?",
    ),
    "unknown top key": (
        "format = 1\n",
        "format = 1\nformats = 2\n",
        "formats",
        "unknown key 'formats' in the top of the file",
    ),
    "missing key": (
        'goal = "Count."\n',
        "",
        "[[work]]",
        "work[0] lacks the key 'goal'. Add goal = …",
    ),
    "missing table": (
        '[[agent]]\nname = "ada"\nslots = 1\nskills = ["word-count"]\n',
        "",
        "[[agent]]",
        "length >= 2",
    ),
    "wrong type": (
        "deadlineMinutes = 10",
        'deadlineMinutes = "10"',
        "deadlineMinutes",
        "mission.deadlineMinutes is '10': expected `int`",
    ),
    "out of bounds": (
        "slots = 1",
        "slots = 99",
        "slots",
        "agent[1].slots is 99",
    ),
    "bad name": (
        'name = "small"',
        'name = "Small One"',
        'name = "Small One"',
        "mission.name is 'Small One'",
    ),
    "wrong format": (
        "format = 1",
        "format = 2",
        "format = 2",
        "format is 2",
    ),
    "unknown evidence": (
        '"reviewer_assessment"',
        '"guess"',
        "evidence",
        "mission.criterion[0].evidence[0] is 'guess'",
    ),
    "unknown agent": (
        'candidates = ["ada"]\nafter',
        'candidates = ["ada", "bob"]\nafter',
        'candidates = ["ada", "bob"]',
        "unknown agent 'bob'. Declare it as [[agent]] or use one of: editor, ada",
    ),
    "unknown coordinator": (
        'coordinator = "editor"',
        'coordinator = "chief"',
        "coordinator",
        "coordinator 'chief' is an unknown agent",
    ),
    "coordinator as candidate": (
        'candidates = ["ada"]\nafter',
        'candidates = ["editor"]\nafter',
        'candidates = ["editor"]',
        "offered to the coordinator",
    ),
    "unknown skill": (
        'skills = ["word-count"]',
        'skills = ["juggling"]',
        "skills",
        "unknown skill 'juggling'. Skills are job types",
    ),
    "missing skill": (
        'skills = ["word-count"]',
        'skills = ["table-summary"]',
        "candidates",
        "has no skill 'word-count'",
    ),
    "agent twice": (
        'name = "ada"',
        'name = "editor"',
        'name = "editor"\nslots',
        "declared twice",
    ),
    "work twice": (
        'id = "second"',
        'id = "first"',
        'id = "first"\ngoal = "Count again."',
        "named twice",
    ),
    "unknown dependency": (
        'after = ["first"]',
        'after = ["fist"]',
        "after",
        "unknown work 'fist'. Name one of: first, second",
    ),
    "cycle": (
        'id = "first"\n',
        'id = "first"\nafter = ["second"]\n',
        "after",
        "cyclic dependencies: ",
    ),
    "own dependency": (
        'after = ["first"]',
        'after = ["second"]',
        "after",
        "cyclic dependencies: second before second",
    ),
    "unknown job": (
        'type = "word-count", input = "a b c" }',
        'type = "wordcount", input = "a b c" }',
        "job = {",
        "Job types and their keys: word-count (",
    ),
    "unknown job key": (
        "steps = 2",
        "stepz = 2",
        "stepz",
        "unknown field `stepz`",
    ),
    "job bounds": (
        "steps = 2",
        "steps = 0",
        "steps = 0",
        "steps is 0, not 1 to 1000",
    ),
    "input twice": (
        "steps = 2",
        'inputFile = "x"',
        "inputFile",
        "both input and inputFile",
    ),
    "input absent": (
        'input = "a b c", steps = 2',
        'inputFile = "no.txt"',
        "inputFile",
        "cannot be read",
    ),
    "rework without changes": (
        'after = ["first"]',
        "rework = true",
        "rework",
        "the owner requests no changes",
    ),
    "not TOML": (
        '[[work]]\nid = "second"',
        '[[work]\nid = "second"',
        "[[work]\n",
        "not TOML",
    ),
}


@pytest.mark.parametrize("case", faults)
def test_faults_name_file_line_and_remedy(tmp_path, case):
    """OPS-2: whoever wrote the file learns where it is wrong and what to write instead."""
    old, new, place, words = faults[case]
    text = good.replace(old, new, 1)
    assert text != good
    path = written(tmp_path, text)
    with pytest.raises(MissionFileFault) as caught:
        load_mission_file(path)
    fault = caught.value
    assert words in str(fault)
    assert fault.line == line_of(text, place), str(fault)
    assert str(fault).startswith(f"{path}:{fault.line}: ")
    assert fault.remedy


def test_unreadable_files_are_faults(tmp_path):
    """A missing, binary or oversized file is a fault like any other."""
    with pytest.raises(MissionFileFault, match="cannot be read"):
        load_mission_file(tmp_path / "absent.toml")
    path = tmp_path / "binary.toml"
    path.write_bytes(b"format = 1\n\xff\n")
    with pytest.raises(MissionFileFault, match=r"binary\.toml:2: not UTF-8"):
        load_mission_file(path)
    path.write_bytes(b"#" * 300_000)
    with pytest.raises(MissionFileFault, match="more than 262144 bytes"):
        load_mission_file(path)


def _places(value, path=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, (*path, index))
    else:
        yield path


texts = st.sampled_from(
    ['""', '"a # b"', "'c:\\d'", '"""x\ny"""', "'''\n[z]\n'''", '"\\"quoted\\""', "1", "[]", "true"]
)
keys = st.sampled_from(["a", "b-c", '"d e"', "f.g", "'h'"])
values = st.recursive(
    texts,
    lambda inner: st.lists(inner, max_size=3).map(
        lambda items: "[\n  " + ", # note\n  ".join(items) + "\n]" if items else "[]"
    ),
    max_leaves=4,
)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ('inputFile = "/dev/zero"', "more than 65536 bytes"),
        ('inputFile = "a\\u0000b"', "cannot be read"),
        ("input = " + "[" * 3000 + "]" * 3000, "nested too deep"),
        ("input = " + "[" * 200 + "]" * 200, "mission.toml:"),
    ],
    ids=["a device without an end", "a path with NUL", "3,000 deep", "200 deep"],
)
def test_hostile_values_are_faults_too(tmp_path, damage, told):
    """OPS-2: neither a hang nor a traceback."""
    with pytest.raises(MissionFileFault, match=told):
        load_mission_file(written(tmp_path, good.replace('input = "a b c"', damage, 1)))


def test_an_endless_mission_file_is_refused():
    """OPS-2: a device is read no further than the limit."""
    with pytest.raises(MissionFileFault, match="more than 262144 bytes"):
        load_mission_file(Path("/dev/zero"))


@given(
    st.lists(st.tuples(st.sampled_from(["[t]", "[[l]]", "[[l]]\n[l.m]", "[[l]]\n[[l.n]]"]), keys, values), max_size=6)
)
def test_every_value_of_a_valid_file_has_a_line(parts):
    """The line reader agrees with the TOML parser about which keys there are."""
    text = "".join(f"{header}\n{key} = {value} # tail\n" for header, key, value in parts)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines = key_lines(text)
    for place in _places(tree):
        assert place in lines, (place, text)
        if isinstance(place[-1], str):
            assert place[-1] in text.splitlines()[lines[place] - 1]

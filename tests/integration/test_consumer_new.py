"""`weavehold consumer new` in a copy of the checkout: what it makes runs, is tested and keeps the house's rules."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ops.scaffold.consumer_name import fault_of_name, name_characters_max
from ops.scaffold.list_consumer import ListingUnknown, with_consumer
from ops.scaffold.make_consumer import listing_file, make_consumer
from projections.store.postgres import schema_characters_max
from tests.command_rig import weavehold

root = Path(__file__).parents[2]
rooms = ("contracts", "services", "outbox_relay", "projections", "ops", "tests")
files = ("pyproject.toml", "requirements.lock", "README.md", "LICENSE", "Makefile")
nobody = SimpleNamespace(variables={})
"""A stack that is not there: making a consumer needs none."""


@pytest.fixture
def checkout(tmp_path):
    """A copy of the checkout's code."""
    made = tmp_path / "checkout"
    made.mkdir()
    for name in rooms:
        shutil.copytree(root / name, made / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in files:
        shutil.copy(root / name, made / name)
    return made


@pytest.fixture
def bare(tmp_path):
    """What `consumer new` looks at, and nothing else."""
    (tmp_path / "projections").mkdir()
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    shutil.copy(root / listing_file, tmp_path / listing_file)
    return tmp_path


def in_checkout(checkout, *arguments):
    """Run a module in the copy, which comes before the installed one."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()[-4000:] + done.stderr.decode()[-2000:]
    return done.stdout.decode()


def suite_for(name, selected):
    """The arguments that run a consumer's unit test, and some of the behaviour suite for it alone."""
    suite = "tests/integration/test_consumer_behaviour.py"
    tested = (f"tests/unit/test_{name}.py", suite)
    return ("pytest", "-q", "-p", "no:cacheprovider", *tested, "-k", f"({name}) and ({selected})")


async def test_a_new_consumer_runs_and_is_tested_at_once(checkout):
    """PRJ-1, PRJ-2, PRJ-4: its unit test, and the behaviour suite for it on both stores, without another line."""
    made = await weavehold(nobody, "consumer", "new", "late_results", "--directory", str(checkout), "--json")
    assert made.code == 0, made.err
    assert all((checkout / file).is_file() for file in made.json["files"])
    ran = in_checkout(
        checkout, *suite_for("late_results", "each_kind or live_equals or every_store or unknown_version")
    )
    assert "7 passed" in ran
    python = [str(file) for file in made.json["files"] if file.endswith(".py")]
    in_checkout(checkout, "ruff", "check", "--no-cache", *python)
    in_checkout(checkout, "ruff", "format", "--no-cache", "--check", *python)


house = "late_results or every_statement or speaks_of_itself"
"""What the house's own rules say of the new files."""


@pytest.mark.fault
@pytest.mark.timeout(900)
async def test_a_new_consumer_keeps_every_rule_of_the_house(checkout):
    """PRJ-2: the whole behaviour suite for it; types, import directions and the house's own rules."""
    assert make_consumer("late_results", checkout).class_name == "LateResults"
    in_checkout(checkout, *suite_for("late_results", "test_"))
    in_checkout(checkout, "mypy", "--cache-dir", str(checkout.parent / "mypy"))
    in_checkout(checkout, "importlinter.cli", "lint", "--no-cache")
    in_checkout(checkout, "pytest", "-q", "-p", "no:cacheprovider", "tests/architecture/test_house.py", "-k", house)


async def test_what_cannot_be_made_changes_nothing(bare):
    """OPS-2: a name that tells nothing, one that is taken, a listing that is not known: named, with the remedy."""
    (bare / "projections" / "taken").mkdir()
    (bare / "tests" / "unit" / "test_tested.py").touch()
    before = tree(bare)
    for name, words in {
        "Late": "lower-case words joined by _",
        "late2": "lower-case words joined by _",
        "a" * (name_characters_max + 1): "fit into the name of a schema",
        "class": "the word is taken",
        "statement": "the word is taken",
        "utils": "tells nothing",
        "projection_x": "projection_",
    }.items():
        refused = await weavehold(nobody, "consumer", "new", name, "--directory", str(bare))
        assert (refused.code, words in refused.err) == (2, True), refused.err
    for name in ("taken", "tested"):
        refused = await weavehold(nobody, "consumer", "new", name, "--directory", str(bare))
        assert (refused.code, "there is" in refused.err, "choose another name" in refused.err) == (1, True, True)
    assert tree(bare) == before
    elsewhere = await weavehold(nobody, "consumer", "new", "fine", "--directory", str(bare / "tests"))
    assert (elsewhere.code, "in a checkout of Weavehold" in elsewhere.err) == (1, True)
    listing = bare / listing_file
    bracketed = listing.read_text().replace("return (\n", "return [\n").replace("    )\n", "    ]\n")
    for text in ("<<<<<<< HEAD\n", "x = 1\n", bracketed):
        listing.write_text(text)
        before = tree(bare)
        refused = await weavehold(nobody, "consumer", "new", "fine", "--directory", str(bare), "--json")
        assert (refused.code, f"git checkout -- {listing_file}" in refused.json["fault"]) == (1, True)
        assert tree(bare) == before


def tree(folder):
    """Every file with its content."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_a_disk_that_refuses_leaves_nothing(bare, monkeypatch):
    """All or nothing: the listing cannot be written, and the new files go."""
    before = tree(bare)

    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ops.scaffold.make_consumer.replace_durably", refuse)
    with pytest.raises(OSError, match="No space left"):
        make_consumer("fine", bare)
    assert tree(bare) == before


def test_the_listing_is_added_to_once_and_in_order():
    """One import in its place, one entry at the end; a second time nothing; what would be lost is refused."""
    listing = (root / listing_file).read_text()
    once = with_consumer(listing, "late_results", "LateResults")
    assert with_consumer(once, "late_results", "LateResults") == once
    added = [line for line in once.splitlines() if line not in listing.splitlines()]
    assert added == ["from projections.late_results.consumer import LateResults", "        LateResults(),"]
    imports = [line for line in once.splitlines() if line.startswith("from projections.")]
    assert imports == sorted(imports)
    joined = listing.replace("return (\n        ", "return (").replace(",\n    )", ",)").replace(",\n        ", ", ")
    assert with_consumer(joined, "late_results", "LateResults") == once
    with pytest.raises(ListingUnknown, match="a comment"):
        with_consumer(listing.replace("MissionBoard(),", "MissionBoard(),  # the first"), "late_results", "LateResults")
    with pytest.raises(ListingUnknown, match="comes from"):
        with_consumer(listing, "mission__board", "MissionBoard")


def test_the_longest_name_fits_into_a_schema():
    """A schema in PostgreSQL has a prefix, the name and 12 digits, in 63 characters."""
    longest = "a" * name_characters_max
    assert fault_of_name(longest) is None
    assert len(f"projection_{longest}_{'0' * 12}") == schema_characters_max

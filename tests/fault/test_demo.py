"""The demo itself, as the first thing that a newcomer runs."""

import json
import subprocess
import sys
import time

import pytest

from tests.agent_rig import mission_text

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600)]


def demo(*arguments):
    began = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "ops.cli", "demo", "--json", *arguments],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert ended.returncode in (0, 1), ended.stderr[-3000:]
    return ended.returncode, json.loads(ended.stdout), time.monotonic() - began


def test_the_shipped_missions_survive_all_kills():
    """OBX-1, SCH-7, MWP-FND-023: five kills, one with the broker's store; nothing is lost, all is verified."""
    code, report, _ = demo()
    assert (code, report["ok"], report["faults"], report["verification"]["found"]) == (0, True, [], 0)
    assert [mission["state"] for mission in report["missions"]] == ["approved", "approved"]
    assert report["eventsAccepted"] == report["eventsPublished"]
    assert report["eventsApplied"] == report["eventsToApply"]
    assert [recovery["seconds"] is not None for recovery in report["recoveries"]] == [True] * 5
    examined = report["verification"]["examined"]
    assert examined["log"] == report["eventsAccepted"]
    assert examined["projections"] > 0


def test_a_file_of_ones_own_runs(tmp_path):
    """A small Mission file of one's own gets the same kills and the same verification."""
    path = tmp_path / "mine.toml"
    path.write_text(mission_text)
    code, report, _ = demo(str(path))
    assert (code, report["ok"]) == (0, True)
    assert [mission["name"] for mission in report["missions"]] == ["small"]
    assert len(report["recoveries"]) == 5

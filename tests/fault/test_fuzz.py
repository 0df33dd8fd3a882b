"""Coverage-guided fuzzing of the strict parse, the canonical bytes and the six stages (TRU-1, TRU-3, ACC-5)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.drive import available, corpus, targets

root = Path(__file__).parents[2]
seconds = int(os.environ.get("WEAVEHOLD_FUZZ_SECONDS", "60"))
"""How long each target is fuzzed."""
start_and_end_seconds = 60
"""For the import of instrumented modules, the kept corpus, and the last input."""

pytestmark = [
    pytest.mark.fault,
    pytest.mark.timeout(seconds + 2 * start_and_end_seconds),
    pytest.mark.skipif(
        not available, reason="atheris is not installed: it has wheels for Linux on x86-64 and Python before 3.15"
    ),
]


def fuzzed(target: str, finds: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The fuzzer in a process of its own, started with a new seed of its own choice."""
    command = [sys.executable, "-m", f"tests.fuzz.{target}", str(finds), *options]
    return subprocess.run(
        command, cwd=root, capture_output=True, text=True, timeout=seconds + start_and_end_seconds, check=False
    )


@pytest.mark.parametrize("target", targets)
def test_nothing_that_the_fuzzer_makes_breaks_a_promise(target: str, tmp_path: Path) -> None:
    """TRU-1, TRU-3, ACC-5: no input escapes, verifies or stalls; a failing one is named with how to check it again."""
    finds, crashes = tmp_path / "finds", tmp_path / "crashes"
    finds.mkdir()
    crashes.mkdir()
    ended = fuzzed(
        target, finds, str(corpus / target), f"-max_total_time={seconds}", f"-artifact_prefix={crashes}{os.sep}"
    )
    failed = sorted(crashes.iterdir())
    again = "\n".join(f"python -m tests.fuzz.{target} {path}   # {path.read_bytes().hex()}" for path in failed)
    assert not failed, f"{again}\n{ended.stderr[-4_000:]}"
    assert ended.returncode == 0, ended.stderr[-4_000:]
    assert "DONE" in ended.stderr, ended.stderr[-4_000:]


def test_a_broken_promise_is_reported_with_its_input(tmp_path: Path) -> None:
    """ACC-5: the harness itself: a target that fails ends the fuzzer with a crash and the input in a file."""
    finds = tmp_path / "finds"
    finds.mkdir()
    program = (
        "import tests.fuzz.drive as drive\n"
        "def check(data):\n"
        "    assert b'{' not in data or b'}' not in data\n"
        "drive.check_of = lambda target: check\n"
        "drive.fuzz('strict_parse')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(finds), "-max_total_time=30", f"-artifact_prefix={tmp_path}{os.sep}"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=start_and_end_seconds,
        check=False,
    )
    assert ended.returncode != 0
    [crash] = tmp_path.glob("crash-*")
    assert b"{" in crash.read_bytes()
    assert crash.name in ended.stderr

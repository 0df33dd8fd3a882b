"""Benchmarks that start nothing: they measure what they say, on documents of which no two are alike."""

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from contracts.bounds import command_bytes_max
from contracts.document_kinds import DocumentKind
from contracts.verification import Verified, verify_document
from ops.bench import canonicalize, verify_command
from ops.bench.follow_applied import AppliedLog, Committed, percentile
from ops.bench.interleave import interleave, pairs_of_warming
from ops.bench.measurement import measured
from ops.bench.run import benchmarks
from ops.bench.signed_documents import Registry, sign_commands, sign_plain_commands
from ops.cli import app


@pytest.mark.parametrize(
    ("better", "ratios", "met"),
    [("higher", (1.9, 2.0, 2.1), True), ("higher", (1.9, 1.99, 2.1), False), ("lower", (1.9, 2.0, 9.0), True)],
)
def test_a_target_is_met_from_its_own_side(better: str, ratios: tuple[float, ...], *, met: bool) -> None:
    """The median of the ratios decides, at least or at most."""
    result = measured("x", "µs", [(ratio, 1.0) for ratio in ratios], 2.0, better=better)  # type: ignore[arg-type]
    assert result.met is met
    assert result.ratio == sorted(ratios)[1]
    wrong_side = measured("x", "µs", [(2.1, 1.0)], 2.0, better="lower")
    assert not wrong_side.met


def test_slices_take_turns() -> None:
    """Neither of the two always goes first, and warming counts for nothing."""
    done: list[str] = []
    slices = [([number], [number]) for number in range(pairs_of_warming + 2)]
    pairs = interleave(slices, lambda item: done.append(f"own {item}"), lambda item: done.append(f"bare {item}"))
    assert done[:4] == ["own 0", "bare 0", "bare 1", "own 1"]
    assert len(pairs) == 2


def test_commands_of_a_benchmark_differ_and_verify() -> None:
    """No two share bytes, hash or time: nothing remembered of one serves another. Sizes are those of real Commands."""
    commands = sign_commands(45)
    registry = Registry(commands.keys)
    outcomes = [verify_document(DocumentKind.COMMAND, raw, registry, command_bytes_max) for raw in commands.raws]
    verified = [outcome for outcome in outcomes if isinstance(outcome, Verified)]
    assert len(verified) == len({one.signing_hash for one in verified}) == len({one.protected_time for one in verified})
    assert len(verified) == 45
    assert len({one.key_id for one in verified}) == len(commands.keys) == 7
    assert len({one.typed.kind for one in verified}) == 15  # type: ignore[attr-defined]
    assert sum(isinstance(one.source, bytes) for one in verified) == 42
    assert all(600 <= len(raw) <= 3_500 for raw in commands.raws)
    assert sign_commands(45).raws == commands.raws
    assert not any(b"supplementary-plane" in raw for raw in sign_plain_commands(45).raws)


def test_the_benchmarks_without_servers_measure() -> None:
    """verify-command and canonicalize, on slices that are too small to mean anything."""
    verifying = verify_command.compare(2)
    assert (verifying.name, verifying.target, verifying.better) == ("verify-command", 1.5, "lower")
    assert 1 < verifying.ratio < 20
    writing = canonicalize.compare(2, 2)
    assert (writing.name, writing.target, writing.better) == ("canonicalize", 20.0, "higher")
    assert 1 < writing.ratio < 200
    members = set(msgspec.to_builtins(writing))
    assert members >= {"name", "unit", "value", "baseline", "ratio", "target", "met"}
    assert {"verify-command", "canonicalize"} <= set(benchmarks)


def test_the_command_prints_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """`weavehold bench NAME --json`."""
    monkeypatch.setattr(canonicalize, "passes", 1)
    monkeypatch.setattr(canonicalize, "documents_of_each", 1)
    result = CliRunner().invoke(app, ["bench", "canonicalize", "--json"])
    assert result.exit_code == 0, result.output
    (only,) = json.loads(result.stdout)["benchmarks"]
    assert only["name"] == "canonicalize"


def test_latencies_come_from_what_a_projection_noted(tmp_path: Path) -> None:
    """An Event is applied with the first Cursor at or beyond it; a line that is not complete yet waits."""
    path = tmp_path / "applied"
    log = AppliedLog(path)
    log.read()
    path.write_text("10.5 2 urn:a\n11.0 1 urn:b\n12.5 4 ur")
    log.read()
    events = [Committed("urn:a", 1, 10.0), Committed("urn:a", 2, 10.25), Committed("urn:b", 1, 10.0)]
    assert log.has(events)
    assert log.latencies(events) == [0.25, 0.5, 1.0]
    assert log.rate(events) == 3.0
    later = Committed("urn:a", 3, 12.0)
    assert not log.has([later])
    assert log.latencies([later]) == []
    with path.open("a") as file:
        file.write("n:a\n")
    log.read()
    assert log.latencies([later]) == [0.5]


@pytest.mark.parametrize(("percent", "value"), [(0, 1.0), (50, 2.0), (75, 3.0), (99, 4.0), (100, 4.0)])
def test_a_percentile_is_a_value_that_occurred(percent: float, value: float) -> None:
    """The smallest one that so many percent do not exceed."""
    assert percentile([1.0, 2.0, 3.0, 4.0], percent) == value

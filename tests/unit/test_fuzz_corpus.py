"""The inputs that fuzzing found worth keeping, checked again without the fuzzer (TRU-1, TRU-3, ACC-5)."""

import time

import pytest

from contracts import canonical
from tests.fuzz import pipeline
from tests.fuzz.drive import check_of, corpus, kept_inputs, targets

files_max = 200
bytes_max = 300 * 1024
seconds_max = 2.0
"""CPU seconds for one input; the slowest takes some milliseconds."""


@pytest.mark.parametrize("target", targets)
def test_every_kept_input_keeps_the_promises(target: str) -> None:
    """TRU-1, TRU-3, ACC-5: none escapes, none verifies, none takes long; the message names the file."""
    check, kept = check_of(target), kept_inputs(target)
    assert len(kept) > 20
    for path in kept:
        started = time.process_time()
        try:
            check(path.read_bytes())
        except Exception as fault:
            fault.add_note(f"python -m tests.fuzz.{target} {path}")
            raise
        assert time.process_time() - started < seconds_max, path


def test_the_corpus_stays_small() -> None:
    """What covers nothing new is not kept: see `tests.fuzz` for how to merge."""
    sizes = [path.stat().st_size for path in corpus.rglob("*") if path.is_file()]
    assert len(sizes) < files_max
    assert sum(sizes) < bytes_max


@pytest.mark.parametrize(
    ("target", "part", "spoiled", "message"),
    [
        ("strict_parse", "_colon_escape", b"never found", "by hand"),
        ("strict_parse", "_check_depth", lambda raw: None, "by hand"),
        ("canonicalize", "_may_sort_otherwise", lambda encoded: False, "rfc8785"),
        ("canonicalize", "_holds_safe_integers_only", lambda value: True, "rfc8785"),
        ("canonicalize", "number_text", repr, "rfc8785"),
    ],
)
def test_the_kept_inputs_find_a_spoiled_part(
    target: str, part: str, spoiled: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ACC-5, TRU-3: the corpus is worth something: it fails where a part of the product is spoiled."""
    monkeypatch.setattr(canonical, part, spoiled)
    check = check_of(target)
    with pytest.raises(AssertionError, match=message):
        for path in kept_inputs(target):
            check(path.read_bytes())


@pytest.mark.parametrize("way", [1, 2])
def test_the_pipeline_target_notices_a_forgery(way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRU-1: were every signature taken, kept inputs would say so."""
    monkeypatch.setattr("contracts.verification.verify_ed25519", lambda *_: True)
    monkeypatch.setattr("contracts.verification._key_fault", lambda *_: None)
    noticed = 0
    for path in kept_inputs("pipeline"):
        data = path.read_bytes()
        if data and data[0] % pipeline.ways == way:
            try:
                pipeline.check(data)
            except AssertionError:
                noticed += 1
    assert noticed > 0

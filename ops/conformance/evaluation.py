"""Evaluations of a bundle and what came of them: each has one text that is expected and one that is observed."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct, field

from ops.conformance.read_bundle import BundleFault

failures_max: Final = 1_000
"""Failures kept per section; later ones are only counted."""
text_characters_max: Final = 2_000
"""Characters of each text of a failure."""


class Evaluation(NamedTuple):
    """One thing to try. It passes when `observe` returns exactly `expected`."""

    case: str
    name: str
    expected: str
    observe: Callable[[], str]


class Failure(Struct, frozen=True):
    """One evaluation that did not end as expected, or something that is wrong with the manifest as a whole."""

    case: str
    evaluation: str
    expected: str
    observed: str


def failure(case: str, name: str, expected: str, observed: str) -> Failure:
    """A failure as it can be printed: what a bundle says may hold lone surrogates, and may be long."""
    texts = (text[:text_characters_max].encode(errors="replace").decode() for text in (case, name, expected, observed))
    return Failure(*texts)


class Section(Struct, frozen=True, kw_only=True):
    """One of the three bundles: its evaluations, what is wrong with its manifest, and which listed files are bad."""

    manifest: str
    evaluations: Sequence[Evaluation]
    faults: Sequence[Failure]
    bad_files: Sequence[BundleFault] = ()


class Tally(Struct, kw_only=True):
    """How many evaluations of a section passed and failed; of the failures the first `failures_max`."""

    passed: int = 0
    failed: int = 0
    failures: list[Failure] = field(default_factory=list)

    def add(self, failure: Failure) -> None:
        """Count a failure."""
        self.failed += 1
        if len(self.failures) < failures_max:
            self.failures.append(failure)


def run_section(section: Section) -> Tally:
    """Try every evaluation. A bad file that failed none of them is a failure of its own, as a bad manifest is."""
    tally = Tally()
    blamed: set[str] = set()
    for evaluation in section.evaluations:
        failed = try_evaluation(evaluation, blamed)
        if failed is None:
            tally.passed += 1
        else:
            tally.add(failed)
    for fault in section.faults:
        tally.add(fault)
    for bad in section.bad_files:
        if bad.path not in blamed:
            tally.add(failure(section.manifest, bad.path, "the file that the manifest describes", str(bad)))
    if not section.evaluations and not tally.failed:
        tally.add(failure(section.manifest, "evaluations", "one or more", "none"))
    return tally


def try_evaluation(evaluation: Evaluation, blamed: set[str]) -> Failure | None:
    """The failure of one evaluation, None when it passes. A file that is at fault is added to `blamed`."""
    try:
        observed = evaluation.observe()
    except BundleFault as fault:
        blamed.add(fault.path)
        observed = str(fault)
    except Exception as fault:  # noqa: BLE001 - what breaks us is this evaluation's failure, not the end of the run
        observed = f"broke with {type(fault).__name__}: {fault}"
    if observed == evaluation.expected:
        return None
    return failure(evaluation.case, evaluation.name, evaluation.expected, observed)


def unreadable(case: str, name: str, fault: Exception) -> Evaluation:
    """An evaluation that fails because its entry in the manifest is none."""
    return Evaluation(case, name, "an evaluation of protocol 0.1", lambda: str(fault))

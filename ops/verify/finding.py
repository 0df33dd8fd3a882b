"""What verification finds, and the report it makes."""

from collections import Counter

from msgspec import Struct, field

findings_max = 1_000
"""Findings kept in one report; later ones are only counted."""


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One disagreement: which check, where (Group and sequence, or shard and position), and what is wrong."""

    check: str
    message: str
    group_id: str | None = None
    sequence: int | None = None
    shard_id: int | None = None
    position: int | None = None


class Report(Struct, kw_only=True, rename="camel"):
    """How much each check examined, and everything found. `ok` is true when nothing was found.

    `passed_over` counts, by kind, the Events of kinds that this version does not know (PRJ-5): they are no finding.
    """

    examined: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    found: int = 0
    passed_over: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return self.found == 0

    def count(self, check: str, number: int = 1) -> None:
        """Say that a check examined something."""
        self.examined[check] = self.examined.get(check, 0) + number

    def pass_over(self, kind: str) -> None:
        """Say that an Event of this kind was examined in its envelope only."""
        self.passed_over[kind] = self.passed_over.get(kind, 0) + 1

    def add(self, finding: Finding) -> None:
        """Keep a finding, up to `findings_max`."""
        self.found += 1
        if len(self.findings) < findings_max:
            self.findings.append(finding)

    def by_check(self) -> Counter[str]:
        """Findings kept, per check."""
        return Counter(finding.check for finding in self.findings)

"""Running the three vector bundles of one protocol release."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from ops.conformance.evaluation import Section, Tally, run_section
from ops.conformance.judge_admission import admission_section
from ops.conformance.judge_cryptography import cryptography_section
from ops.conformance.judge_structural import structural_section
from ops.conformance.read_bundle import Bundle


class Report(Struct, frozen=True, kw_only=True):
    """What came of each bundle."""

    structural: Tally
    cryptography: Tally
    admission: Tally

    def tallies(self) -> Iterator[tuple[str, Tally]]:
        """Each bundle by its name."""
        for name in self.__struct_fields__:
            yield name, getattr(self, name)

    @property
    def ok(self) -> bool:
        """Whether each bundle was run and nothing failed."""
        return all(tally.passed and not tally.failed for _, tally in self.tallies())


def open_sections(directory: Path) -> Mapping[str, Section]:
    """The three bundles in this folder, read but not run, by name.

    Raises UsageFault when there is no such folder, a manifest is missing, or one is of another version.
    """
    bundle = Bundle(directory)
    structural = structural_section(bundle)
    cryptography, manifest = cryptography_section(bundle)
    admission = admission_section(bundle, manifest)
    return {"structural": structural, "cryptography": cryptography, "admission": admission}


def run_bundles(directory: Path) -> Report:
    """Run every evaluation of the three bundles. Raises UsageFault as `open_sections` does."""
    return Report(**{name: run_section(section) for name, section in open_sections(directory).items()})

"""All benchmarks by name, and their table."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from ops.bench.accept import measure_hot_group, measure_many_groups
from ops.bench.apply_latency import measure as measure_apply_latency
from ops.bench.canonicalize import measure as measure_canonicalize
from ops.bench.measurement import Measurement
from ops.bench.rebuild import measure as measure_rebuild
from ops.bench.relay import measure as measure_relay
from ops.bench.verify_command import measure as measure_verify_command

benchmarks: Final[Mapping[str, Callable[[], Awaitable[Measurement]]]] = {
    "accept-many-groups": measure_many_groups,
    "accept-hot-group": measure_hot_group,
    "relay": measure_relay,
    "apply-latency": measure_apply_latency,
    "rebuild": measure_rebuild,
    "verify-command": measure_verify_command,
    "canonicalize": measure_canonicalize,
}
"""Every benchmark; each brings up and takes down what it needs."""


class UnknownBenchmark(Exception):
    """A name that is no benchmark."""

    def __init__(self, name: str) -> None:
        """The message lists the names there are."""
        super().__init__(f"there is no benchmark {name!r}; choose from {', '.join(benchmarks)}")


async def run_benchmarks(names: Sequence[str], progress: Callable[[str], None]) -> list[Measurement]:
    """Run the named benchmarks, or all, one after another. Raises UnknownBenchmark before any runs."""
    for name in names:
        if name not in benchmarks:
            raise UnknownBenchmark(name)
    results = []
    for name in names or benchmarks:
        progress(name)
        results.append(await benchmarks[name]())
    return results

"""Settings of a Worker beside those of every process: its name, its own database, its slots."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from services.process.settings import Environment, Settings

slots_max: Final = 64
"""Executions of one Worker at once."""
queue_length_most: Final = 10_000
"""The greatest number of unfinished WorkItems that a Worker may be told to own."""
lease_seconds_default: Final = 300
lease_seconds_most: Final = 3_600
"""Seconds of an Execution Lease that a Worker may be told to ask for."""


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What one Worker is told. Its Agent is the Principal of its key file."""

    name: str
    database: Path
    """Its own SQLite file: the work queue, made of Events, and the Commands that are not settled yet."""
    artifacts: Path
    """The content-addressed folder, shared with whoever reads results."""
    slots: int
    queue_length_max: int
    lease_seconds: int
    announced: bool
    """Whether the broker lets this Worker hear announcements of heads. With a key of `weavehold nats provision` it does
    not: a subject that Groups share would tell of all of them."""


def read_worker_settings(settings: Settings, variables: Mapping[str, str] | None = None) -> WorkerSettings:
    """Read the Worker's variables. Raises SettingsFault."""
    environment = Environment(variables)
    name = environment.text("WEAVEHOLD_WORKER_NAME", settings.signing_key_file.stem)
    home = settings.keys_directory.parent
    return WorkerSettings(
        name=name,
        database=environment.path("WEAVEHOLD_WORKER_DATABASE", home / "workers" / f"{name}.sqlite"),
        artifacts=environment.path("WEAVEHOLD_ARTIFACTS_DIR", home / "artifacts"),
        slots=environment.integer("WEAVEHOLD_WORKER_SLOTS", 1, minimum=1, maximum=slots_max),
        queue_length_max=environment.integer("WEAVEHOLD_WORKER_QUEUE_MAX", 100, minimum=1, maximum=queue_length_most),
        lease_seconds=environment.integer(
            "WEAVEHOLD_WORKER_LEASE_SECONDS", lease_seconds_default, minimum=2, maximum=lease_seconds_most
        ),
        announced=environment.choice(
            "WEAVEHOLD_HEAD_ANNOUNCEMENTS", ("on", "off"), "on" if settings.nats_nkey_seed_file is None else "off"
        )
        == "on",
    )

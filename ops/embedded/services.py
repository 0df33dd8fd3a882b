"""The services that a stack runs, as the supervisor starts them."""

from pathlib import Path

from ops.embedded.unit import ServiceSpec


def authority(number: int) -> ServiceSpec:
    """One authority process, named `authority-<number>`."""
    name = f"authority-{number}"
    return ServiceSpec(name, ("authority",), {"WEAVEHOLD_INSTANCE": name})


def relay(number: int) -> ServiceSpec:
    """One relay process, named `relay-<number>`."""
    name = f"relay-{number}"
    return ServiceSpec(name, ("relay",), {"WEAVEHOLD_INSTANCE": name})


def worker(key_file: Path) -> ServiceSpec:
    """One Worker process for the Agent of a key file, named `worker-<name of the file>`; never told the database."""
    name = f"worker-{key_file.stem}"
    return ServiceSpec(
        name,
        ("worker",),
        {"WEAVEHOLD_INSTANCE": name, "WEAVEHOLD_SIGNING_KEY_FILE": str(key_file.resolve())},
        withheld=("WEAVEHOLD_DATABASE_URL",),
    )


def projector() -> ServiceSpec:
    """The process that keeps the projections of the server's side, named `projector`; never told the database."""
    return ServiceSpec(
        "projector", ("projector",), {"WEAVEHOLD_INSTANCE": "projector"}, withheld=("WEAVEHOLD_DATABASE_URL",)
    )


def standard_services(
    *, authorities: int = 1, relays: int = 1, with_projector: bool | None = None
) -> list[ServiceSpec]:
    """So many authority and relay processes, authorities first, and the projector.

    Without being told, the projector is left out of a stack that has no authority or no relay to feed it.
    """
    services = [authority(number + 1) for number in range(authorities)] + [
        relay(number + 1) for number in range(relays)
    ]
    if with_projector is None:
        with_projector = authorities > 0 and relays > 0
    return [*services, projector()] if with_projector else services

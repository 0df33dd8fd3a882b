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


def standard_services(*, authorities: int = 1, relays: int = 1) -> list[ServiceSpec]:
    """So many authority and relay processes, authorities first."""
    return [authority(number + 1) for number in range(authorities)] + [relay(number + 1) for number in range(relays)]

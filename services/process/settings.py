"""Settings of a process: read once from the environment, typed, validated, printable without secrets.

Every variable is named `WEAVEHOLD_…`. A value that cannot be used raises `SettingsFault`, whose message names the
variable, the value and the remedy; a process that meets one exits with 2 (OPS-2).
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from contracts.identifiers import is_identifier

log_levels: Final = ("debug", "info", "warning", "error")
stop_grace_seconds_default: Final = 10.0
"""Seconds between the request to stop and the cancellation of what still runs."""
text_characters_max: Final = 4096
"""Characters of one variable."""


class SettingsFault(Exception):
    """A variable is missing or cannot be used. The message names it, its value and the remedy."""

    def __init__(self, variable: str, problem: str, remedy: str) -> None:
        """State the variable, what is wrong with it, and what to do."""
        super().__init__(f"{variable} {problem}. {remedy}")
        self.variable = variable
        self.problem = problem
        self.remedy = remedy


class Environment:
    """Typed reading of environment variables; each method raises `SettingsFault` for a value it cannot use.

    An empty variable counts as absent. `default=None` makes a variable required.
    """

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        """Read from `variables`, by default from the process environment."""
        self._variables = os.environ if variables is None else variables

    def optional(self, variable: str) -> str | None:
        """The text of a variable, or None when absent or empty."""
        value = self._variables.get(variable, "").strip()
        if len(value) > text_characters_max:
            raise SettingsFault(variable, f"has {len(value)} characters", f"At most {text_characters_max} are allowed")
        return value or None

    def text(self, variable: str, default: str | None = None, *, remedy: str = "Set it") -> str:
        """A text; `remedy` tells what to set when a required one is absent."""
        value = self.optional(variable) or default
        if value is None:
            raise SettingsFault(variable, "is not set", remedy)
        return value

    def choice(self, variable: str, allowed: tuple[str, ...], default: str) -> str:
        """One of the allowed texts, compared without case."""
        value = (self.optional(variable) or default).lower()
        if value not in allowed:
            raise SettingsFault(variable, f"is {value!r}", f"Use one of {', '.join(allowed)}")
        return value

    def integer(self, variable: str, default: int | None = None, *, minimum: int, maximum: int) -> int:
        """An integer between `minimum` and `maximum`, both included."""
        value = self.text(variable, None if default is None else str(default), remedy=f"Set {minimum} to {maximum}")
        if not re.fullmatch(r"-?[0-9]{1,18}", value) or not minimum <= int(value) <= maximum:
            raise SettingsFault(variable, f"is {value!r}", f"Use an integer from {minimum} to {maximum}")
        return int(value)

    def seconds(self, variable: str, default: float, *, minimum: float, maximum: float) -> float:
        """A duration in seconds between `minimum` and `maximum`, both included."""
        value = self.optional(variable) or str(default)
        if not re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", value) or not minimum <= float(value) <= maximum:
            raise SettingsFault(variable, f"is {value!r}", f"Use seconds from {minimum} to {maximum}")
        return float(value)

    def url(self, variable: str, schemes: tuple[str, ...], *, remedy: str) -> str:
        """A URL (or comma-separated URLs) with one of the schemes."""
        value = self.text(variable, remedy=remedy)
        for part in value.split(","):
            if _scheme(part) not in schemes:
                raise SettingsFault(variable, f"is {redact_url(part)!r}", f"Use a URL with {' or '.join(schemes)}")
        return value

    def identifier(self, variable: str, *, remedy: str) -> str:
        """An identifier (absolute URI) of the contracts."""
        value = self.text(variable, remedy=remedy)
        if not is_identifier(value):
            raise SettingsFault(
                variable, f"is {value!r}", "Use an absolute URI such as urn:weavehold:organization:acme"
            )
        return value

    def path(self, variable: str, default: Path) -> Path:
        """A file-system path; need not exist."""
        return Path(self.optional(variable) or default).expanduser()

    def file(self, variable: str) -> Path | None:
        """A file that is there, or None when the variable is absent."""
        value = self.optional(variable)
        if value is None:
            return None
        path = Path(value).expanduser()
        if not path.is_file():
            raise SettingsFault(variable, f"is {value!r}, where there is no file", "Name a readable file")
        return path


def _scheme(url: str) -> str | None:
    """The scheme of a URL, None for what is none."""
    try:
        return urlsplit(url).scheme
    except ValueError:
        return None


def redact_url(url: str) -> str:
    """The URL with its user information and passwords in its query replaced by `***`."""
    without_user = re.sub(r"(?<=://)[^/@\s]*@", "***@", url)
    return re.sub(r"(?i)((?:password|token)=)[^&\s]*", r"\1***", without_user)


@dataclass(frozen=True, kw_only=True)
class BrokerCredentials:
    """What a client shows to the broker, and how it knows the broker by. Nothing of it is required.

    With `ca_file` the broker must prove itself by a certificate of that authority. `inbox_prefix` is where answers go;
    without one a client with a key has its own, `_INBOX.<its public nkey>`, and any other the common `_INBOX`.
    """

    token: str | None = None
    nkey_seed_file: Path | None = None
    ca_file: Path | None = None
    inbox_prefix: str | None = None


def read_broker_credentials(environment: Environment) -> BrokerCredentials:
    """The broker's WEAVEHOLD_NATS_… variables beside its URL. Raises `SettingsFault`."""
    prefix = environment.optional("WEAVEHOLD_NATS_INBOX_PREFIX")
    if prefix is not None and not re.fullmatch(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*", prefix):
        raise SettingsFault(
            "WEAVEHOLD_NATS_INBOX_PREFIX", f"is {prefix!r}", "Use a subject such as _INBOX.ada, without wildcards"
        )
    return BrokerCredentials(
        token=environment.optional("WEAVEHOLD_NATS_TOKEN"),
        nkey_seed_file=environment.file("WEAVEHOLD_NATS_NKEY_SEED_FILE"),
        ca_file=environment.file("WEAVEHOLD_NATS_CA_FILE"),
        inbox_prefix=prefix,
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every process of Weavehold is told. Service-specific settings are read beside it with `Environment`."""

    organization_id: str
    database_url: str
    """Of the Organization's database; empty for a process that is never told it, such as a Worker."""
    nats_url: str
    nats_token: str | None
    nats_nkey_seed_file: Path | None
    nats_ca_file: Path | None
    nats_inbox_prefix: str | None
    keys_directory: Path
    signing_key_file: Path
    health_host: str
    health_port: int
    """0 picks a free port, which is logged and written to `health_port_file` when that is given."""
    health_port_file: Path | None
    log_level: str
    stop_grace_seconds: float
    stop_when_closed: int | None
    """An inherited file descriptor: the process stops when its other end closes (its supervisor is gone)."""
    otlp_endpoint: str | None

    @property
    def broker_credentials(self) -> BrokerCredentials:
        """What this process shows to the broker."""
        return BrokerCredentials(
            token=self.nats_token,
            nkey_seed_file=self.nats_nkey_seed_file,
            ca_file=self.nats_ca_file,
            inbox_prefix=self.nats_inbox_prefix,
        )

    def redacted(self) -> dict[str, Any]:
        """All settings as printable values, without secrets."""
        shown: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_token"):
                value = value and "***"
            elif field.name.endswith("_url") or field.name == "otlp_endpoint":
                value = value and redact_url(value)
            shown[field.name] = str(value) if isinstance(value, Path) else value
        return shown


def read_settings(
    variables: Mapping[str, str] | None = None, *, signing_key: str = "authority", uses_database: bool = True
) -> Settings:
    """Read the settings of a process once. Raises `SettingsFault` (OPS-1).

    `signing_key` names the key file in WEAVEHOLD_KEYS_DIR that WEAVEHOLD_SIGNING_KEY_FILE defaults to. A process that
    does not use the Organization's database is not told where it is, even when the variable is set.
    """
    environment = Environment(variables)
    keys_directory = environment.path("WEAVEHOLD_KEYS_DIR", Path(".weavehold") / "keys")
    port_file = environment.optional("WEAVEHOLD_HEALTH_PORT_FILE")
    descriptor = environment.optional("WEAVEHOLD_STOP_WHEN_CLOSED")
    credentials = read_broker_credentials(environment)
    return Settings(
        organization_id=environment.identifier(
            "WEAVEHOLD_ORGANIZATION", remedy="Set the Organization's ID, as `weavehold init` printed it"
        ),
        database_url=_database_url(environment) if uses_database else "",
        nats_url=environment.url("WEAVEHOLD_NATS_URL", ("nats", "tls", "ws", "wss"), remedy="Set nats://host:port"),
        nats_token=credentials.token,
        nats_nkey_seed_file=credentials.nkey_seed_file,
        nats_ca_file=credentials.ca_file,
        nats_inbox_prefix=credentials.inbox_prefix,
        keys_directory=keys_directory,
        signing_key_file=environment.path("WEAVEHOLD_SIGNING_KEY_FILE", keys_directory / f"{signing_key}.json"),
        health_host=environment.text("WEAVEHOLD_HEALTH_HOST", "127.0.0.1"),
        health_port=environment.integer("WEAVEHOLD_HEALTH_PORT", 0, minimum=0, maximum=65535),
        health_port_file=Path(port_file) if port_file else None,
        log_level=environment.choice("WEAVEHOLD_LOG_LEVEL", log_levels, "info"),
        stop_grace_seconds=environment.seconds(
            "WEAVEHOLD_STOP_GRACE_SECONDS", stop_grace_seconds_default, minimum=0, maximum=3600
        ),
        stop_when_closed=(
            environment.integer("WEAVEHOLD_STOP_WHEN_CLOSED", minimum=0, maximum=65535) if descriptor else None
        ),
        otlp_endpoint=environment.optional("WEAVEHOLD_OTLP_ENDPOINT"),
    )


def _database_url(environment: Environment) -> str:
    return environment.url(
        "WEAVEHOLD_DATABASE_URL", ("postgresql", "postgres"), remedy="Set postgresql://user@host:port/database"
    )

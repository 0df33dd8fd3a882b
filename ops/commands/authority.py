"""`weavehold authority`."""

import typer

from services.authority.main import run


def command() -> None:
    """Run one authority process until SIGTERM or Ctrl-C. It is configured by WEAVEHOLD_… variables alone.

    \b
    Examples:
      export WEAVEHOLD_ORGANIZATION=urn:weavehold:organization:acme WEAVEHOLD_KEYS_DIR=/run/secrets/weavehold
      WEAVEHOLD_DATABASE_URL=postgresql://app@db/weavehold WEAVEHOLD_NATS_URL=nats://nats:4222 weavehold authority
    """
    raise typer.Exit(run())

"""`weavehold projector`."""

import typer

from services.projector.main import run


def command() -> None:
    """Run the projector until SIGTERM or Ctrl-C: it keeps projections. WEAVEHOLD_… variables alone configure it.

    It needs no database, only the broker and a service's key (the operator's by default). Each projection is a SQLite
    file in WEAVEHOLD_PROJECTIONS_DIR, or a schema in PostgreSQL; `weavehold board`, `audit search` and `usage` show
    them. WEAVEHOLD_PROJECTIONS selects some by their names, as in mission_board,audit_trail. Run one at a time on
    a folder. Whose Events it believes stands in WEAVEHOLD_TRUST_ANCHORS_FILE (anchors.json beside the keys by
    default), as `weavehold init` wrote it.

    \b
    Examples:
      export WEAVEHOLD_ORGANIZATION=urn:weavehold:organization:acme WEAVEHOLD_KEYS_DIR=/run/secrets/weavehold
      WEAVEHOLD_NATS_URL=nats://nats:4222 WEAVEHOLD_PROJECTIONS_DIR=/var/lib/weavehold weavehold projector
    """
    raise typer.Exit(run())

"""`weavehold worker`."""

import typer

from services.worker.main import run


def command() -> None:
    """Run one Worker process until SIGTERM or Ctrl-C. It is configured by WEAVEHOLD_… variables alone.

    WEAVEHOLD_SIGNING_KEY_FILE is the key of its Agent. It keeps a database of its own in WEAVEHOLD_WORKER_DATABASE
    (SQLite) and results in WEAVEHOLD_ARTIFACTS_DIR; WEAVEHOLD_WORKER_SLOTS, WEAVEHOLD_WORKER_QUEUE_MAX and
    WEAVEHOLD_WORKER_LEASE_SECONDS bound what it takes on. It is never told the Organization's database. Whose Events it
    believes stands in WEAVEHOLD_TRUST_ANCHORS_FILE: the anchors.json that `weavehold init` wrote, public data.

    \b
    Examples:
      export WEAVEHOLD_ORGANIZATION=urn:weavehold:organization:acme WEAVEHOLD_NATS_URL=nats://nats:4222
      export WEAVEHOLD_TRUST_ANCHORS_FILE=/etc/weavehold/anchors.json
      WEAVEHOLD_SIGNING_KEY_FILE=/run/secrets/ada.json WEAVEHOLD_WORKER_SLOTS=2 weavehold worker
    """
    raise typer.Exit(run())

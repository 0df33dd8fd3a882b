"""The one database of an embedded server."""

import psycopg

from services.process.statements import load


def ensure_database(url: str) -> None:
    """Create the database `weavehold` on the server at `url` unless it is there. Raises `psycopg.Error`."""
    statements = load(__package__)
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statements.database_exists).fetchone()
        if row is None or not row[0]:
            connection.execute(statements.create_database)

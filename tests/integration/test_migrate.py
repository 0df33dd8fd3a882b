"""Migrations: plain SQL applied by dbmate; a dry run touches nothing; up, down and up again (OPS-2)."""

from collections.abc import Iterator

import psycopg
import pytest

from ops.migrate import MigrationFault, list_migrations, migrate, migrations, roll_back

schema_query = """
    SELECT 'column', table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public'
    UNION ALL
    SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL
    SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'function', '', proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    ORDER BY 1, 2, 3, 4
"""


@pytest.fixture
def database(empty_database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(empty_database_url, autocommit=True) as connection:
        yield connection


def schema_of(database: psycopg.Connection) -> list[tuple[str, ...]]:
    return [row for row in database.execute(schema_query).fetchall() if "schema_migrations" not in repr(row)]


def test_a_dry_run_touches_nothing(database: psycopg.Connection, empty_database_url: str) -> None:
    """OPS-2: listing what is pending makes no table, not even the migrations' own."""
    pending = list_migrations(empty_database_url)
    assert [migration.file for migration in pending] == sorted(migrations.glob("*.sql"))
    assert not any(migration.applied for migration in pending)
    assert "CREATE TABLE organization" in pending[0].sql_up()
    assert "DROP TABLE" not in pending[0].sql_up()
    assert database.execute("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace").fetchone() == (
        0,
    )


def test_migrations_go_up_down_and_up_again(database: psycopg.Connection, empty_database_url: str) -> None:
    """Each migration takes back what it made, and the second way up gives the same schema."""
    applied = migrate(empty_database_url)
    assert len(applied) == len(list(migrations.glob("*.sql")))
    first = schema_of(database)
    assert ("column", "event_log", "chain_hash", "bytea") in first
    assert migrate(empty_database_url) == []
    for _ in applied:
        roll_back(empty_database_url)
    assert schema_of(database) == []
    migrate(empty_database_url)
    assert schema_of(database) == first


def test_a_failing_migration_changes_nothing_and_says_why(
    database: psycopg.Connection, empty_database_url: str
) -> None:
    """OPS-2: the tool's message with the statement's fault, and the schema as before that migration."""
    database.execute("CREATE TABLE organization (taken text)")
    with pytest.raises(MigrationFault, match='"organization" already exists'):
        migrate(empty_database_url)
    assert schema_of(database) == [("column", "organization", "taken", "text")]


def test_an_unreachable_database_is_a_message_without_secrets() -> None:
    """OPS-2: a fault names the address, not the password."""
    with pytest.raises(MigrationFault) as refused:
        list_migrations("postgresql://app:secret@127.0.0.1:1/weavehold?connect_timeout=1")
    assert "127.0.0.1:1" in str(refused.value)
    assert "secret" not in str(refused.value)

"""SQL lives in files beside its caller and is loaded by name."""

import pytest

from services.process.statements import StatementFault, load


def test_a_statement_is_the_text_of_its_file_without_the_last_semicolon() -> None:
    statements = load("services.process")
    assert statements.primary_state == statements["primary_state"]
    assert "pg_is_in_recovery" in statements.primary_state
    assert not statements.primary_state.endswith(";")
    assert "primary_state" in statements
    assert len(statements) == len(list(statements))


def test_an_unknown_statement_names_the_missing_file() -> None:
    with pytest.raises(StatementFault, match=r"services\.process has no sql/no_such\.sql"):
        load("services.process")["no_such"]


def test_a_package_without_statements_is_a_fault() -> None:
    with pytest.raises(StatementFault, match="contracts has no folder sql/"):
        load("contracts")

"""Faults are sorted before any retry (DUR-3)."""

import psycopg
import pytest
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from services.process.database import FaultKind, Timeouts, classify, connection_string

transient_states = (
    "08000 08006 25006 25P03 40001 40003 40P01 53100 53300 55P03 57014 57P01 57P02 57P03 57P05"  # as in the manual
)


@pytest.mark.parametrize("state", transient_states.split())
def test_states_that_pass_by_themselves_are_transient(state: str) -> None:
    assert classify(errors.lookup(state)("x")) is FaultKind.TRANSIENT


@pytest.mark.parametrize("state", ["22P02", "23505", "23514", "42501", "42P01", "28P01", "3D000", "P0001", "XX000"])
def test_states_that_stay_are_permanent(state: str) -> None:
    assert classify(errors.lookup(state)("x")) is FaultKind.PERMANENT


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("server closed the connection unexpectedly"),
        PoolTimeout("x"),
        TooManyRequests("x"),
        ConnectionResetError("x"),
        TimeoutError("x"),
    ],
)
def test_a_lost_connection_and_a_full_pool_are_transient(error: Exception) -> None:
    assert classify(error) is FaultKind.TRANSIENT


@pytest.mark.parametrize("error", [PoolClosed("x"), psycopg.ProgrammingError("x"), ValueError("x"), KeyError("x")])
def test_a_closed_pool_and_a_fault_of_our_own_are_permanent(error: Exception) -> None:
    assert classify(error) is FaultKind.PERMANENT


def test_a_group_is_transient_only_when_all_in_it_is() -> None:
    lost, ours = psycopg.OperationalError("gone"), ValueError("x")
    assert classify(ExceptionGroup("g", [lost, ExceptionGroup("h", [lost])])) is FaultKind.TRANSIENT
    assert classify(ExceptionGroup("g", [lost, ours])) is FaultKind.PERMANENT


def test_every_connection_carries_its_bounds() -> None:
    """RULE-08: no wait without a bound, also without what the database roles carry."""
    string = connection_string("postgresql://u@h/d", name="lane", timeouts=Timeouts(lock=1, statement=0))
    for part in ("application_name=lane", "connect_timeout=", "keepalives=1", "tcp_user_timeout=10000"):
        assert part in string
    assert "lock_timeout=1000" in string
    assert "statement_timeout=0" in string
    assert "idle_in_transaction_session_timeout=15000" in string


def test_what_the_url_says_wins() -> None:
    string = connection_string("postgresql://u@h/d?connect_timeout=1&options=-c%20lock_timeout%3D9", name="x")
    assert "connect_timeout=1 " in string + " "
    assert string.index("lock_timeout=5000") < string.index("lock_timeout=9")

"""The catalogue of promises is true: what it calls kept is named by a test that exists."""

from tests.promises import docstring_of, read_promises


def test_every_kept_promise_names_a_test_that_names_it() -> None:
    """A promise marked as kept (or kept in part) has a test, and that test's name or docstring says its ID."""
    for promise in read_promises():
        if promise.status == "open":
            assert not promise.tests, f"{promise.ids} is open but names tests"
            continue
        assert promise.tests, f"{promise.ids} is marked {promise.status} but names no test"
        proofs = []
        for file, function in promise.tests:
            found = docstring_of(file, function)
            assert found is not None, f"{promise.ids} names {file}::{function}, which does not exist"
            proofs.append(found)
        for identifier in promise.ids:
            assert any(identifier in proof for proof in proofs), f"no test of {identifier} names it"


def test_the_catalogue_is_not_empty() -> None:
    """A catalogue that cannot be read would prove nothing."""
    assert len(read_promises()) > 50

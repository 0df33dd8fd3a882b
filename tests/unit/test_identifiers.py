"""Identifiers are absolute ASCII URIs, found out in one pass."""

import time

import msgspec
import pytest

from contracts.identifiers import Identifier, SafeInteger, Uri


@pytest.mark.parametrize(
    "text",
    [
        "urn:uuid:00000000-0000-4000-8000-000000000001",
        "urn:weavehold:agent:a.b_c~d",
        "urn:",
        "a:",
        "A+b.c-9:x",
        "https://user:pw@example.com:8080/a/b//c?d=e/f?g#h/i?j",
        "http://",
        "http://[::1]/",
        "http://[2001:db8::192.0.2.1]:80",
        "http://[1:2:3:4:5:6:7:8]",
        "http://[v1.a:b]",
        "urn:x:%41%C3%a9",
        "file:///etc",
        "mailto:a@b",
        "x:/",
    ],
)
def test_an_absolute_uri_is_an_identifier(text: str) -> None:
    """ACC-5: RFC 3986 `URI`."""
    assert msgspec.convert(text, Identifier) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "/x",
        "//x",
        "1a:x",
        ":x",
        "urn:x\n",
        "urn:x ",
        " urn:x",
        "urn:x\0",
        "urn:é",
        "https://例え.テスト/",
        "urn:x%4",
        "urn:x%zz",
        "urn:x[1]",
        "urn:x#a#b",
        "urn:<x>",
        'urn:"',
        "urn://a:b:c",
        "http://[::1",
        "http://[:::]",
        "http://[1:2:3]",
        "http://[1:2:3:4:5:6:7:8:9]",
        "http://[::256.1.1.1]",
        "http://[v.a]",
        "http://a:b/",
        "urn:\ud800",
        "urn:" + "x" * 509,
    ],
)
def test_anything_else_is_none(text: str) -> None:
    """ACC-5: no other characters, no lone surrogate, no more than 512 characters, no trailing line feed."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(text, Identifier)


@pytest.mark.parametrize(
    "text",
    [
        "urn:" + "a" * 250_000 + "\n",
        "http://" + "a:" * 125_000 + "\n",
        "http://" + "a@" * 125_000,
        "http://[" + "1:" * 125_000,
    ],
    ids=lambda text: text[:10],
)
def test_a_long_uri_is_judged_in_linear_time(text: str) -> None:
    """ACC-5: no URI makes the pattern go back again and again."""
    started = time.process_time()
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(text, Uri)
    assert time.process_time() - started < 1.0


@pytest.mark.parametrize("number", [-1, 2**53, 1.5, True, "1"])
def test_integers_are_safe(number: object) -> None:
    """ACC-5: 0 to 2^53-1."""
    assert msgspec.convert(2**53 - 1, SafeInteger) == 2**53 - 1
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(number, SafeInteger)

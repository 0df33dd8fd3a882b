"""Our text types and the protocol's patterns and formats mean the same texts (TRU-1, TRU-3)."""

from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts import bounds
from contracts.documents import agent_card, common, lease, membership, work_contract
from contracts.identifiers import Base64Url, Identifier, Sha256, Uri
from contracts.timestamps import Timestamp
from tests.vectors.document_instances import texts_of_pattern, times, uris
from tests.vectors.document_neighbours import no_times, no_uris
from tests.vectors.protocol_schemas import ecma, is_date_time, is_uri, needs_bundle, schema, schema_files

examples = settings(max_examples=60, deadline=None, database=None)

# (pattern, maxLength) of the schemas -> our type.
types: Final[dict[tuple[str, int | None], Any]] = {
    (r"\S", 512): lease.ClosureReason,
    (
        r"^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?$",
        128,
    ): common.Semver,
    (r"^P(?!$)(?:[0-9]+D)?(?:T(?=[0-9])(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]+)?S)?)?$", 64): common.Duration,
    (r"^[A-Z][A-Z0-9_]{1,127}$", None): work_contract.FailureCode,
    (r"^[A-Z]{3}$", None): common.Currency,
    (r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$", None): common.MediaType,
    (r"^[A-Za-z0-9_-]+$", 4096): Base64Url,
    (r"^[a-z0-9]+(?:[.-][a-z0-9]+)+$", 200): common.CapabilityId,
    (r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,127}$", None): common.LocalName,
    (r"^[a-z][a-z0-9._:-]*$", 128): common.Operation,
    (r"^[a-z][a-z0-9._:-]*$", 160): membership.Scope,
    (r"^[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+$", 160): common.Kind,
    (r"^ext\.[a-z0-9][a-z0-9_-]*(?:\.[a-z0-9][a-z0-9_-]*){2,}$", 160): common.ExtensionKind,
    (r"^sha256:[0-9a-f]{64}$", None): Sha256,
}
by_format: Final = {r"^[A-Za-z][A-Za-z0-9+.-]*:": Identifier, r"^wss://": agent_card.SecureWebSocketUri}
shortest: Final = {Base64Url: 2}


def _takes(shape: Any, text: str) -> bool:
    try:
        msgspec.convert(text, shape)
    except msgspec.ValidationError:
        return False
    return True


def _patterns(part: Any) -> set[tuple[str, int | None]]:
    found: set[tuple[str, int | None]] = set()
    if isinstance(part, dict):
        if isinstance(part.get("pattern"), str):
            found.add((part["pattern"], part.get("maxLength")))
        found.update(*(_patterns(inner) for key, inner in part.items() if key != "not"))
    elif isinstance(part, list):
        found.update(*(_patterns(inner) for inner in part))
    return found


@needs_bundle
def test_tru_1_every_pattern_of_the_schemas_is_compared() -> None:
    """TRU-1: a new pattern in the schemas fails here until it has its type."""
    found = set[tuple[str, int | None]]().union(*(_patterns(schema(name)) for name in schema_files()))
    assert {item for item in found if item[0] not in by_format} == set(types)


@pytest.mark.parametrize(("pattern", "longest"), types, ids=lambda value: str(value)[:40])
@examples
@given(data=st.data())
def test_tru_1_patterns_mean_the_same_texts(pattern: str, longest: int | None, data: st.DataObject) -> None:
    """TRU-1: texts of the pattern, texts one sign away from it, and texts at the length bound."""
    shape = types[pattern, longest]
    text = data.draw(st.from_regex(ecma(pattern)) | st.sampled_from(texts_of_pattern[pattern]) | st.text(max_size=4))
    at = data.draw(st.integers(0, len(text)))
    sign = data.draw(st.sampled_from("\n\r\u2028\ufeff\x85\x1c .-_:/+AZaz09é\ud800") | st.characters())
    for candidate in (text, text[:at] + sign + text[at:], text[:at] + text[at + 1 :], text + "\n", text * 80):
        for cut in (candidate, candidate[: (longest or 0) + 1], candidate[:longest]):
            bounded = shortest.get(shape, 0) <= len(cut) <= (longest or len(cut))
            assert _takes(shape, cut) is (bounded and ecma(pattern).search(cut) is not None), repr(cut)


_uri_signs: Final = st.sampled_from(
    [*"az09AZ-._~:/?#[]@!$&'()*+,;=%\\^`{|}\"<> \n\x00é", "%41", "%4", "::", "//", "[::1]"]
)


@examples
@given(st.sampled_from([*uris, *no_uris]), st.integers(0, 60), st.lists(_uri_signs, max_size=4).map("".join))
def test_tru_1_uris_are_those_of_rfc_3986(uri: str, at: int, signs: str) -> None:
    """TRU-1: our pattern against a reading by hand; identifiers are ASCII URIs of at most 512 characters."""
    for text in (uri, uri[:at] + signs + uri[at:], "a:" + signs, "a://" + signs, "a://" + signs + "/" + uri):
        assert _takes(Uri, text) is is_uri(text), text
        assert _takes(Identifier, text) is (is_uri(text) and len(text) <= 512), text
        assert _takes(agent_card.SecureWebSocketUri, text) is (is_uri(text) and text.startswith("wss://")), text


_groups: Final = st.sampled_from(["", "0", "1", "ffff", "abcd", "12345", "g", "1.2.3.4", "1.2.3.256", "01.2.3.4"])


@settings(max_examples=300, deadline=None, database=None)
@given(st.lists(_groups, max_size=10).map(":".join), st.sampled_from(["", "v1.", "vF.x", "V.", "v1"]))
def test_tru_1_ip_literals_are_those_of_rfc_3986(address: str, version: str) -> None:
    """TRU-1: IPv6 addresses with every form of `::` and of embedded IPv4, and IPvFuture."""
    text = f"urn://[{version}{address}]:1"
    assert _takes(Uri, text) is is_uri(text), text


@settings(max_examples=300, deadline=None, database=None)
@given(
    st.sampled_from([*times, *no_times, "1900-02-29T00:00:00Z", "2000-02-29T00:00:00Z", "2026-04-31T00:00:00Z"]),
    st.integers(0, 30),
    st.sampled_from(["", *"0123456789-:TtZz+. \n", "\u0661", "99"]),
)
def test_tru_3_timestamps_are_those_of_rfc_3339(time: str, at: int, signs: str) -> None:
    """TRU-3: our pattern against a reading by hand, with one sign put in, replaced or taken out."""
    for text in (time, time[:at] + signs + time[at:], time[:at] + signs + time[at + 1 :]):
        assert _takes(Timestamp, text) is is_date_time(text), text


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (Uri, "a:" + "a" * bounds.command_bytes_max + " "),
        (Uri, "a://" + "a:" * (bounds.command_bytes_max // 2) + "@@"),
        (Uri, "a://[" + ":" * bounds.command_bytes_max),
        (Uri, "a:" + "/" * bounds.command_bytes_max + "%"),
        (Uri, "a:?" + "?" * bounds.command_bytes_max + "%"),
        (Timestamp, "2026-07-15T00:00:00." + "0" * bounds.command_bytes_max + "x"),
        (common.MediaType, "a" * bounds.command_bytes_max),
        (common.LocalName, "a" * bounds.command_bytes_max),
        (Sha256, "sha256:" * (bounds.command_bytes_max // 7)),
        (lease.ClosureReason, " " * 512),
        (common.Kind, "a." * 79 + "A"),
        (common.ExtensionKind, "ext." + "a." * 77 + "A"),
        (common.Semver, "1.1.1-" + "-" * 120 + "!"),
        (common.CapabilityId, "a-" * 99 + "!"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_acc_5_long_texts_are_refused_in_linear_time(shape: Any, text: str) -> None:
    """ACC-5: no pattern backtracks over a whole Command."""
    assert not _takes(shape, text)

"""Identifiers, fencing numbers and small value types shared by every contract.

Identifiers are absolute ASCII URIs (`common.schema.json#/$defs/id`). Epochs are distinct types, so that a
Session Epoch cannot be passed where an Ownership Epoch is meant.
"""

import hashlib
import re
from typing import Annotated, Final, NewType

from msgspec import Meta

from contracts.bounds import safe_integer_max

_PCT: Final = r"%[0-9A-Fa-f]{2}"
_NAME: Final = r"A-Za-z0-9._~!$&'()*+,;=\-"
"""Unreserved characters and sub-delims."""
_OCTET: Final = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_H16: Final = r"[0-9A-Fa-f]{1,4}"
_LS32: Final = rf"(?:{_H16}:{_H16}|{_OCTET}(?:\.{_OCTET}){{3}})"
_IPV6: Final = "|".join(
    [
        rf"(?:{_H16}:){{6}}{_LS32}",
        rf"::(?:{_H16}:){{5}}{_LS32}",
        *(rf"(?:(?:{_H16}:){{0,{n}}}{_H16})?::(?:{_H16}:){{{4 - n}}}{_LS32}" for n in range(5)),
        rf"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}",
        rf"(?:(?:{_H16}:){{0,6}}{_H16})?::",
    ]
)
_IP_LITERAL: Final = rf"\[(?:{_IPV6}|[vV][0-9A-Fa-f]+\.[{_NAME}:]+)\]"
_AUTHORITY: Final = rf"(?:(?:[{_NAME}:]++|{_PCT})*+@)?(?:{_IP_LITERAL}|(?:[{_NAME}]++|{_PCT})*+)(?::[0-9]*+)?"
_PATH: Final = rf"(?:[{_NAME}:@/]++|{_PCT})*+"
_TAIL: Final = rf"(?:[{_NAME}:@/?]++|{_PCT})*+"
_URN: Final = rf"urn:[{_NAME}:@][{_NAME}:@/]*+\Z"
"""Nearly every identifier: tried first, because the engine is done with it in two steps."""
uri_pattern: Final = (
    rf"\A(?:{_URN}|[A-Za-z][A-Za-z0-9+.-]*+:(?://{_AUTHORITY}(?:/{_PATH})?|(?!//){_PATH})(?:\?{_TAIL})?(?:#{_TAIL})?\Z)"
)
"""RFC 3986 `URI`, anchored without the trailing-line-feed trap of `$`; no part gives back what it took (linear)."""

identifier_characters_max: Final = 512

_uri: Final = re.compile(uri_pattern)

Identifier = Annotated[str, Meta(pattern=uri_pattern, max_length=identifier_characters_max)]
Uri = Annotated[str, Meta(pattern=uri_pattern)]
Sha256 = Annotated[str, Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]
Base64Url = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]+\Z", min_length=2, max_length=4096)]
SafeInteger = Annotated[int, Meta(ge=0, le=safe_integer_max)]
PositiveInteger = Annotated[int, Meta(ge=1, le=safe_integer_max)]

SessionEpoch = NewType("SessionEpoch", int)
MembershipEpoch = NewType("MembershipEpoch", int)
CoordinatorEpoch = NewType("CoordinatorEpoch", int)
OwnershipEpoch = NewType("OwnershipEpoch", int)

_epoch: Final = Meta(ge=1, le=safe_integer_max)
SessionEpochField = Annotated[SessionEpoch, _epoch]
MembershipEpochField = Annotated[MembershipEpoch, _epoch]
CoordinatorEpochField = Annotated[CoordinatorEpoch, _epoch]
OwnershipEpochField = Annotated[OwnershipEpoch, _epoch]

GroupSequence = NewType("GroupSequence", int)
"""Place of an Event in its Group's history, from 1 without gaps; 0 stands before the first."""
ShardPosition = NewType("ShardPosition", int)
"""Place of an Event in its shard's log, from 1 without gaps; equal to the stream sequence at the broker."""
ShardId = NewType("ShardId", int)
"""0 is the Organization shard; 1…S hold Mission trees."""

organization_shard: Final = ShardId(0)


def registry_group(organization_id: str) -> str:
    """The Group whose history is the key registry's: it bears the Organization's own name, in its shard."""
    return organization_id


def is_identifier(text: str) -> bool:
    """Whether a text could be an `Identifier`."""
    return len(text) <= identifier_characters_max and _uri.search(text) is not None


def token(identifier: str) -> str:
    """The subject-safe name of an identifier: the first 128 bits of its SHA-256 as 32 hex digits.

    The database computes the same in `subject_token(text)`; the two are tested against each other.
    """
    return hashlib.sha256(identifier.encode()).hexdigest()[:32]

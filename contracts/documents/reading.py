"""Reading JSON values as documents: `msgspec.convert` with every refusal as one kind of fault, in words."""

from types import UnionType
from typing import Any, Final, overload

import msgspec

from contracts.documents import common, lease
from contracts.identifiers import uri_pattern
from contracts.timestamps import timestamp_pattern

_in_words: Final = (
    (repr(uri_pattern), "an absolute URI of ASCII characters"),
    (repr(timestamp_pattern), "an RFC 3339 timestamp"),
    (repr(lease.closure_reason_pattern), "text that is not blank"),
    (repr(common.extension_kind_pattern), "an ext.* kind of three or more parts"),
    (repr(common.semver_pattern), "a semantic version"),
    (repr(common.duration_pattern), "an ISO 8601 duration"),
)
"""Long patterns as msgspec quotes them, and what they mean."""


@overload
def read[T](value: Any, shape: type[T]) -> T: ...


@overload
def read(value: Any, shape: UnionType) -> Any: ...


def read(value: Any, shape: Any) -> Any:
    """`value`, JSON as `parse_strict` gives it, as the type `shape`.

    Raises msgspec.ValidationError saying what is wrong and where; a name or choice with a lone surrogate is refused
    the same way, where `msgspec.convert` alone lets a UnicodeEncodeError escape.
    """
    try:
        return msgspec.convert(value, shape)
    except UnicodeEncodeError as fault:
        raise msgspec.ValidationError(
            "a member name or a choice holds a lone surrogate; it has no UTF-8 form"
        ) from fault
    except msgspec.ValidationError as fault:
        raise msgspec.ValidationError(_worded(str(fault))) from fault


def _worded(message: str) -> str:
    """The message with long patterns replaced by what they mean."""
    for pattern, words in _in_words:
        message = message.replace(f"matching regex {pattern}", f"that is {words}")
    return message

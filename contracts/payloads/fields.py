"""Member types that several payload families share."""

from typing import Annotated

from msgspec import Meta

from contracts.bounds import lease_seconds_max

Seconds = Annotated[int, Meta(ge=1, le=lease_seconds_max)]
"""A span that a Command asks for, in whole seconds."""

FreeText = Annotated[str, Meta(min_length=1, max_length=10_000)]
"""Words for people: a reason, feedback. No decision reads them (RULE-27)."""

"""Payloads about the history itself: a new incarnation after a restore or a failover (RULE-16, RULE-17)."""

from typing import Annotated

from msgspec import Meta

from contracts.documents.common import Document
from contracts.documents.conditions import unique
from contracts.identifiers import PositiveInteger
from contracts.payloads.fields import FreeText

Incarnation = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
"""The name of an incarnation (`contracts.epochs`): 32 digits of lower-case hex."""
abandoned_max = 1_024
"""Incarnations that one opening can give up; more were never open at one broker."""


class HistoryResume(Document, frozen=True, kw_only=True):
    """`ext.weavehold.history.resume`: open a new incarnation, in which what the database holds is the history.

    `incarnation` is the one that it shall follow, so that two operators cannot open two. `abandoned` names those that
    the broker still holds streams of and the database knows nothing of: it was set back to before they were opened.
    """

    incarnation: Incarnation
    reason: FreeText
    abandoned: Annotated[tuple[Incarnation, ...], Meta(max_length=abandoned_max)] = ()

    rules = unique("abandoned")


class HistoryResumed(Document, frozen=True, kw_only=True):
    """`ext.weavehold.history.resumed`: the first Event of a Group in a new incarnation.

    Every epoch of the Group rises to at least `epoch_base` × 2^20, its running executions are revoked, and what
    waited for an approval has to be submitted anew. `parent` is the incarnation that was followed.
    """

    incarnation: Incarnation
    parent: Incarnation
    epoch_base: PositiveInteger
    reason: FreeText

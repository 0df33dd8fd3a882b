"""Payloads of the key registry: keys of people and services bound, planned to end, and revoked (TRU-2).

They belong to the registry's own history, whose Group is named by the Organization itself. An Agent's keys are bound by
its Agent Card; their ends are stated here as everybody's.
"""

from typing import Literal

from msgspec import UNSET, UnsetType

from contracts.documents.common import Actor, Document
from contracts.identifiers import Base64Url, Identifier
from contracts.payloads.fields import FreeText
from contracts.timestamps import Timestamp


class KeyRegister(Document, frozen=True, kw_only=True):
    """`ext.weavehold.registry.key_register`: bind a key to a Principal for good.

    `public_key` is base64url of 32 bytes. Without `valid_from` the key is valid from its acceptance.
    """

    key_id: Identifier
    principal: Actor
    algorithm: Literal["Ed25519"]
    public_key: Base64Url
    valid_from: Timestamp | UnsetType = UNSET
    valid_until: Timestamp | UnsetType = UNSET


class KeyRetire(Document, frozen=True, kw_only=True):
    """`ext.weavehold.registry.key_retire`: a planned end in the future, earlier than the one planned before."""

    key_id: Identifier
    valid_until: Timestamp


class KeyRevoke(Document, frozen=True, kw_only=True):
    """`ext.weavehold.registry.key_revoke`: the key ends with the acceptance of this Command.

    `suspected_since` is for people who look at what the key signed; it ends nothing earlier.
    """

    key_id: Identifier
    reason: FreeText
    suspected_since: Timestamp | UnsetType = UNSET


class KeyStanding(Document, frozen=True, kw_only=True):
    """A binding with its ends as they stand; `public_key` is base64url of 32 bytes."""

    key_id: Identifier
    principal: Actor
    algorithm: Literal["Ed25519"]
    public_key: Base64Url
    valid_from: Timestamp
    valid_until: Timestamp | UnsetType = UNSET
    revoked_at: Timestamp | UnsetType = UNSET


class KeyRegistered(Document, frozen=True, kw_only=True):
    """`ext.weavehold.registry.key_registered`."""

    key: KeyStanding


class KeyRetired(Document, frozen=True, kw_only=True):
    """`ext.weavehold.registry.key_retired`; `key` as it stands from here on."""

    key: KeyStanding


class KeyRevoked(Document, frozen=True, kw_only=True):
    """`ext.weavehold.registry.key_revoked`; `key` as it stands from here on."""

    key: KeyStanding
    reason: FreeText
    suspected_since: Timestamp | UnsetType = UNSET

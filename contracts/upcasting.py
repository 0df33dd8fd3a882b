"""Versions of Event contracts: how the payload of an older one becomes one of the current version (PRJ-5).

An Event is signed once and never rewritten, so its payload keeps the shape that it had. Whoever reads it, a consumer
or the authority's own fold, gets it brought up to the version that the code knows, and knows one shape of each kind
only. Which kinds there are and how their versions follow each other is a value, `EventContracts`; that of Weavehold
stands in `contracts.event_contracts`.

Version 1 of a kind is not marked. Later ones carry the extension `urn:weavehold:extension:contract`, not critical,
whose own version is that of the contract: `2.0.0` for version 2 (RULE-15).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from msgspec import Struct

from contracts.chain import decision_extension, history_extension
from contracts.documents.common import JsonObject

contract_extension: Final = "urn:weavehold:extension:contract"
"""Marks an Event of a later contract version than the first."""
understood_extensions: Final = frozenset({history_extension, decision_extension, contract_extension})
"""Event extensions that are read here. Others are passed over unless they are critical."""
first_version: Final = 1
_mark: Final = re.compile(r"([1-9][0-9]{0,8})\.0\.0")


class EventUnread(ValueError):
    """An Event that this version must not read, and what to do about it."""


class ContractUnknown(EventUnread):
    """A payload of a contract version that is not known here; `known` is the newest that is, 0 of an unknown kind."""

    def __init__(self, kind: str, version: int, known: int) -> None:
        """Names kind and versions."""
        here = f"reads it up to {known}" if known else "does not know the kind"
        super().__init__(
            f"{kind} of contract version {version} cannot be read: this version of Weavehold {here}; "
            f"run one that reads {kind} {version}"
        )
        self.kind = kind
        self.version = version
        self.known = known


class ContractsInconsistent(ValueError):
    """Versions and upcasters that do not fit each other."""


class ReadExtension(Protocol):
    """What counts of an extension here."""

    @property
    def version(self) -> str:
        """A semantic version."""
        ...

    @property
    def critical(self) -> bool:
        """Whether an Event must not be passed over by who does not know it."""
        ...


class Upcaster(Struct, frozen=True):
    """One step of one kind: from a payload of version `reads` to one of the next.

    `apply` is pure and changes nothing in what it is given. What it raises says that the payload has another shape:
    ValueError, LookupError, TypeError or AttributeError, whatever reading that shape ends in.
    """

    kind: str
    reads: int
    apply: Callable[[Mapping[str, Any]], JsonObject]


class EventContracts:
    """The Event kinds that are known, each at its current version, and the way there from every earlier one."""

    def __init__(self, versions: Mapping[str, int], upcasters: Iterable[Upcaster] = ()) -> None:
        """`versions` gives the current version of each kind. Raises ContractsInconsistent.

        A kind at version n takes exactly the upcasters that read its versions 1 to n - 1.
        """
        self._versions: Final = MappingProxyType(dict(versions))
        steps: dict[str, dict[int, Upcaster]] = {}
        for upcaster in upcasters:
            if upcaster.kind not in self._versions:
                raise ContractsInconsistent(f"an upcaster reads {upcaster.kind}, which is no known Event kind")
            of_kind = steps.setdefault(upcaster.kind, {})
            if of_kind.setdefault(upcaster.reads, upcaster) is not upcaster:
                raise ContractsInconsistent(f"two upcasters read {upcaster.kind} {upcaster.reads}")
        for kind, version in self._versions.items():
            found = sorted(steps.get(kind, ()))
            if version < first_version or found != list(range(first_version, version)):
                expected = f"needs upcasters that read 1 to {version - 1}" if version > first_version else "needs none"
                raise ContractsInconsistent(f"{kind} at version {version} {expected}; there are {found}")
        self._steps: Final = {
            kind: tuple(of_kind[reads] for reads in sorted(of_kind)) for kind, of_kind in steps.items()
        }

    def current(self, kind: str) -> int | None:
        """The current version of a kind; None for an unknown one."""
        return self._versions.get(kind)

    def marks(self, kind: str) -> dict[str, Any]:
        """The extensions that say the current version of a kind, as JSON: none for the first, nor for an unknown kind.

        Whoever signs an Event with a payload of the current version adds them.
        """
        version = self._versions.get(kind, first_version)
        return {} if version == first_version else {contract_extension: contract_mark(version)}

    def upcast(self, kind: str, version: int, payload: Mapping[str, Any]) -> JsonObject:
        """The payload of one version as one of the current version.

        Raises ContractUnknown for an unknown kind or version, EventUnread for a payload that is not of its version.
        """
        known = self._versions.get(kind, 0)
        if not first_version <= version <= known:
            raise ContractUnknown(kind, version, known)
        brought_up = dict(payload)
        for step in self._steps.get(kind, ())[version - first_version :]:
            try:
                brought_up = step.apply(brought_up)
            except (ValueError, LookupError, TypeError, AttributeError) as fault:
                raise EventUnread(f"this {kind} is none of contract version {step.reads}: {fault}") from fault
        return brought_up


def contract_mark(version: int) -> dict[str, Any]:
    """The extension that marks an Event of a later version than the first, as JSON."""
    return {"version": f"{version}.0.0", "critical": False, "data": None}


def contract_version(kind: str, extensions: Mapping[str, ReadExtension]) -> int:
    """The contract version of an Event of `kind` by its extensions. Raises EventUnread for a mark of another form."""
    mark = extensions.get(contract_extension)
    if mark is None:
        return first_version
    found = _mark.fullmatch(mark.version)
    if found is None:
        raise EventUnread(f"{kind} is marked as contract version {mark.version}, which is no whole version like 2.0.0")
    return int(found[1])


def require_understood(kind: str, extensions: Mapping[str, ReadExtension]) -> None:
    """Raises EventUnread for an Event with a critical extension that is unknown here, whatever its kind."""
    if extensions.keys() <= understood_extensions:
        return
    for name, extension in extensions.items():
        if extension.critical and name not in understood_extensions:
            unknown = f"unknown critical extension {name} {extension.version}"
            raise EventUnread(f"{kind} has the {unknown}; run a version of Weavehold that reads it")

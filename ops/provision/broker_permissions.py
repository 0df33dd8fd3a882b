"""What each user of the broker may publish and subscribe to: what its process does, and nothing else.

Pure. Permissions name whole tokens of subjects: the broker knows no pattern inside one, which is why consumers of
Workers take few names in turn. All of it lives in the account of one Organization, so `*` for a stream means one of
its own. Answers go to inboxes that nobody but their owner may listen on.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import Struct

from contracts import subjects
from contracts.identifiers import SessionEpoch, organization_shard, token
from projections.listing import server_consumers
from services.authority.provision_delivery import consumer_name, consumer_names
from services.process.broker import own_inbox_prefix

answers_max: Final = 1
"""Answers that an authority may give to one request."""
answer_expiry: Final = "2m"
"""For how long it may."""


class Permissions(Struct, frozen=True, kw_only=True):
    """Subjects, wildcards included; `answers` allows an answer to whoever asks."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: bool = False

    def configuration(self, public_nkey: str) -> dict[str, Any]:
        """As the broker's configuration says it, with the user's own inbox."""
        inbox = f"{own_inbox_prefix(public_nkey)}.>"
        found: dict[str, Any] = {
            "publish": {"allow": list(self.publish)},
            "subscribe": {"allow": [*self.subscribe, inbox]},
        }
        if self.answers:
            found["allow_responses"] = {"max": answers_max, "expires": answer_expiry}
        return found


def authority_permissions(organization_id: str) -> Permissions:
    """Takes every request, answers it, forwards between processes, tells what changed, keeps Workers' consumers."""
    of = _named(organization_id)
    return Permissions(
        publish=(
            of("lane.>"),
            of("log.*"),
            of("member.*"),
            of("head.*.*"),
            subjects.keys_changed(organization_id),
            *_api("STREAM.NAMES", "STREAM.INFO.*", "CONSUMER.NAMES.*", "CONSUMER.INFO.*.*"),
            *_api("CONSUMER.CREATE.*.*", "CONSUMER.DELETE.*.*"),
        ),
        subscribe=(
            subjects.command_ingress(organization_id),
            of("lane.>"),
            subjects.session(organization_id),
            subjects.replay(organization_id),
            subjects.acknowledgement(organization_id),
            subjects.query(organization_id),
            subjects.keys_changed(organization_id),
        ),
        answers=True,
    )


def relay_permissions(organization_id: str) -> Permissions:
    """Publishes Events, and makes, looks at and retires the streams that take them."""
    of = _named(organization_id)
    return Permissions(
        publish=(
            of("ev.*.*"),
            *_api("STREAM.NAMES", "STREAM.INFO.*", "STREAM.MSG.GET.*", "STREAM.CREATE.*", "STREAM.UPDATE.*"),
        ),
        subscribe=(of("log.*"),),
    )


def projector_permissions(organization_id: str, shard_count: int) -> Permissions:
    """Reads whole shards by consumers of its own, which it makes itself, and history by signed requests."""
    shards = range(organization_shard + 1, shard_count + 1)
    names = [f"{consumer.name}-{shard}" for consumer in server_consumers() for shard in shards]
    calls = ("INFO", "CREATE", "DELETE", "MSG.NEXT")
    return Permissions(
        publish=(
            subjects.query(organization_id),
            subjects.replay(organization_id),
            *_api("STREAM.INFO.*", *(f"CONSUMER.{call}.*.{name}" for name in names for call in calls)),
            *_acknowledgements(names),
        ),
        subscribe=(_named(organization_id)("head.*.*"), subjects.keys_changed(organization_id)),
    )


def client_permissions(organization_id: str) -> Permissions:
    """Asks the authority, as people and gateways do."""
    return Permissions(publish=_requests(organization_id), subscribe=(subjects.keys_changed(organization_id),))


def operator_permissions(organization_id: str) -> Permissions:
    """Asks the authority, and has the whole of JetStream in the Organization's account: to verify, purge and mend."""
    return Permissions(
        publish=(*_requests(organization_id), "$JS.API.>", "$JS.ACK.>"),
        subscribe=(subjects.keys_changed(organization_id),),
    )


def agent_permissions(organization_id: str, agent_id: str) -> Permissions:
    """Asks the authority; pulls from and acknowledges on the consumers that the authority made for this Agent.

    It may neither make nor delete a consumer, nor touch another's, nor hear of Groups: which there are is not for
    everybody, and a literal subject for each would be out of date at once. It compares heads instead.
    """
    names = [consumer_name(agent_id, SessionEpoch(epoch)) for epoch in range(consumer_names)]
    return Permissions(
        publish=(
            *_requests(organization_id),
            *_api(*(f"CONSUMER.MSG.NEXT.*.{name}" for name in names)),
            *_acknowledgements(names),
        ),
        subscribe=(subjects.membership_changed(organization_id, agent_id), subjects.keys_changed(organization_id)),
    )


def _named(organization_id: str) -> Callable[[str], str]:
    return lambda rest: f"wh.{token(organization_id)}.{rest}"


def _requests(organization_id: str) -> tuple[str, ...]:
    asked = (subjects.command_ingress, subjects.session, subjects.replay, subjects.acknowledgement, subjects.query)
    return tuple(subject(organization_id) for subject in asked)


def _api(*calls: str) -> tuple[str, ...]:
    return tuple(f"$JS.API.{call}" for call in calls)


def _acknowledgements(consumers: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"$JS.ACK.*.{consumer}.>" for consumer in consumers)

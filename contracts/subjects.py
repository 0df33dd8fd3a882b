"""Every broker subject and stream name, in one place.

Identifiers enter subjects only as tokens (`identifiers.token`), so no subject exceeds the broker's limits.
`o` below is the Organization's token, `s` a shard number, `g` a Group's token.
"""

from contracts.identifiers import ShardId, organization_shard, token


def command_ingress(organization_id: str) -> str:
    """`wh.o.cmd`: signed Commands, answered by any authority process (queue group `authority`)."""
    return f"wh.{token(organization_id)}.cmd"


def lane(organization_id: str, holder: str, shard_id: ShardId) -> str:
    """`wh.o.lane.<holder>.s`: original Command bytes to the process that holds the shard's lease."""
    return f"wh.{token(organization_id)}.lane.{holder}.{shard_id}"


def lanes_of(organization_id: str, holder: str) -> str:
    """`wh.o.lane.<holder>.*`: all that is sent to one process because of its shards."""
    return f"wh.{token(organization_id)}.lane.{holder}.*"


def session(organization_id: str) -> str:
    """`wh.o.session`: the session handshake (HELLO transcript)."""
    return f"wh.{token(organization_id)}.session"


def replay(organization_id: str) -> str:
    """`wh.o.replay`: signed requests for pages of history."""
    return f"wh.{token(organization_id)}.replay"


def acknowledgement(organization_id: str) -> str:
    """`wh.o.ack`: signed reports of the highest contiguous durable Cursor."""
    return f"wh.{token(organization_id)}.ack"


def query(organization_id: str) -> str:
    """`wh.o.query`: signed reads: heads, memberships, delivery provisioning."""
    return f"wh.{token(organization_id)}.query"


def event(organization_id: str, shard_id: ShardId, group_id: str) -> str:
    """`wh.o.ev.s.g`: the Events of one Group; the Organization shard uses the literal `organization` for g."""
    last = "organization" if shard_id == organization_shard else token(group_id)
    return f"wh.{token(organization_id)}.ev.{shard_id}.{last}"


def shard_events(organization_id: str, shard_id: ShardId) -> str:
    """`wh.o.ev.s.>`: all Events of one shard, the filter of its stream."""
    return f"wh.{token(organization_id)}.ev.{shard_id}.>"


def retired_events(organization_id: str, shard_id: ShardId, incarnation: str) -> str:
    """`wh.o.retired.s.<incarnation>`: the subject of an earlier incarnation's stream, so that it takes no more."""
    return f"wh.{token(organization_id)}.retired.{shard_id}.{incarnation}"


def head(organization_id: str, shard_id: ShardId, group_id: str) -> str:
    """`wh.o.head.s.g`: announcements of a Group's head, outside any stream."""
    return f"wh.{token(organization_id)}.head.{shard_id}.{token(group_id)}"


def log_grown(organization_id: str, shard_id: ShardId) -> str:
    """`wh.o.log.s`: "the shard's log has grown", a wake-up for its relay; carries no truth."""
    return f"wh.{token(organization_id)}.log.{shard_id}"


def membership_changed(organization_id: str, principal_id: str) -> str:
    """`wh.o.member.<token>`: "your Memberships changed", a wake-up for one Principal; carries no truth."""
    return f"wh.{token(organization_id)}.member.{token(principal_id)}"


def keys_changed(organization_id: str) -> str:
    """`wh.o.keys`: "the key registry changed", a wake-up for caches; acceptance rechecks keys in any case."""
    return f"wh.{token(organization_id)}.keys"


def stream_name(organization_id: str, shard_id: ShardId, incarnation: str) -> str:
    """`WH_o_s_i`: the stream of one shard in one incarnation (a token as well)."""
    return f"WH_{token(organization_id)}_{shard_id}_{incarnation}"


def incarnation_of(stream: str) -> str | None:
    """The incarnation that a stream's name carries; None for a stream that no relay made."""
    prefix, _, rest = stream.partition("_")
    parts = rest.split("_")
    return parts[2] if prefix == "WH" and len(parts) == 3 else None

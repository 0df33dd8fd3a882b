"""The relay's pure parts: shares, judgements and marks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client
from nats.aio.msg import Msg

from contracts.delivery import MessageMark, PointerStub, encode_stub, mark_header, mark_text, read_mark, read_stub
from contracts.identifiers import ShardId, ShardPosition
from outbox_relay.message import HeaderText, MessageMaker
from outbox_relay.outbox import LogFault, LogHead, OutboxRow
from outbox_relay.publish_answer import StopReason, judge_answer
from outbox_relay.relay_lease import fair_share
from outbox_relay.stream import Condition, StreamState, judge

stream = "WH_o_1_i"


@given(st.integers(0, 1024), st.sets(st.text(min_size=1, max_size=4), min_size=1, max_size=40))
def test_shares_are_even_and_leave_nothing_over(shards: int, holders: set[str]) -> None:
    """OBX-2: every shard has a relay, and no relay more than one shard more than another."""
    shares = [fair_share(shards, sorted(holders), holder) for holder in holders]
    assert sum(shares) == shards
    assert max(shares) - min(shares) <= 1


def test_a_process_that_is_not_announced_yet_counts_itself() -> None:
    """OBX-2: a newcomer takes its share at once."""
    assert fair_share(4, ["a"], "b") == 2
    assert fair_share(5, [], "b") == 5


@pytest.mark.parametrize(
    ("last_sequence", "last", "retired", "head", "event_id", "condition"),
    [
        (0, None, False, 0, None, Condition.LEVEL),
        (0, None, False, 5, None, Condition.BEHIND),
        (5, ("e5", 3), False, 5, "e5", Condition.LEVEL),
        (5, ("e5", 1), False, 9, "e5", Condition.BEHIND),
        (5, None, False, 9, "e5", Condition.BEHIND),
        (5, ("e5", 3), False, 4, None, Condition.AHEAD),
        (5, None, False, 4, None, Condition.AHEAD),
        (5, ("e5", 3), False, 9, "other", Condition.FORKED),
        (5, ("", 0), False, 9, "e5", Condition.FORKED),
        (5, ("e5", 4), False, 9, "e5", Condition.FENCED),
        (5, ("e5", 3), True, 9, "e5", Condition.FOREIGN),
    ],
)
def test_what_a_stream_is_to_its_log(
    last_sequence: int,
    last: tuple[str, int] | None,
    retired: bool,
    head: int,
    event_id: str | None,
    condition: Condition,
) -> None:
    """RULE-16, RULE-18: by the end of both, the Event there, and the epoch that published it; ours is 3."""
    mark = None if last is None else MessageMark(last[0], last[1], "i")
    state = StreamState(ShardPosition(last_sequence), mark, retired)
    assert judge(state, LogHead(ShardPosition(head), event_id), 3) is condition


@pytest.mark.parametrize(
    ("data", "count", "reason"),
    [
        (b'{"stream":"WH_o_1_i","seq":7}', 1, None),
        (b'{"stream":"WH_o_1_i","seq":7,"batch":"b","count":3}', 3, None),
        (b'{"stream":"WH_o_1_i","seq":7,"batch":"b","count":2}', 3, StopReason.DOUBTFUL),
        (b'{"stream":"WH_o_1_i","seq":7,"duplicate":true}', 1, StopReason.DOUBTFUL),
        (b'{"stream":"WH_o_1_i","seq":8}', 1, StopReason.DOUBTFUL),
        (b'{"stream":"WH_o_1_j","seq":7}', 1, StopReason.DOUBTFUL),
        (b"", 1, StopReason.DOUBTFUL),
        (b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 9"}}', 1, StopReason.SEQUENCE),
        (b'{"error":{"code":400,"err_code":10060,"description":"expected stream"}}', 3, StopReason.STREAM),
        (b'{"error":{"code":400,"err_code":10054,"description":"message size"}}', 1, StopReason.MESSAGE),
        (b'{"error":{"code":400,"err_code":10176,"description":"incomplete"}}', 3, StopReason.BATCH),
        (b'{"error":{"code":503,"err_code":10077,"description":"no space"}}', 1, StopReason.BROKER),
        (b'{"error":{"code":503,"err_code":10077,"description":"no space"}}', 3, StopReason.BROKER),
    ],
)
def test_what_an_answer_proves(data: bytes, count: int, reason: StopReason | None) -> None:
    """OBX-1: only the right stream, the right sequence and no duplicate prove that the message stands at 7."""
    stop = judge_answer(Msg(Client(), subject="inbox.7", data=data), stream, ShardPosition(7), count)
    assert (stop and stop.reason) == reason


def test_no_responder_means_no_stream() -> None:
    """OBX-1: a stream that was deleted."""
    answer = Msg(Client(), subject="inbox.7", data=b"", headers={"Status": "503"})
    stop = judge_answer(answer, stream, ShardPosition(7), 1)
    assert stop is not None
    assert stop.reason is StopReason.STREAM


def test_a_message_is_the_stored_bytes_with_its_mark() -> None:
    """RULE-18: the mark names the Event, the epoch and the incarnation; the body is not touched."""
    maker = MessageMaker("urn:test:organization", ShardId(3), "0f" * 16, 12)
    row = OutboxRow(ShardPosition(5), "urn:test:group", "0e" * 16, "urn:uuid:5", b'{"b":1.0, "a":2}')
    message = maker.event(row)
    assert message.body == row.event
    assert read_mark(message.headers) == MessageMark("urn:uuid:5", 12, "0f" * 16)
    assert message.subject.split(".")[2:4] == ["ev", "3"]


def test_an_event_id_cannot_add_headers() -> None:
    """OBX-2: a line break in an Event ID would forge a fence."""
    maker = MessageMaker("urn:test:organization", ShardId(3), "0f" * 16, 12)
    row = OutboxRow(ShardPosition(5), "urn:test:group", "0e" * 16, "urn:uuid:5\r\nNats-Rollup: all", b"{}")
    with pytest.raises(LogFault, match="header"):
        maker.event(row)


def test_header_text_passes_the_client_unchanged() -> None:
    """The client sends what a plain text would give."""
    text = HeaderText("urn:uuid:5 12 0f")
    assert text.strip().translate(str.maketrans({"\r": " ", "\n": " "})).encode() == b"urn:uuid:5 12 0f"


@pytest.mark.parametrize("value", ["", "one", "one two", "one two three", "one 2 three four", "one -2 three"])
def test_a_mark_of_another_shape_is_none(value: str) -> None:
    """RULE-18: what no relay wrote is not trusted."""
    assert read_mark({mark_header: value}) is None
    assert read_mark(None) is None


def test_a_pointer_survives_its_journey() -> None:
    """OBX-2: and one of an unknown format is refused, not guessed at."""
    stub = PointerStub(event_id="urn:uuid:1", group_id="urn:g", sequence=4, position=9, chain_hash="00" * 32)
    assert read_stub({"Weavehold-Stub": "pointer/1"}, encode_stub(stub)) == stub
    assert read_stub({mark_header: mark_text("urn:uuid:1", 1, "i")}, b"{}") is None
    with pytest.raises(ValueError, match="pointer/2"):
        read_stub({"Weavehold-Stub": "pointer/2"}, encode_stub(stub))

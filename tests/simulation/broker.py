"""A model of JetStream, as far as delivery relies on it: streams, fences, durable pull consumers with ack-all.

What it keeps honest: a stream takes a message only behind the sequence that the message expects and in the stream that
it names; a consumer hands out each message once, again after `ack_wait`, redeliveries first; acknowledging one message
acknowledges all before it; waiting requests vanish with their connection; a consumer beyond its stream's end stalls in
silence. A deleted message, a wiped store and an older copy of it are the operator's or a crash's doing (`World`).
"""

import json
from base64 import b64encode
from copy import copy
from typing import Any, Final

from msgspec import Struct, field

from tests.simulation.network import Headers, Link, matches
from tests.simulation.virtual_loop import VirtualLoop

looks_again_seconds: Final = 5.0
"""Seconds between two looks for messages that were not acknowledged in time."""
stream_not_found: Final = (404, 10_059, "stream not found")
message_not_found: Final = (404, 10_037, "no message found")
consumer_not_found: Final = (404, 10_014, "consumer not found")


class Stored(Struct, frozen=True):
    """One message of a stream."""

    subject: str
    headers: Headers
    data: bytes


class Request(Struct):
    """One waiting pull."""

    link: Link
    inbox: str
    left: int
    heartbeat: float
    expired: bool = False


class Consumer(Struct):
    """A durable pull consumer. `waiting` are unacknowledged stream sequences and when each is due again."""

    stream: str
    name: str
    config: dict[str, Any]
    delivered: int = 0
    floor: int = 0
    handed: int = 0
    waiting: dict[int, float] = field(default_factory=dict)
    again: list[int] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def wants(self, subject: str) -> bool:
        filters = self.config.get("filter_subjects")
        return not filters or any(matches(each, subject) for each in filters)


class Stream(Struct):
    """A stream; `last` stays when messages go."""

    name: str
    subjects: list[str]
    last: int
    messages: dict[int, Stored] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)

    @property
    def first(self) -> int:
        return min(self.messages, default=self.last + 1)


class Broker:
    """One server. `refused_above` bytes a message is refused for good, as a stream's own limit would."""

    def __init__(self, loop: VirtualLoop, refused_above: int) -> None:
        self.loop = loop
        self.streams: dict[str, Stream] = {}
        self.links: list[Link] = []
        self.published: list[tuple[str, int]] = []
        self._refused_above = refused_above
        self._life = 0

    # --- what clients send -------------------------------------------------------------------------------------

    def receive(self, link: Link, subject: str, payload: bytes, reply: str, headers: Headers) -> None:
        """A message arrives at the server."""
        if subject.startswith("$JS.ACK."):
            tokens = subject.split(".")
            self._acknowledge(tokens[2], tokens[3], int(tokens[5]))
        elif subject.startswith("$JS.API.CONSUMER.MSG.NEXT."):
            stream, consumer = subject.split(".")[5:7]
            self._pull(link, stream, consumer, reply, json.loads(payload))
        else:
            answer = self._store(subject, payload, headers or {})
            if reply and answer is None:
                link.deliver(reply, b"", {"Status": "503"})
            elif reply:
                link.deliver(reply, json.dumps(answer).encode())

    def _store(self, subject: str, payload: bytes, headers: dict[str, str]) -> dict[str, Any] | None:
        stream = next((each for each in self.streams.values() if _takes(each, subject)), None)
        if stream is None:
            return None
        if headers.get("Nats-Expected-Stream", stream.name) != stream.name:
            return _error(400, 10_060, "expected stream does not match")
        if int(headers.get("Nats-Expected-Last-Sequence", stream.last)) != stream.last:
            return _error(400, 10_071, f"wrong last sequence: {stream.last}")
        if len(payload) > self._refused_above:
            return _error(400, 10_054, "message size exceeds maximum allowed")
        stream.last += 1
        stream.messages[stream.last] = Stored(subject, headers, payload)
        self.published.append((stream.name, stream.last))
        for consumer in stream.consumers.values():
            self._pump(consumer)
        return {"stream": stream.name, "seq": stream.last}

    def answer(self, subject: str, payload: bytes) -> bytes:
        """One call of the API."""
        kind, names = _call(subject)
        stream = self.streams.get(names[0]) if names else None
        return json.dumps(self._manage(kind, names, stream, json.loads(payload) if payload else {})).encode()

    def _manage(self, kind: str, names: list[str], stream: Stream | None, asked: dict[str, Any]) -> dict[str, Any]:
        if kind == "STREAM.NAMES":
            wanted = asked["subject"]
            return {"streams": [each.name for each in self.streams.values() if wanted in each.subjects]}
        if kind == "STREAM.CREATE":
            return self._create(names[0], asked)
        if stream is None:
            return _error(*stream_not_found)
        match kind:
            case "STREAM.INFO":
                state = {"messages": len(stream.messages), "first_seq": stream.first, "last_seq": stream.last}
                return {"config": {"subjects": stream.subjects}, "state": state}
            case "STREAM.MSG.GET":
                stored = stream.messages.get(asked["seq"])
                return {"message": {"hdrs": _headers(stored)}} if stored else _error(*message_not_found)
            case "STREAM.UPDATE":
                stream.subjects = asked["subjects"]
                return {}
            case "CONSUMER.CREATE":
                return self._put_consumer(stream, names[1], asked["config"])
        consumer = stream.consumers.get(names[1])
        if consumer is None:
            return _error(*consumer_not_found)
        if kind == "CONSUMER.DELETE":
            self.drop_consumer(stream, consumer)
            return {"success": True}
        return {
            "config": consumer.config,
            "delivered": {"stream_seq": consumer.delivered},
            "ack_floor": {"stream_seq": consumer.floor},
            "num_ack_pending": len(consumer.waiting),
        }

    def _create(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        if name in self.streams:
            return _error(400, 10_058, "stream name already in use")
        if any(subject in each.subjects for each in self.streams.values() for subject in asked["subjects"]):
            return _error(400, 10_065, "subjects overlap with an existing stream")
        self.streams[name] = Stream(name, asked["subjects"], asked["first_seq"] - 1)
        return {}

    def _put_consumer(self, stream: Stream, name: str, config: dict[str, Any]) -> dict[str, Any]:
        consumer = stream.consumers.get(name)
        if consumer is None:
            start = min(max(config["opt_start_seq"], stream.first), stream.last + 1)
            consumer = Consumer(stream.name, name, config, delivered=start - 1, floor=start - 1)
            stream.consumers[name] = consumer
            self._watch_waiting(consumer, self._life)
        consumer.config = config
        self._pump(consumer)
        return {}

    def drop_consumer(self, stream: Stream, consumer: Consumer) -> None:
        del stream.consumers[consumer.name]
        for request in consumer.requests:
            request.link.deliver(request.inbox, b"", {"Status": "409", "Description": "Consumer Deleted"})
        consumer.requests.clear()

    # --- delivery ----------------------------------------------------------------------------------------------

    def _pull(self, link: Link, stream: str, name: str, inbox: str, asked: dict[str, Any]) -> None:
        consumer = self.streams[stream].consumers.get(name) if stream in self.streams else None
        if consumer is None:
            link.deliver(inbox, b"", {"Status": "503"})
            return
        request = Request(link, inbox, asked["batch"], asked["idle_heartbeat"] / 1e9)
        consumer.requests.append(request)
        self.loop.call_later(asked["expires"] / 1e9, self._expire, consumer, request)
        self.loop.call_later(request.heartbeat, self._beat, consumer, request)
        self._pump(consumer)

    def _expire(self, consumer: Consumer, request: Request) -> None:
        if request in consumer.requests:
            consumer.requests.remove(request)
            left = {"Status": "408", "Description": "Request Timeout", "Nats-Pending-Messages": str(request.left)}
            request.link.deliver(request.inbox, b"", left)

    def _beat(self, consumer: Consumer, request: Request) -> None:
        if request in consumer.requests:
            request.link.deliver(request.inbox, b"", {"Status": "100", "Description": "Idle Heartbeat"})
            self.loop.call_later(request.heartbeat, self._beat, consumer, request)

    def _pump(self, consumer: Consumer) -> None:
        stream = self.streams[consumer.stream]
        # A request whose inbox nobody listens to any more is dropped, as the server does.
        consumer.requests = [each for each in consumer.requests if each.link.listens(each.inbox)]
        while consumer.requests and len(consumer.waiting) < consumer.config["max_ack_pending"]:
            sequence = self._next(stream, consumer)
            if sequence is None:
                return
            stored = stream.messages[sequence]
            consumer.waiting[sequence] = self.loop.time() + consumer.config["ack_wait"] / 1e9
            consumer.handed += 1
            request = consumer.requests[0]
            reply = f"$JS.ACK.{stream.name}.{consumer.name}.1.{sequence}.{consumer.handed}.0.0"
            request.link.deliver(request.inbox, stored.data, stored.headers, subject=stored.subject, reply=reply)
            request.left -= 1
            if request.left == 0:
                consumer.requests.pop(0)

    def _next(self, stream: Stream, consumer: Consumer) -> int | None:
        while consumer.again:
            sequence = consumer.again.pop(0)
            if sequence in consumer.waiting and sequence in stream.messages:
                return sequence
            consumer.waiting.pop(sequence, None)
        for sequence in range(max(consumer.delivered + 1, stream.first), stream.last + 1):
            consumer.delivered = sequence
            if sequence in stream.messages and consumer.wants(stream.messages[sequence].subject):
                return sequence
        return None

    def _watch_waiting(self, consumer: Consumer, life: int) -> None:
        """What was not acknowledged in time is handed out again."""
        stream = self.streams.get(consumer.stream)
        if life != self._life or stream is None or stream.consumers.get(consumer.name) is not consumer:
            return
        consumer.again = [sequence for sequence, due in sorted(consumer.waiting.items()) if due <= self.loop.time()]
        self._pump(consumer)
        self.loop.call_later(looks_again_seconds, self._watch_waiting, consumer, life)

    def _acknowledge(self, stream: str, name: str, sequence: int) -> None:
        consumer = self.streams[stream].consumers.get(name) if stream in self.streams else None
        if consumer is None:
            return
        consumer.floor = max(consumer.floor, sequence)
        consumer.waiting = {each: due for each, due in consumer.waiting.items() if each > sequence}

    def announce(self, subject: str, data: bytes) -> None:
        """A message outside any stream, to whoever listens now."""
        for link in list(self.links):
            if link.is_connected and any(matches(each.pattern, subject) for each in link.subscriptions):
                link.deliver(subject, data)

    def forget(self, link: Link) -> None:
        """A connection is lost, and with it its waiting requests."""
        for stream in self.streams.values():
            for consumer in stream.consumers.values():
                consumer.requests = [request for request in consumer.requests if request.link is not link]

    # --- what happens to its store -----------------------------------------------------------------------------

    def copy_store(self) -> dict[str, Stream]:
        """The store as it is now."""
        return {stream.name: _copied(stream) for stream in self.streams.values()}

    def become(self, store: dict[str, Stream], down_seconds: float) -> None:
        """Restart with another store: an older copy, or an empty one."""
        self._life += 1
        for link in list(self.links):
            link.cut(down_seconds)
        self.streams = {name: _copied(stream) for name, stream in store.items()}
        for stream in self.streams.values():
            for consumer in stream.consumers.values():
                self._watch_waiting(consumer, self._life)


def _takes(stream: Stream, subject: str) -> bool:
    return any(matches(pattern, subject) for pattern in stream.subjects)


def _call(subject: str) -> tuple[str, list[str]]:
    """`$JS.API.<kind of two or three words>[.<stream>[.<consumer>]]`."""
    tokens = subject.split(".")[2:]
    words = 3 if tokens[1] == "MSG" else 2
    return ".".join(tokens[:words]), tokens[words:]


def _headers(stored: Stored) -> str:
    lines = "".join(f"{name}: {value}\r\n" for name, value in (stored.headers or {}).items())
    return b64encode(f"NATS/1.0\r\n{lines}\r\n".encode()).decode()


def _error(code: int, error_code: int, description: str) -> dict[str, Any]:
    return {"error": {"code": code, "err_code": error_code, "description": description}}


def _copied(stream: Stream) -> Stream:
    consumers = {}
    for consumer in stream.consumers.values():
        copied = copy(consumer)
        copied.waiting, copied.again, copied.requests = dict(consumer.waiting), [], []
        consumers[consumer.name] = copied
    return Stream(stream.name, list(stream.subjects), stream.last, dict(stream.messages), consumers)

"""Connections to the simulated broker, and what the seed lets happen to messages on their way."""

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from nats.aio.msg import Msg
from nats.errors import TimeoutError as BrokerTimeout

if TYPE_CHECKING:
    from tests.simulation.broker import Broker
    from tests.simulation.virtual_loop import VirtualLoop

type Callback = Callable[[Msg], Awaitable[None]]
type Headers = dict[str, str] | None


class Weather(Struct):
    """Chances of what happens to one message on its way; `slow` is a factor on every delay."""

    drop: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    forge: float = 0.0
    lose_call: float = 0.0
    lose_answer: float = 0.0
    slow: float = 1.0


calm = Weather()


class Subscription:
    """What `Client.subscribe` returns."""

    def __init__(self, link: "Link", pattern: str, callback: Callback) -> None:
        self._link = link
        self.pattern = pattern
        self.callback = callback

    async def unsubscribe(self) -> None:
        if self in self._link.subscriptions:
            self._link.subscriptions.remove(self)


class Link:
    """One connection as `nats.aio.client.Client` shows it, as far as consumers and relays use it.

    While it is cut, what is sent waits in it and leaves when it connects again, as with the real client. Once `dead`,
    its process no longer exists: nothing leaves, nothing arrives.
    """

    max_payload = 1024 * 1024

    def __init__(self, broker: "Broker", name: str, rng: random.Random, weather: Callable[[], Weather]) -> None:
        self.name = name
        self.rng = rng
        self.stats = {"reconnects": 0}
        self.is_connected = True
        self.dead = False
        self.subscriptions: list[Subscription] = []
        self.on_acknowledgement: Callable[[str], None] | None = None
        """Called with an acknowledgement's subject before it leaves; may end the process."""
        self.on_acknowledged: Callable[[], object] | None = None
        self.on_reconnected: Callable[[], None] | None = None
        self.on_handed: Callable[[Msg], None] | None = None
        self.forging: Callable[[bytes], bytes] | None = None
        self._broker = broker
        self._loop: VirtualLoop = broker.loop
        self._weather = weather
        self._generation = 0
        self._waiting: list[tuple[str, bytes, str, Headers]] = []
        self._arrives_at = {"out": 0.0, "in": 0.0}
        self._inboxes = 0
        broker.links.append(self)

    @property
    def is_closed(self) -> bool:
        return self.dead

    def new_inbox(self) -> str:
        self._inboxes += 1
        return f"_INBOX.{self.name}.{self._inboxes}"

    async def subscribe(self, pattern: str, cb: Callback, **_bounds: int) -> Subscription:
        subscription = Subscription(self, pattern, cb)
        self.subscriptions.append(subscription)
        return subscription

    def listens(self, to: str) -> bool:
        """Whether anybody here would get a message."""
        return any(matches(subscription.pattern, to) for subscription in self.subscriptions)

    async def publish(self, subject: str, payload: bytes = b"", reply: str = "", headers: Headers = None) -> None:
        if payload == b"+ACK" and self.on_acknowledgement is not None and not self.dead:
            self.on_acknowledgement(subject)
        if self.dead:
            return
        sent = (subject, payload, reply, dict(headers) if headers else None)
        if self.is_connected:
            self._send(sent)
        else:
            self._waiting.append(sent)
        if payload == b"+ACK" and self.on_acknowledged is not None:
            self.on_acknowledged()

    def _send(self, sent: tuple[str, bytes, str, Headers]) -> None:
        # What one connection carries stays in order; it is lost only with the connection.
        self._later("out", 0.0, self._broker.receive, self, *sent)

    async def request(self, subject: str, payload: bytes = b"", timeout: float = 1.0) -> Msg:  # noqa: ASYNC109
        """Ask the broker's API. Raises the client's timeout when question or answer is lost."""
        weather = self._weather()
        if self.dead or not self.is_connected or self.rng.random() < weather.lose_call:
            await self._silence(timeout)
        generation = self._generation
        await self._travel()
        answer = self._broker.answer(subject, payload)
        await self._travel()
        if self.dead or generation != self._generation or self.rng.random() < weather.lose_answer:
            await self._silence(timeout)
        return Msg(_client=None, subject=subject, data=answer)  # type: ignore[arg-type]

    async def _silence(self, seconds: float) -> None:
        waiting = self._loop.create_future()
        handle = self._loop.call_later(seconds, lambda: waiting.done() or waiting.set_exception(BrokerTimeout()))
        try:
            await waiting
        finally:
            handle.cancel()

    async def _travel(self) -> None:
        arrived = self._loop.create_future()
        self._loop.call_later(self._delay(), lambda: arrived.done() or arrived.set_result(None))
        await arrived

    def _delay(self) -> float:
        return self.rng.uniform(0.001, 0.01) * self._weather().slow

    def deliver(self, to: str, data: bytes, headers: Headers = None, *, subject: str = "", reply: str = "") -> None:
        """Carry a message to whoever listens at `to`; one with a `reply` comes from a stream and meets the weather.

        `subject` is what the message says of itself, if not where it goes.
        """
        weather, extra, times = self._weather(), 0.0, 1
        if reply:
            if self.rng.random() < weather.drop:
                return
            times += self.rng.random() < weather.duplicate
            if self.forging is not None and self.rng.random() < weather.forge:
                data = self.forging(data)
            if self.rng.random() < weather.late:
                extra = self.rng.uniform(0.01, 2.0)
        for _ in range(times):
            message = Msg(_client=None, subject=subject or to, reply=reply, data=data, headers=headers)  # type: ignore[arg-type]
            self._later("in", extra, self._hand, to, message)

    def _later(self, way: str, extra: float, call: Callable[..., None], *args: Any) -> None:
        # Never at the same moment: the loop keeps no order between equal times.
        at = max(self._loop.time() + self._delay(), self._arrives_at[way] + 1e-6)
        if not extra:
            self._arrives_at[way] = at
        self._loop.call_at(at + extra, self._if_still, self._generation, call, args)

    def _if_still(self, generation: int, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        if generation == self._generation and not self.dead:
            call(*args)

    def _hand(self, to: str, message: Msg) -> None:
        for subscription in list(self.subscriptions):
            if matches(subscription.pattern, to):
                if message.reply and self.on_handed is not None:
                    self.on_handed(message)
                _run_at_once(subscription.callback(message))
                return

    def cut(self, seconds: float) -> None:
        """Lose the connection with all that is under way; it comes back by itself."""
        if not self.is_connected or self.dead:
            return
        self.is_connected = False
        self._generation += 1
        self._broker.forget(self)
        self._loop.call_later(seconds, self._reconnect)

    def _reconnect(self) -> None:
        if self.dead:
            return
        self.is_connected = True
        self.stats["reconnects"] += 1
        waiting, self._waiting = self._waiting, []
        for sent in waiting:
            self._send(sent)
        if self.on_reconnected is not None:
            self.on_reconnected()

    def die(self) -> None:
        """The process at this end is gone."""
        self.dead = True
        self.is_connected = False
        self._broker.forget(self)
        self._broker.links.remove(self)


def _run_at_once(called: Any) -> None:
    """Run a callback that never waits."""
    try:
        called.send(None)
    except StopIteration:
        return
    raise AssertionError("a callback of the broker client waits; the simulation cannot run it in order")


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject belongs to a pattern with the broker's wildcards."""
    if pattern == subject:
        return True
    wanted, found = pattern.split("."), subject.split(".")
    for index, token in enumerate(wanted):
        if token == ">":
            return len(found) > index
        if index >= len(found) or token not in ("*", found[index]):
            return False
    return len(wanted) == len(found)

"""Bytes read as a row of choices: what makes values and changes out of a fuzzer's input, the same ones every time."""

import math
import struct
from collections.abc import Sequence
from typing import Any, Final

texts: Final = (
    "", "a", "id", "\0", "\n", "\x7f", "\u0085", "\u2028", "é", "\ue000", "\uffff", "\U0001f600", "\U0010ffff",
    "\ud800", "\udc00", "\ud83d\ude00", '"', "\\", "a:b", "signature", "urn:x:y", "0", "-0", "1e400", "\ufeff",
)  # fmt: skip
numbers: Final[tuple[int | float, ...]] = (
    0, 1, -1, -0.0, 0.5, 1.0, 2**53 - 1, 2.0**53, -(2.0**53), 1e21, 1e-7, 5e-324, 1.7976931348623157e308, 1e400,
)  # fmt: skip
depth_max: Final = 6
"""Levels of a made value."""


class Choices:
    """Reads bytes from the front; after the last one everything is zero and `exhausted` is true."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def exhausted(self) -> bool:
        return self._at >= len(self._data)

    def take(self, count: int) -> bytes:
        """The next bytes, filled with zeros."""
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken.ljust(count, b"\0")

    def rest(self) -> bytes:
        """All that is left."""
        taken = self._data[self._at :]
        self._at = len(self._data)
        return taken

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1, which is at most 65,535."""
        return int.from_bytes(self.take(1 if count <= 256 else 2)) % max(count, 1)

    def of[T](self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def number(self) -> int | float:
        """Any finite binary64 or a safe integer; infinities too."""
        match self.below(4):
            case 0:
                return self.of(numbers)
            case 1:
                return self.below(65_536) - 32_768
            case 2:
                return int.from_bytes(self.take(7), signed=True) % 2**53
            case _:
                [number] = struct.unpack(">d", self.take(8))
                return 0.25 if math.isnan(number) else number

    def text(self) -> str:
        """Some signs, lone surrogates among them."""
        if self.below(2):
            return self.of(texts)
        return "".join(chr(self.below(0x110000 >> 5) << 5 | self.below(32)) for _ in range(self.below(4)))

    def value(self, depth: int = depth_max) -> Any:
        """Any JSON value, with numbers beyond binary64 as infinities."""
        match self.below(9 if depth else 6):
            case 0:
                return None
            case 1:
                return bool(self.below(2))
            case 2 | 3:
                return self.number()
            case 4 | 5:
                return self.text()
            case 6:
                return [self.value(depth - 1) for _ in range(self.below(5))]
            case _:
                return {self.text(): self.value(depth - 1) for _ in range(self.below(5))}

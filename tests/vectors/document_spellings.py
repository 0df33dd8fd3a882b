"""JSON texts of a value in other spellings: numbers with points and exponents, escaped or plain letters."""

import json
import random
import re
from typing import Any, Final

respelled_share: Final = 0.3
"""Share of the numbers of a text that get another spelling."""

_tokens: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)')
_integer_endings: Final = (".0", "e0", "E+00", "0e-1", ".000e+0", "00E-02")


def spelled(value: Any, chance: random.Random) -> bytes:
    """The value as UTF-8 JSON."""
    text = json.dumps(value, indent=chance.choice([None, 1]))
    text = _tokens.sub(lambda token: _respelled(token[1], chance) if token[1] else token[0], text)
    if chance.random() < 0.5:
        return text.encode()
    # Letters stand for themselves, but for those that JSON escapes; a lone surrogate has no UTF-8.
    return re.sub(r"\\u(?!00[01]|d[89a-f])([0-9a-f]{4})", lambda escape: chr(int(escape[1], 16)), text).encode()


def _respelled(number: str, chance: random.Random) -> str:
    if chance.random() >= respelled_share:
        return number
    if "." in number or "e" in number:
        return number.upper()
    if number == "0":
        return chance.choice(["-0", "-0.0", "0e5", "0.0"])
    return number + chance.choice(_integer_endings)

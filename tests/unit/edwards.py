"""The curve of Ed25519 in plain integers: makes the malformed keys and signatures that no library would make.

Follows RFC 8032 section 6; slow and not constant-time, for tests only.
"""

import hashlib
from typing import Final

p: Final = 2**255 - 19
group_order: Final = 2**252 + 27742317777372353535851937790883648493
_d: Final = -121665 * pow(121666, -1, p) % p
_root_of_minus_one: Final = pow(2, (p - 1) // 4, p)

Point = tuple[int, int]
identity: Final[Point] = (0, 1)


def add(first: Point, second: Point) -> Point:
    """The sum of two points (complete addition law)."""
    (x1, y1), (x2, y2) = first, second
    product = _d * x1 * x2 * y1 * y2 % p
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, p) % p
    y = (y1 * y2 + x1 * x2) * pow(1 - product, -1, p) % p
    return x, y


def multiply(scalar: int, point: Point) -> Point:
    """`scalar` × `point`."""
    total = identity
    while scalar:
        if scalar & 1:
            total = add(total, point)
        point = add(point, point)
        scalar >>= 1
    return total


def x_of(y: int, sign: int) -> int | None:
    """The x of this sign that belongs to y, None when there is none."""
    square = (y * y - 1) * pow(_d * y * y + 1, -1, p) % p
    x = pow(square, (p + 3) // 8, p)
    if (x * x - square) % p:
        x = x * _root_of_minus_one % p
    if (x * x - square) % p:
        return None
    return p - x if x & 1 != sign and x else x


def encode(point: Point) -> bytes:
    """32 bytes, canonical."""
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


base: Final[Point] = (x_of(4 * pow(5, -1, p) % p, 0) or 0, 4 * pow(5, -1, p) % p)


def torsion_point() -> Point:
    """A point of order 8."""
    y = 2
    while True:
        x = x_of(y, 0)
        if x is not None:
            candidate = multiply(group_order, (x, y))
            if multiply(4, candidate) != identity:
                return candidate
        y += 1


def secret_scalar(seed: bytes) -> int:
    """The scalar behind an Ed25519 seed."""
    digest = bytearray(hashlib.sha512(seed).digest()[:32])
    digest[0] &= 248
    digest[31] = digest[31] & 127 | 64
    return int.from_bytes(digest, "little")


def challenge(r: bytes, public_key: bytes, message: bytes) -> int:
    """The hash that ties R, key and message together."""
    return int.from_bytes(hashlib.sha512(r + public_key + message).digest(), "little") % group_order


def sign_with_r(seed: bytes, public_key: bytes, message: bytes, nonce: int, extra: Point = identity) -> bytes:
    """A signature whose R is `nonce` × B + `extra`; with `extra` of small order it fits only a cofactored verifier."""
    r = encode(add(multiply(nonce, base), extra))
    s = (nonce + challenge(r, public_key, message) * secret_scalar(seed)) % group_order
    return r + s.to_bytes(32, "little")

"""Payloads that nobody sends: valid ones with their structure or bytes changed, and noise.

A payload depends on its seed alone, so that each can be made again.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal

import msgpack

Form = Literal["msgpack", "json", "toml", "text", "bytes"]
"""How a payload is made up; `bytes` have no structure that is known here."""

LONGEST = 300_000
"""Bytes of a payload at most: somewhat more than a message may have."""

_INTEGERS = tuple(
    sign * (2**power + step)
    for power in (0, 7, 8, 15, 16, 31, 32, 47, 53, 63)
    for step in (-1, 0, 1)
    for sign in (1, -1)
    if -(2**63) <= sign * (2**power + step) < 2**64
)
_REALS = (0.0, -0.0, 5e-324, 1e-300, 0.1, 1e150, 1e308, -1e308, math.inf, -math.inf, math.nan)
_TEXTS = ("", "\0", " ", "\n", "\x1b[2J", "é" * 100, "x" * 70, "x" * 5000, "\u202e", "../../etc")
_OCTETS = (b"", b"\0", bytes(16), bytes(32), b"\xff" * 64, bytes(5000), b"\x05" + b"\xff" * 64)
_DEPTHS = (3, 40, 600, 2000, 100_000)
"""Lists in one another."""
_TREES = (None, True, [], {}, [[], {}], [0] * 5000, {str(number): 0 for number in range(300)})
_HEADERS = b"\xc0\xc1\xc4\xc5\xc6\xc7\xc9\xca\xcb\xcf\xd3\xd4\xd9\xdb\xdc\xdd\xde\xdf\x90\x9f\x80"
"""First bytes of msgpack values, those that say a length among them."""
_TOML = (
    *("nan", "-inf", "1e308", "0x7fff_ffff_ffff_ffff", "9" * 400, "9" * 5000, "true", '""', "[]"),
    *("{}", "1979-05-27", "07:32:00", "'''", '"\\uD800"', '"é"', "[[]]", "{a = {b = {c = 1}}}"),
)
_SIGNS = "\0\n\r\t \"'\\/#?@:.,=[]{}()%&+-_~$é\u202e\U0001f99e0123456789azAZ"


def mutated(form: Form, corpus: Sequence[bytes], seed: int) -> bytes:
    """One payload: a member of the corpus that was changed once or a few times, or noise."""
    random = Random(seed)
    if random.random() < 0.03:
        return random.randbytes(int(2 ** random.uniform(0, 10)))
    payload = random.choice(corpus)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        change = _CHANGES[form] if random.random() < 0.75 else _changed_bytes
        payload = change(payload, corpus, random)[:LONGEST]
    return payload


def _changed_tree(payload: bytes, corpus: Sequence[bytes], random: Random) -> bytes:
    """msgpack whose tree differs from the payload's in one place."""
    try:
        tree = msgpack.unpackb(payload, raw=False, strict_map_key=False)
        return _packed(_changed(tree, random))
    except (ValueError, TypeError, RecursionError, OverflowError):
        return _changed_bytes(payload, corpus, random)


def _changed_json(payload: bytes, corpus: Sequence[bytes], random: Random) -> bytes:
    """JSON, a value in each line or one in all, that differs in one place."""
    try:
        lines = payload.splitlines() if payload.count(b"}\n{") else [payload]
        place = random.randrange(len(lines))
        tree = _changed(json.loads(lines[place]), random)
        lines[place] = json.dumps(tree, default=str).encode()
        return b"\n".join(lines)
    except (ValueError, TypeError, RecursionError):
        return _changed_bytes(payload, corpus, random)


def _changed_toml(payload: bytes, corpus: Sequence[bytes], random: Random) -> bytes:
    """TOML with another value, another key, or a line more or less."""
    lines = payload.decode(errors="replace").split("\n")
    place = random.randrange(len(lines))
    key, equals, value = lines[place].partition("=")
    match random.randrange(5):
        case 0:
            lines.insert(place, lines[random.randrange(len(lines))])
        case 1:
            del lines[place]
        case 2 if equals:
            lines[place] = f"{key}= {'[' * random.choice(_DEPTHS)}"
        case 3 if equals:
            lines[place] = f"{random.choice(lines).partition('=')[0]}={value}"
        case _ if equals:
            lines[place] = f"{key}= {random.choice((*_TOML, *map(repr, _INTEGERS)))}"
    return "\n".join(lines).encode(errors="replace")


def _changed_text(payload: bytes, corpus: Sequence[bytes], random: Random) -> bytes:
    """Text with signs that are more, fewer or others."""
    text = payload.decode(errors="replace")
    place = random.randint(0, len(text))
    match random.randrange(5):
        case 0:
            text = text[:place] + random.choice(_SIGNS) + text[place + 1 :]
        case 1:
            text = (
                text[:place] + random.choice(_SIGNS) * random.choice((1, 30, 5000)) + text[place:]
            )
        case 2:
            text = text[:place] + text[place + random.randint(1, 8) :]
        case 3:
            other = random.choice(corpus).decode(errors="replace")
            text = text[:place] + other[random.randint(0, len(other)) :]
        case _:
            digits = str(random.choice(_INTEGERS))
            text = re.sub(r"\d+", digits, text, count=1) if random.random() < 0.5 else text.upper()
    return text.encode(errors="replace")


def _changed_bytes(payload: bytes, corpus: Sequence[bytes], random: Random) -> bytes:
    """The payload with bits flipped, bytes cut out or put in, a length that lies, or depth."""
    data, place = bytearray(payload), random.randint(0, len(payload))
    match random.randrange(8):
        case 0:
            return bytes(data[:place])
        case 1:
            other = random.choice(corpus)
            return bytes(data[:place]) + other[random.randint(0, len(other)) :]
        case 2:
            data[place:place] = random.randbytes(random.choice((1, 2, 4, 8, 64)))
        case 3:
            del data[place : place + random.choice((1, 2, 4, 8, 64))]
        case 4:
            data[place : place + 1] = bytes([random.choice(_HEADERS)])
        case 5:
            data[place : place + 4] = random.choice(_INTEGERS).to_bytes(9, "big", signed=True)[-4:]
        case 6:
            data[place:place] = random.choice((b"[", b"\x91")) * random.choice(_DEPTHS)
        case _:
            for _ in range(random.choice((1, 2, 8))):
                if data:
                    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


_Change = Callable[[bytes, Sequence[bytes], Random], bytes]
_CHANGES: dict[Form, _Change] = {
    "msgpack": _changed_tree,
    "json": _changed_json,
    "toml": _changed_toml,
    "text": _changed_text,
    "bytes": _changed_bytes,
}


def _changed(tree: Any, random: Random) -> Any:
    """The tree with one of its nodes changed; deep ones are as likely as high ones."""
    path: list[tuple[Any, Any]] = []
    node = tree
    while isinstance(node, list | dict) and node and random.random() < 0.8:
        key = random.choice(list(node)) if isinstance(node, dict) else random.randrange(len(node))
        path.append((node, key))
        node = node[key]
    if not path:
        return _other(node, random)
    parent, key = path[-1]
    match random.randrange(6):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, list):
            parent.insert(key, _other(node, random))
        case 2 if isinstance(parent, dict):
            parent[random.choice(_TEXTS)] = parent.pop(key)
        case 3:
            holder, at = random.choice(path)
            parent[key] = holder[at] if holder is not parent else [node, node]
        case _:
            parent[key] = _other(node, random)
    return tree


def _other(node: Any, random: Random) -> Any:
    """In the place of a node: one of the same kind, half of the times, or of any."""
    if random.random() < 0.5:
        if isinstance(node, bool) or node is None:
            return random.choice((True, False, None))
        if isinstance(node, int):
            return random.choice((*_INTEGERS, node + 1, node - 1, -node))
        if isinstance(node, float):
            return random.choice((*_REALS, -node, node * 1e300))
        if isinstance(node, str):
            return random.choice((*_TEXTS, node + "x", node[:-1], node.upper()))
        if isinstance(node, bytes):
            changed = _changed_bytes(node, [node], random)
            return random.choice((*_OCTETS, node + b"\0", node[:-1], changed))
        if isinstance(node, list) and node:
            times = random.choice((2, 2, 2, 2, 100, 300, 5000 if len(node) < 3 else 2))
            # One list in many places is short here, and long once it is written.
            times = min(times, 2 + LONGEST // len(repr(node)))
            return random.choice((node * times, node[::-1], [node]))
    anything: tuple[Any, ...] = random.choice((_INTEGERS, _REALS, _TEXTS, _OCTETS, _TREES))
    return random.choice((random.choice(anything), random.choice(anything), [node], {"a": node}))


def _packed(tree: Any) -> bytes:
    return bytes(msgpack.packb(tree, use_bin_type=True, unicode_errors="surrogatepass"))

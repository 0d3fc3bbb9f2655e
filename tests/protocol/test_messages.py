from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import messages
from protocol.messages import (
    CHUNK,
    LARGEST_RETURN,
    MAX_TASK_DIRECTIONS,
    TYPES,
    Chunk,
    Cohort,
    Message,
    Result,
    decode,
    encode,
    pack_returns,
    result_arrays,
)
from protocol.packing import MAX_MESSAGE, WireError, pack, pack_integers, pack_reals
from tests.protocol import generated

NUMBERS = {kind: kind.__struct_config__.tag for kind in TYPES}
FIELDS = [(kind, place) for kind in TYPES for place in range(len(generated.fields_of(kind)))]


def raw(kind: type[Message]) -> list[Any]:
    """A valid message as plain values."""
    fields = generated.fields_of(kind)
    return [NUMBERS[kind], *(generated.plain(field.type) for field in fields)]


@settings(max_examples=200, deadline=None)
@given(generated.messages())
def test_every_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode(message)) == message


def test_numbers_are_unique_and_small() -> None:
    assert sorted(NUMBERS.values()) == list(range(1, len(TYPES) + 1))


@pytest.mark.parametrize("kind", TYPES)
def test_a_minimal_message_of_each_type_is_valid(kind: type[Message]) -> None:
    assert isinstance(decode(pack(raw(kind))), kind)


@pytest.mark.parametrize(
    ("kind", "place"), FIELDS, ids=[f"{k.__name__}-{k.__struct_fields__[p]}" for k, p in FIELDS]
)
def test_every_field_refuses_what_lies_outside_its_bounds(kind: type[Message], place: int) -> None:
    whole = raw(kind)
    for bad in generated.outside(generated.fields_of(kind)[place].type):
        broken = [*whole[: place + 1], bad, *whole[place + 2 :]]
        with pytest.raises(WireError):
            decode(pack(broken))


@pytest.mark.parametrize("kind", TYPES)
def test_later_fields_are_ignored_and_missing_ones_refused(kind: type[Message]) -> None:
    whole = raw(kind)
    assert decode(pack([*whole, {"a": "later field"}, 7])) == decode(pack(whole))
    required = [field.required for field in generated.fields_of(kind)]
    shortest = 1 + sum(required)
    assert isinstance(decode(pack(whole[:shortest])), kind)
    if shortest > 1:
        with pytest.raises(WireError):
            decode(pack(whole[: shortest - 1]))


@pytest.mark.parametrize("number", [0, 20, 999, -1, 2**63, True, 1.0, "1", None, [1]])
def test_an_unknown_number_is_refused(number: Any) -> None:
    with pytest.raises(WireError):
        decode(pack([number, *raw(messages.Epoch)[1:]]))


@pytest.mark.parametrize("value", [None, 1, "text", {}, {"a": 1}, [], b"bytes"])
def test_what_is_no_array_of_a_number_is_refused(value: Any) -> None:
    with pytest.raises(WireError):
        decode(pack(value))


def test_random_and_mutated_bytes_raise_nothing_but_wire_errors() -> None:
    """100,000 hostile inputs: noise, and valid messages with bytes changed, cut, doubled."""
    source = random.Random(1)
    valid = [encode(decode(pack(raw(kind)))) for kind in TYPES]
    accepted = refused = 0
    for number in range(100_000):
        if number % 4 == 0:
            data = source.randbytes(source.randrange(64))
            if number % 8 == 0:
                data = bytes([0x90 + source.randrange(16), source.randrange(1, 20)]) + data
        else:
            data = mutated(source, source.choice(valid))
        try:
            message = decode(data)
            if isinstance(message, Result):
                result_arrays(message)
            accepted += 1
        except WireError:
            refused += 1
    assert accepted > 1000, "the mutations should not all be noise"
    assert refused > 10_000


def mutated(source: random.Random, data: bytes) -> bytes:
    """The bytes with one to three small changes."""
    changed = bytearray(data)
    for _ in range(source.randint(1, 3)):
        place = source.randrange(len(changed)) if changed else 0
        match source.randrange(4):
            case 0 if changed:
                changed[place] = source.randrange(256)
            case 1 if changed:
                changed[place] ^= 1 << source.randrange(8)
            case 2:
                del changed[place : place + source.randrange(1, 4)]
            case _:
                changed[place:place] = source.randbytes(source.randrange(1, 4))
    return bytes(changed)


@pytest.mark.parametrize("name", ["scale", "learning_rate", "sigma", "amendments"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_an_update_holds_only_finite_numbers(name: str, value: float) -> None:
    update = decode(pack(raw(messages.Update)))
    broken = msgspec.structs.replace(
        update, **{name: {"x": value} if name == "amendments" else value}
    )
    with pytest.raises(WireError, match="finite"):
        decode(encode(broken))


@pytest.mark.parametrize("size", [1, 15])
def test_a_state_digest_is_whole_or_absent(size: int) -> None:
    update = decode(pack(raw(messages.Update)))
    broken = msgspec.structs.replace(update, state_digest=bytes(size))
    with pytest.raises(WireError, match="16 bytes"):
        decode(encode(broken))


def test_the_largest_result_and_chunk_fit_a_message() -> None:
    noise = np.random.default_rng(1)
    returns = noise.normal(size=(MAX_TASK_DIRECTIONS, 2))
    lengths = noise.integers(1, 2**40, size=(MAX_TASK_DIRECTIONS, 2))
    packed = pack_returns(returns, lengths)
    result = Result(1, "members", 0, 0, MAX_TASK_DIRECTIONS, 1, bytes(16), *packed)
    assert len(encode(result)) < MAX_MESSAGE
    assert len(encode(Chunk(2**40, 2**20, bytes(CHUNK)))) < MAX_MESSAGE


def test_an_update_of_100_000_members_fits_a_message() -> None:
    weights = np.full(50_000, 2 * 100_000)  # the span of their ranks: four bytes each
    cohort = Cohort(2**46, 2**40, 60, pack_integers(weights))
    told = msgspec.structs.replace(decode(pack(raw(messages.Update))), cohorts=(cohort,))
    assert decode(encode(told)) == told
    assert len(encode(told)) < MAX_MESSAGE - 50_000, "room for what else it tells"


# Results.


def a_result(returns: list[Any], lengths: list[int], /, **changes: Any) -> Result:
    fields = {
        "task": 1,
        "kind": "members",
        "version": 0,
        "first": 10,
        "count": len(returns) // 2,
        "episodes": 1,
        "token": bytes(16),
        "returns": pack_reals(np.array(returns, dtype=np.float64)),
        "lengths": pack_integers(np.array(lengths)),
    }
    return Result(**{**fields, **changes})


def test_returns_and_lengths_come_back_with_their_shapes() -> None:
    returns, lengths = result_arrays(a_result([1.5, -2.0, 3.0, 4.0], [5, 6, 7, 8]))
    assert returns.tolist() == [[1.5, -2.0], [3.0, 4.0]]
    assert lengths.tolist() == [[5, 6], [7, 8]]
    returns, lengths = result_arrays(a_result([1.5, 2.5], [5, 6], kind="centre", count=2))
    assert returns.tolist() == [1.5, 2.5]
    assert lengths.tolist() == [5, 6]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("returns", "lengths", "changes", "complaint"),
    [
        ([NAN, 1.0], [1, 1], {}, "NaN or infinite"),
        ([1.0, INF], [1, 1], {}, "NaN or infinite"),
        ([1.0, -INF], [1, 1], {}, "NaN or infinite"),
        ([INF, INF], [1, 1], {"failed": ((10, "it raised"),)}, "carries a return"),
        ([NAN, 1.0], [1, 1], {"failed": ((10, "it raised"),)}, "carries a return"),
        ([NAN, NAN], [1, 1], {"failed": ((11, "it raised"),)}, "not of the task"),
        ([NAN, NAN], [1, 1], {"failed": ((9, "it raised"),)}, "not of the task"),
        ([1.0, 1.0], [1, 0], {}, "at least one step"),
        ([1.0, 1.0], [1, -1], {}, "at least one step"),
        ([NAN, NAN], [0, -1], {"failed": ((10, "it raised"),)}, "at least one step"),
        ([1.0, 1.0], [1, 2**40 + 1], {}, "at least one step"),
        ([1.0, 1.0], [1, 1], {"count": 2}, "2 returns and 2 lengths where 4"),
        ([1.0] * 4, [1] * 4, {"count": 1}, "is not up to 2"),
        ([1.0, 1.0], [1], {}, "2 returns and 1 lengths where 2"),
        ([1.0, 1.0], [1, 1], {"returns": b""}, "no bytes"),
        ([1.0, 1.0], [1, 1], {"lengths": bytes([5]) + bytes(16)}, "width 5"),
    ],
)
def test_an_impossible_result_is_refused(
    returns: list[float], lengths: list[int], changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(WireError, match=complaint):
        result_arrays(a_result(returns, lengths, **changes))


def test_a_failed_direction_has_no_return_and_any_length() -> None:
    failed = ((10, "it raised"),)
    returns, lengths = result_arrays(a_result([NAN, NAN, 1.0, 2.0], [0, 3, 4, 5], failed=failed))
    assert np.isnan(returns[0]).all()
    assert lengths.tolist() == [[0, 3], [4, 5]]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-LARGEST_RETURN, LARGEST_RETURN), st.integers(1, 2**40))).filter(
        lambda pairs: len(pairs) % 2 == 0 and pairs
    )
)
def test_packed_returns_come_back_exactly(pairs: list[tuple[float, int]]) -> None:
    returns = np.array([r for r, _ in pairs]).reshape(-1, 2)
    lengths = np.array([n for _, n in pairs], dtype=np.int64).reshape(-1, 2)
    packed = pack_returns(returns, lengths)
    result = Result(1, "members", 0, 0, len(returns), 1, bytes(16), *packed)
    back, steps = result_arrays(result)
    assert np.array_equal(back, returns)
    assert np.array_equal(steps, lengths)


@pytest.mark.parametrize("beyond", [1.1e150, -1e308])
def test_a_return_that_would_spoil_a_mean_is_refused(beyond: float) -> None:
    with pytest.raises(WireError, match="beyond"):
        result_arrays(a_result([1.0, beyond], [1, 1]))


def test_a_hello_from_before_there_were_lanes_declares_none() -> None:
    *before, _, _, _, _ = raw(messages.Hello)
    assert messages.Hello.__struct_fields__[-4:] == ("lanes", "life", "invite", "unable")
    hello = decode(pack(before))
    assert isinstance(hello, messages.Hello) and hello.lanes == 0

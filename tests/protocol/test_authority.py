from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.authority import RUN_KEY, Announcement, Authority, precedence, read_epoch
from protocol.envelope import plain, signed
from protocol.identity import Identity, key_digest, run_id, verify
from protocol.messages import Charter, Epoch, Message, Update, Who
from protocol.packing import WireError

PEOPLE = [Identity(bytes([number]) * 32) for number in range(6)]
ROOT, NEXT_KEY, FIRST, SECOND, STRANGER, THIEF = PEOPLE
RUN = run_id("test", ROOT.public_key)
FOUNDED = Authority(RUN, ROOT.public_key)


def digests(*people: Identity) -> tuple[bytes, ...]:
    return tuple(key_digest(person.public_key) for person in people)


def charter(by: Identity, epoch: int, key: Identity, *delegates: Identity, run: str = RUN) -> bytes:
    return signed(by, "charter", (run,), Charter(epoch, key.public_key, digests(*delegates)))


def epoch_by(
    by: Identity,
    number: int,
    rank: int,
    authority: Authority = FOUNDED,
    label: str = "epoch",
    **changes: Any,
) -> bytes:
    """An announcement signed by `by`, who claims that rank, with those charters."""
    epoch = Epoch(
        protocol=1,
        run=RUN,
        host_key=authority.root,
        number=number,
        rank=rank,
        spec=b"spec",
        state="running",
        version=3,
        digest=bytes(16),
        leader=b"" if rank == RUN_KEY else by.public_key,
        charters=authority.charters,
    )
    return signed(by, label, (RUN,), msgspec.structs.replace(epoch, **changes))


def update_by(signer: Identity, epoch: int, named: bool = True, run: str = RUN) -> bytes:
    update = Update(
        epoch=epoch,
        version=7,
        cohorts=(),
        scale=1.0,
        learning_rate=0.1,
        sigma=0.1,
        observed=(),
        episodes=0,
        steps=0,
        digest_before=bytes(16),
        digest_after=bytes(16),
        signer=signer.public_key if named else b"",
    )
    return signed(signer, "update", (run,), update)


APPOINTED = FOUNDED.amended(ROOT, 2, ROOT.public_key, digests(FIRST, SECOND))
"""From epoch 2 on FIRST and SECOND may take over."""
REVOKED = APPOINTED.amended(ROOT, 5, ROOT.public_key, digests(SECOND))
"""From epoch 5 on only SECOND."""
ROTATED = REVOKED.amended(ROOT, 8, NEXT_KEY.public_key, digests(FIRST))
"""From epoch 8 on the run has another key, and only FIRST may take over."""


# The chain.


@dataclass(frozen=True)
class Link:
    """A charter of a made-up chain: from `epoch` on `key` is in charge."""

    epoch: int
    key: Identity
    delegates: tuple[Identity, ...]


@st.composite
def chains(draw: st.DrawFn, least: int = 0) -> list[Link]:
    links, epoch = [], 0
    for _ in range(draw(st.integers(least, 4))):
        epoch += draw(st.integers(1, 3))
        key = draw(st.sampled_from(PEOPLE[:3]))
        delegates = draw(st.lists(st.sampled_from(PEOPLE[:4]), max_size=3, unique=True))
        links.append(Link(epoch, key, tuple(delegates)))
    return links


def written(links: Sequence[Link]) -> list[bytes]:
    """The signed charters of a chain."""
    payloads, key = [], ROOT
    for link in links:
        payloads.append(charter(key, link.epoch, link.key, *link.delegates))
        key = link.key
    return payloads


def may_lead(links: Sequence[Link], epoch: int, person: Identity) -> int | None:
    """The rank by definition."""
    ruling = Link(0, ROOT, ())
    for link in links:
        if link.epoch <= epoch:
            ruling = link
    if person is ruling.key:
        return 0
    return 1 + ruling.delegates.index(person) if person in ruling.delegates else None


@settings(max_examples=60, deadline=None)
@given(chains(), st.integers(1, 14), st.sampled_from(PEOPLE), st.integers(0, 8))
def test_only_those_whom_the_chain_names_lead_and_only_with_their_rank(links, number, person, rank):
    authority = Authority.read(RUN, ROOT.public_key, written(links))
    right = may_lead(links, number, person)
    assert authority.rank(number, person.public_key) == right
    payload = epoch_by(person, number, rank, authority, leader=person.public_key)
    for known in (None, FOUNDED, authority):
        if right == rank:
            announced = read_epoch(payload, RUN, known)
            assert announced.leader == person.public_key
            assert announced.authority == authority
        else:
            with pytest.raises(WireError, match="may not, or with another rank"):
                read_epoch(payload, RUN, known)
    if right is None:
        with pytest.raises(WireError, match="a key that may not lead"):
            authority.open_update(update_by(person, number))
    else:
        assert authority.open_update(update_by(person, number)).epoch == number


@settings(max_examples=60, deadline=None)
@given(chains(least=2), st.randoms(use_true_random=False), st.data())
def test_a_chain_holds_whole_and_in_order_only(
    links: list[Link], random: Random, data: st.DataObject
):
    payloads = written(links)
    whole = Authority.read(RUN, ROOT.public_key, payloads)
    assert whole.links == tuple(
        Charter(link.epoch, link.key.public_key, digests(*link.delegates)) for link in links
    )
    # Its beginning is what somebody knows who heard less.
    shorter = Authority.read(RUN, ROOT.public_key, payloads[:-1])
    assert whole.extends(shorter) and not shorter.extends(whole)
    shuffled = list(payloads)
    random.shuffle(shuffled)
    if shuffled != payloads:
        with pytest.raises(WireError):
            Authority.read(RUN, ROOT.public_key, shuffled)
    with pytest.raises(WireError):
        Authority.read(RUN, ROOT.public_key, [*payloads, payloads[-1]])
    # A change of any byte.
    at = data.draw(st.integers(0, len(payloads) - 1))
    bent = bytearray(payloads[at])
    bent[data.draw(st.integers(0, len(bent) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(WireError):
        Authority.read(RUN, ROOT.public_key, [*payloads[:at], bytes(bent), *payloads[at + 1 :]])


@settings(max_examples=40, deadline=None)
@given(chains(), st.sampled_from(PEOPLE), st.integers(1, 5))
def test_nobody_but_the_key_in_charge_adds_to_a_chain(links, person, later):
    payloads = written(links)
    in_charge = links[-1].key if links else ROOT
    last = links[-1].epoch if links else 0
    longer = [*payloads, charter(person, last + later, person, person)]
    if person is in_charge:
        assert Authority.read(RUN, ROOT.public_key, longer).run_key(last + later) == (
            person.public_key
        )
        return
    with pytest.raises(WireError, match="not by the expected key"):
        Authority.read(RUN, ROOT.public_key, longer)
    with pytest.raises(WireError):
        read_epoch(epoch_by(person, 20, 0, charters=tuple(longer)), RUN)


@pytest.mark.parametrize(
    ("payloads", "words"),
    [
        ([charter(ROOT, 2, ROOT), charter(ROOT, 2, NEXT_KEY)], "out of order"),
        ([charter(ROOT, 3, ROOT), charter(ROOT, 2, NEXT_KEY)], "out of order"),
        ([charter(ROOT, 2, ROOT, FIRST, run="test-00000000")], "not by the expected key"),
        ([charter(FIRST, 2, ROOT, FIRST)], "not by the expected key"),
        ([signed(ROOT, "charter", (RUN,), Who())], "not a charter"),
        ([signed(ROOT, "update", (RUN,), Charter(2, ROOT.public_key, ()))], "not by the expected"),
        ([plain(Charter(2, ROOT.public_key, ()))], "a plain payload"),
        ([b""], "no known wrapping"),
        ([charter(ROOT, 2, ROOT)[:-1]], "not by the expected key"),
    ],
)
def test_what_is_no_chain_says_why(payloads, words):
    with pytest.raises(WireError, match=words):
        Authority.read(RUN, ROOT.public_key, payloads)


def test_a_chain_of_another_run_proves_nothing_here():
    other = Authority(run_id("test", STRANGER.public_key), STRANGER.public_key).amended(
        STRANGER, 2, STRANGER.public_key, digests(THIEF)
    )
    with pytest.raises(WireError, match="not the one in the run's name"):
        Authority.read(RUN, STRANGER.public_key, other.charters)
    with pytest.raises(WireError, match="not by the expected key"):
        Authority.read(RUN, ROOT.public_key, other.charters)
    with pytest.raises(WireError, match="not the one in the run's name"):
        read_epoch(epoch_by(STRANGER, 9, 0, host_key=STRANGER.public_key), RUN)


def test_a_charter_is_added_by_the_key_in_charge_for_later_epochs_only():
    with pytest.raises(WireError, match="not by the expected key"):
        APPOINTED.amended(FIRST, 5, FIRST.public_key, ())
    with pytest.raises(WireError, match="out of order"):
        APPOINTED.amended(ROOT, 2, ROOT.public_key, ())
    with pytest.raises(WireError, match="not by the expected key"):
        ROTATED.amended(ROOT, 12, ROOT.public_key, ())
    again = ROTATED.amended(NEXT_KEY, 12, NEXT_KEY.public_key, ())
    assert again.delegates(12) == ()
    assert again.extends(ROTATED) and again.extends(FOUNDED)


# Announcements.


def test_the_run_key_and_delegates_lead_with_their_ranks():
    announced = read_epoch(epoch_by(ROOT, 1, 0), RUN)
    assert announced.leader == ROOT.public_key
    assert announced.precedence == (1, 0)
    for person, rank in ((ROOT, 0), (FIRST, 1), (SECOND, 2)):
        announced = read_epoch(epoch_by(person, 3, rank, APPOINTED), RUN)
        assert (announced.leader, announced.epoch.rank) == (person.public_key, rank)
    # A delegate's announcement of an epoch before its charter.
    with pytest.raises(WireError):
        read_epoch(epoch_by(FIRST, 1, 1, APPOINTED), RUN)


@pytest.mark.parametrize("number", [5, 6, 100])
def test_a_revoked_delegate_leads_no_more_once_the_charter_is_known(number):
    payload = epoch_by(FIRST, number, 1, APPOINTED)
    assert read_epoch(payload, RUN).leader == FIRST.public_key  # to who knows no better
    with pytest.raises(WireError, match="may not"):
        read_epoch(payload, RUN, REVOKED)
    with pytest.raises(WireError, match="may not"):
        read_epoch(epoch_by(FIRST, number, 1, REVOKED), RUN)
    # What it led before its revocation stays proved.
    before = read_epoch(epoch_by(FIRST, 4, 1, APPOINTED), RUN, REVOKED)
    assert before.authority is REVOKED
    assert REVOKED.open_update(update_by(FIRST, 4)).epoch == 4
    with pytest.raises(WireError, match="may not lead"):
        REVOKED.open_update(update_by(FIRST, number))


def test_the_rank_is_that_of_the_charter_which_governs_the_epoch():
    assert read_epoch(epoch_by(SECOND, 4, 2, REVOKED), RUN).precedence == (4, -2)
    assert read_epoch(epoch_by(SECOND, 5, 1, REVOKED), RUN).precedence == (5, -1)
    for number, rank in ((4, 1), (5, 2), (5, 0)):
        with pytest.raises(WireError, match="another rank"):
            read_epoch(epoch_by(SECOND, number, rank, REVOKED, leader=SECOND.public_key), RUN)


def test_after_a_rotation_the_old_key_leads_no_new_epoch_and_its_updates_still_verify():
    assert read_epoch(epoch_by(NEXT_KEY, 8, 0, ROTATED), RUN).leader == NEXT_KEY.public_key
    assert read_epoch(epoch_by(ROOT, 7, 0, ROTATED), RUN).leader == ROOT.public_key
    for known in (None, ROTATED):
        with pytest.raises(WireError):
            read_epoch(epoch_by(ROOT, 8, 0, ROTATED), RUN, known)
        with pytest.raises(WireError):
            read_epoch(epoch_by(ROOT, 8, 0, ROTATED, leader=ROOT.public_key), RUN, known)
    with pytest.raises(WireError):
        read_epoch(epoch_by(ROOT, 8, 0, REVOKED), RUN, ROTATED)
    for named in (True, False):
        assert ROTATED.open_update(update_by(ROOT, 7, named)).epoch == 7
        assert ROTATED.open_update(update_by(NEXT_KEY, 8, named)).epoch == 8
        with pytest.raises(WireError):
            ROTATED.open_update(update_by(ROOT, 8, named))
        with pytest.raises(WireError):
            ROTATED.open_update(update_by(NEXT_KEY, 7, named))


def test_known_authority_judges_what_knows_less_and_grows_by_what_knows_more():
    newer = epoch_by(NEXT_KEY, 9, 0, ROTATED)
    assert read_epoch(newer, RUN, APPOINTED).authority == ROTATED
    older = epoch_by(SECOND, 6, 1, REVOKED)
    assert read_epoch(older, RUN, ROTATED).authority is ROTATED
    assert read_epoch(older, RUN, REVOKED).authority is REVOKED


def test_charters_that_part_from_the_known_ones_are_refused():
    """As who stole a key that is no longer in charge would write them."""
    fork = REVOKED.amended(ROOT, 8, THIEF.public_key, ())
    payload = epoch_by(THIEF, 20, 0, fork)
    assert read_epoch(payload, RUN).leader == THIEF.public_key  # a newcomer can't tell
    with pytest.raises(WireError, match="other charters than the run has"):
        read_epoch(payload, RUN, ROTATED)
    other = FOUNDED.amended(ROOT, 2, ROOT.public_key, digests(THIEF))
    with pytest.raises(WireError, match="other charters than the run has"):
        read_epoch(epoch_by(ROOT, 20, 0, other), RUN, ROTATED)


def test_forged_announcements_cost_one_signature_however_long_the_chain_is(monkeypatch):
    """Everybody hears them, and anybody may repeat the run's own charters."""
    chain = FOUNDED
    for number in range(1, 65):
        chain = chain.amended(ROOT, number, ROOT.public_key, digests(FIRST))
    looked_at = []

    def look(*what: Any) -> bool:
        looked_at.append(what)
        return verify(*what)

    monkeypatch.setattr("protocol.envelope.verify", look)
    shorter = Authority(RUN, ROOT.public_key, chain.charters[:63], chain.links[:63])
    bad = (*chain.charters[:63], charter(THIEF, 64, THIEF))
    for known, charters in ((chain, chain.charters[:63]), (chain, chain.charters), (shorter, bad)):
        looked_at.clear()
        forged = epoch_by(THIEF, 70, 0, charters=charters, leader=ROOT.public_key)
        with pytest.raises(WireError):
            read_epoch(forged, RUN, known)
        assert len(looked_at) == 1
    assert read_epoch(epoch_by(ROOT, 70, 0, chain), RUN, shorter).authority == chain


def test_another_key_that_fits_the_name_does_not_lead_who_knows_the_right_one(monkeypatch):
    # Found by search: 32 bits of a key are in the name.
    monkeypatch.setattr("protocol.authority.run_belongs_to", lambda run, key: True)
    foreign = Authority(RUN, STRANGER.public_key)
    for known in (FOUNDED, APPOINTED):
        with pytest.raises(WireError, match="other charters"):
            read_epoch(epoch_by(STRANGER, 9, 0, foreign), RUN, known)


@pytest.mark.parametrize(
    "payload",
    [
        epoch_by(STRANGER, 3, 0),
        epoch_by(STRANGER, 3, 0, leader=ROOT.public_key),
        epoch_by(STRANGER, 3, 1, APPOINTED, leader=FIRST.public_key),
        epoch_by(FIRST, 3, 1, APPOINTED, leader=b"short"),
        epoch_by(ROOT, 3, 0, label="update"),
        epoch_by(ROOT, 3, 0, run="test-00000000"),
        epoch_by(ROOT, 3, 0)[:-1],
        signed(ROOT, "epoch", (RUN,), Who()),
        plain(Who()),
        b"",
    ],
)
def test_a_forged_announcement_is_refused(payload):
    for known in (None, FOUNDED, APPOINTED):
        with pytest.raises(WireError):
            read_epoch(payload, RUN, known)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_changed_byte_of_an_announcement_passes(data: st.DataObject):
    payload = bytearray(epoch_by(FIRST, 4, 1, APPOINTED))
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(WireError):
        read_epoch(bytes(payload), RUN, data.draw(st.sampled_from([None, FOUNDED, REVOKED])))


# Updates.


def test_updates_of_no_epoch_and_by_nobody_are_refused():
    refused: list[bytes] = [
        update_by(ROOT, 0),  # which nobody ever announced
        update_by(STRANGER, 3, named=False),
        update_by(ROOT, 3, run="test-00000000"),
        update_by(FIRST, 1),  # before its charter
        signed(ROOT, "epoch", (RUN,), msgspec.structs.replace(FOUNDED_UPDATE, epoch=3)),
        signed(ROOT, "update", (RUN,), Who()),
        update_by(ROOT, 3)[:-1],
    ]
    for payload in refused:
        with pytest.raises(WireError):
            APPOINTED.open_update(payload)
    forged: Message = msgspec.structs.replace(FOUNDED_UPDATE, signer=FIRST.public_key, epoch=3)
    with pytest.raises(WireError, match="not by the expected key"):
        APPOINTED.open_update(signed(SECOND, "update", (RUN,), forged))


FOUNDED_UPDATE = FOUNDED.open_update(update_by(ROOT, 1, named=False))


# Which epoch holds.


@given(st.lists(st.tuples(st.integers(1, 2**30), st.integers(0, 8)), min_size=1, max_size=20))
def test_precedence_is_a_total_order_of_epochs(epochs):
    ordered = sorted(set(epochs), key=lambda epoch: precedence(*epoch))
    for lower, higher in itertools.pairwise(ordered):
        assert precedence(*lower) < precedence(*higher)  # never equal
        assert lower[0] < higher[0] or (lower[0] == higher[0] and lower[1] > higher[1])
    latest = max(number for number, _ in epochs)
    nearest = min(rank for number, rank in epochs if number == latest)
    assert max(epochs, key=lambda epoch: precedence(*epoch)) == (latest, nearest)


@settings(max_examples=30, deadline=None)
@given(st.permutations([(3, ROOT, 0), (3, FIRST, 1), (3, SECOND, 2), (4, SECOND, 2), (2, ROOT, 0)]))
def test_whoever_hears_the_same_epochs_in_any_order_follows_the_same_leader(order):
    followed: Announcement | None = None
    for number, person, rank in order:
        heard = read_epoch(epoch_by(person, number, rank, APPOINTED), RUN)
        if followed is None or heard.precedence > followed.precedence:
            followed = heard
    assert followed is not None
    assert followed.leader == SECOND.public_key
    assert followed.epoch.number == 4

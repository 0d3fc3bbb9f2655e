"""Who follows a run comes to hold the leader's history, whatever it held before and whatever is
lost, repeated or said by others on the way."""

from __future__ import annotations

import hashlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.standby import following
from coordinator.standby.following import (
    NOBODY,
    Apply,
    Ask,
    Command,
    Entry,
    Follower,
    GiveUp,
    Part,
    Precedence,
    Tell,
)
from protocol import asking, waiting
from protocol.messages import Update

PAGE = 16


def digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


START = digest("version 0")


def history(*parts: tuple[int, Precedence]) -> list[Entry]:
    """So many updates by an epoch of that precedence, one part after the other."""
    entries: list[Entry] = []
    before = START
    for count, precedence in parts:
        for _ in range(count):
            version = len(entries)
            after = digest(f"{before.hex()} {precedence}")
            update = Update(precedence[0], version, (), 1.0, 0.1, 0.1, (), 2, 2, before, after)
            payload = f"{version} {precedence} {after.hex()}".encode()
            entries.append(Entry(update, payload, precedence))
            before = after
    return entries


class Log:
    """A follower with its log; commands are obeyed at once, requests are collected."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = list(entries)
        self.aside: list[Entry] = []
        self.asked: list[int] = []
        self.told: list[str] = []
        self.gave_up: list[str] = []
        self.now = 0.0
        last = entries[-1] if entries else None
        self.follower = Follower(
            len(entries),
            last.update.digest_after if last else START,
            last.precedence if last else NOBODY,
            0,
            Random(1),
        )

    def do(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Apply():
                    assert command.entry.version == len(self.entries)
                    assert command.entry.update.digest_before == self.digest
                    self.entries.append(command.entry)
                    self.do(self.follower.advanced(self.now))
                case Part():
                    self.aside += self.entries[command.version :]
                    del self.entries[command.version :]
                    precedence = self.entries[-1].precedence if self.entries else NOBODY
                    self.do(self.follower.parted(self.digest, precedence, self.now))
                case Ask():
                    assert command.message.want == "updates"
                    self.asked.append(command.message.version)
                case Tell():
                    self.told.append(command.text)
                case GiveUp():
                    self.gave_up.append(command.reason)

    @property
    def digest(self) -> bytes:
        return self.entries[-1].update.digest_after if self.entries else START

    def hear(self, entry: Entry) -> None:
        ours = self.entries[entry.version] if entry.version < len(self.entries) else None
        self.do(self.follower.heard(entry, ours, self.now))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.do(self.follower.tick(self.now))

    def follow(self, entries: list[Entry], precedence: Precedence, rounds: int = 200) -> None:
        """Follow a leader with this history, which answers every request."""
        self.do(self.follower.led(precedence, self.now))
        self.welcome(entries)
        self.serve(entries, rounds)

    def welcome(self, entries: list[Entry]) -> None:
        digest = entries[-1].update.digest_after if entries else START
        self.do(self.follower.welcomed(len(entries), digest, self.now))

    def serve(self, entries: list[Entry], rounds: int = 200) -> None:
        for _ in range(rounds):
            for first in self.asked[-1:]:
                self.asked.clear()
                for entry in entries[first : first + PAGE]:
                    self.hear(entry)
            self.wait(0.5)


FIRST, SECOND, RIVAL = (1, 0), (2, -1), (2, -2)


def test_an_empty_log_gets_all_in_pages() -> None:
    leader, log = history((50, FIRST)), Log([])
    log.follow(leader, FIRST)
    assert log.entries == leader and not log.aside
    assert log.follower.settled and not log.follower.busy


def test_what_comes_out_of_order_waits() -> None:
    leader, log = history((3, FIRST)), Log([])
    log.do(log.follower.led(FIRST, 0.0))
    for entry in reversed(leader):
        log.hear(entry)
    assert log.entries == leader


def test_nobody_is_asked_before_a_welcome_nor_while_a_gap_may_close() -> None:
    leader, log = history((3, FIRST)), Log([])
    log.do(log.follower.led(FIRST, 0.0))
    log.hear(leader[2])
    log.wait(5.0)
    assert not log.asked
    log.welcome([])
    log.hear(leader[2])
    assert not log.asked
    log.wait(1.25 * following.GRACE)
    assert log.asked == [0]
    log.wait(1.0)
    assert log.asked == [0]
    log.wait(1.25 * asking.FIRST_PATIENCE)
    assert log.asked == [0, 0]


def test_own_updates_of_the_epoch_that_leads_need_no_comparison() -> None:
    leader = history((5, FIRST))
    log = Log(leader[:4])
    log.do(log.follower.led(FIRST, 0.0))
    assert log.follower.settled
    log.welcome(leader[:4])
    assert not log.asked
    log.hear(leader[4])
    assert log.entries == leader


def test_surplus_of_an_old_leader_goes_aside() -> None:
    ours = history((9, FIRST))
    log = Log(ours)
    log.follow(history((6, FIRST), (20, SECOND)), SECOND)
    assert log.entries == history((6, FIRST), (20, SECOND))
    assert log.aside == ours[6:]


def test_surplus_goes_aside_where_the_new_leader_made_nothing_yet() -> None:
    ours = history((9, FIRST))
    log = Log(ours)
    log.follow(ours[:6], SECOND)
    assert log.entries == ours[:6] and log.aside == ours[6:]
    assert log.follower.settled


def test_a_leader_at_version_0_takes_all_back() -> None:
    ours = history((3, FIRST))
    log = Log(ours)
    log.follow([], SECOND)
    assert log.entries == [] and log.aside == ours


def test_same_parameters_in_another_epoch_are_another_history() -> None:
    """In synchronous mode two leaders may make the same step: one history is kept all the same."""
    ours = history((5, FIRST))
    last = ours[-1]
    theirs = [*ours[:4], Entry(last.update, b"by the second", SECOND)]
    log = Log(ours)
    log.follow(theirs, SECOND)
    assert log.entries == theirs and log.aside == [last]


def test_earlier_epochs_can_take_nothing_back() -> None:
    leader = history((4, FIRST), (4, SECOND))
    log = Log(leader)
    log.do(log.follower.led(SECOND, 0.0))
    log.welcome(leader)
    for entry in history((4, FIRST), (6, (1, 0)))[4:]:
        log.hear(entry)
    log.wait(10.0)
    assert log.entries == leader and not log.aside and not log.gave_up


def test_updates_of_an_epoch_that_was_not_announced_do_not_count() -> None:
    leader = history((4, FIRST))
    log = Log(leader)
    log.do(log.follower.led(FIRST, 0.0))
    for entry in history((2, FIRST), (6, SECOND))[2:]:
        log.hear(entry)
    assert log.entries == leader and not log.aside


def test_of_two_for_one_version_the_later_epochs_is_taken() -> None:
    log = Log(history((2, FIRST)))
    log.do(log.follower.led(SECOND, 0.0))
    log.hear(history((2, FIRST), (1, RIVAL))[2])
    log.hear(history((2, FIRST), (1, SECOND))[2])
    log.hear(history((2, FIRST), (1, RIVAL))[2])
    log.follow(history((2, FIRST), (1, SECOND)), SECOND)
    assert [entry.precedence for entry in log.entries] == [FIRST, FIRST, SECOND]


def test_a_leader_whose_updates_do_not_fit_is_given_up() -> None:
    log = Log(history((2, FIRST)))
    other = history((1, (0, 0)), (5, FIRST))
    log.do(log.follower.led(FIRST, 0.0))
    log.welcome(other)
    log.serve(other)
    assert len(log.told) == following.MISFITS - 1 and len(log.gave_up) == 1
    assert "our parameters are" in log.gave_up[0] and "\n" not in log.gave_up[0]
    assert not log.aside


def test_a_huge_claim_costs_one_question_each_time() -> None:
    leader = history((4, FIRST))
    log = Log(leader)
    log.do(log.follower.led(FIRST, 0.0))
    log.welcome(leader[:4])
    for _ in range(600):
        log.do(log.follower.hinted(2**40, log.now))
        log.wait(0.1)
    assert len(log.asked) < 10
    log.do(log.follower.hinted(4, log.now))
    log.asked.clear()
    log.wait(60.0)
    assert not log.asked


def test_what_waits_is_bounded() -> None:
    log = Log([])
    log.do(log.follower.led(FIRST, 0.0))
    leader = history((waiting.MOST + 10, FIRST))
    for entry in leader[1:]:
        log.hear(entry)
    log.hear(leader[0])
    assert len(log.entries) == waiting.MOST


def test_gathering_from_peers_never_takes_back_for_want_of_updates() -> None:
    """What peers claim of themselves proves nothing."""
    ours = history((9, FIRST))
    log = Log(ours)
    log.do(log.follower.gathered((5, 0), 3, 0.0))
    log.serve(ours[:3], 20)
    assert log.entries == ours and not log.aside


def test_gathering_from_peers_of_a_later_epoch_finds_where_it_began() -> None:
    ours, theirs = history((9, FIRST)), history((5, FIRST), (3, SECOND))
    log = Log(ours)
    log.do(log.follower.gathered((2, 0), 8, 0.0))
    log.serve(theirs)
    assert log.entries == theirs and log.aside == ours[5:]


def test_updates_of_a_history_that_ours_has_outdone_are_passed_over() -> None:
    ours, theirs = history((5, FIRST), (2, SECOND)), history((5, FIRST), (6, RIVAL))
    log = Log(ours)
    for _ in range(5):
        log.do(log.follower.gathered((2, 0), 11, log.now))
        log.serve(theirs, 20)
    assert log.entries == ours and not log.aside and not log.gave_up and not log.told


@pytest.mark.parametrize("shared", [0, 1, 7, 30])
def test_the_last_common_version_is_found_however_far_back(shared: int) -> None:
    ours = history((shared, FIRST), (40, (2, -3)))
    theirs = history((shared, FIRST), (60, SECOND))
    log = Log(ours)
    log.follow(theirs, SECOND)
    assert log.entries == theirs
    assert log.aside == ours[shared:]


@settings(deadline=None, max_examples=150)
@given(
    shared=st.integers(0, 20),
    ours=st.integers(0, 20),
    theirs=st.integers(0, 40),
    seed=st.integers(0, 10**6),
    loss=st.sampled_from([0.0, 0.3, 0.6]),
)
def test_everybody_ends_with_the_leaders_history(
    shared: int, ours: int, theirs: int, seed: int, loss: float
) -> None:
    random = Random(seed)
    mine = history((shared, FIRST), (ours, (2, -3)))
    leader = history((shared, FIRST), (theirs, (3, 0)))
    log = Log(mine)
    log.do(log.follower.led((3, 0), 0.0))
    log.welcome(leader)
    for second in range(400):
        for first in log.asked[-1:]:
            log.asked.clear()
            page = leader[first : first + PAGE]
            random.shuffle(page)
            for entry in page:
                if random.random() >= loss:
                    log.hear(entry)
        if second < 300 and random.random() < loss and mine + leader:
            # What was signed once can come again at any time.
            log.hear(random.choice([*mine, *leader]))
        log.wait(1.0)
    assert [e.payload for e in log.entries] == [e.payload for e in leader]
    assert not log.gave_up

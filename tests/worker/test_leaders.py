"""What a session makes of leaders that change, come back, are paused, revoked, or forged."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import messages, topics
from protocol.envelope import open_signed, peek_signed, signed
from protocol.greeting import Introduction
from protocol.identity import Identity, fingerprint
from tests.worker.scripted import Host
from tests.worker.test_session import SPEC, Desk, host_of
from worker.handshake import Handshake
from worker.presence import HELLO_AFTER
from worker.replica import MISMATCHES

DELEGATE, SECOND, STRANGER = (Identity(bytes([number]) * 32) for number in (7, 8, 9))


def appointing(versions: int = 0) -> Host:
    """A host whose DELEGATE and SECOND may take over from epoch 2 on."""
    host = host_of()
    host.amend(2, DELEGATE, SECOND)
    host.grow(versions)
    return host


def joined(versions: int = 0) -> Desk:
    """A welcomed session in step with such a host."""
    desk = Desk(appointing(versions), expected=appointing().identity.fingerprint)
    desk.welcomed()
    for version in range(versions):
        desk.hears_update(version)
    assert desk.session.view(desk.now).version == versions
    desk.sent.clear()
    return desk


def says_hello_now(desk: Desk) -> messages.Hello:
    """The hello that is out without any time having passed."""
    (hello,) = desk.hellos()
    desk.hears(desk.inbox, desk.host.welcome(hello.topic, hello.payload))
    assert desk.host.hello is not None
    assert desk.session.handshake.agreed
    return desk.host.hello


def ignored(desk: Desk) -> int:
    """Messages that counted for nothing since this was asked last."""
    count, desk.session.voice.ignored = desk.session.voice.ignored, 0
    return count


def text(desk: Desk) -> str:
    return "\n".join(say.text for say in desk.said)


# Who is believed.


def test_a_delegate_leads_and_the_volunteer_is_told_who_appointed_it():
    host = appointing()
    desk = Desk(host.other(2, DELEGATE), expected=host.identity.fingerprint)
    desk.welcomed()
    assert (
        f"led by the delegate {DELEGATE.fingerprint}, appointed by {host.identity.fingerprint} "
        "(as the join line says)" in desk.said[0].text
    )
    task = desk.host.task()
    desk.is_told(task)
    desk.finishes()
    assert [result.token for result in desk.told(messages.Result)] == [task.token]
    desk.host.grow(1)
    desk.hears_update(0)
    assert desk.session.view(desk.now).version == 1
    assert ignored(desk) == 0


def test_the_key_that_succeeds_the_runs_own_leads_and_is_named():
    host, successor = host_of(), Identity(b"n" * 32)
    host.amend(3, key=successor)
    desk = Desk(host.other(3, successor), expected=host.identity.fingerprint)
    desk.welcomed()
    named = f"led by {successor.fingerprint}, the successor of {host.identity.fingerprint} (as"
    assert named in desk.said[0].text
    desk.hears_epoch(host.other(4).epoch(rank=0, leader=b""))  # by the key that it succeeded
    assert ignored(desk) == 1


def test_a_join_line_that_names_a_delegate_is_not_the_runs():
    desk = Desk(appointing().other(2, DELEGATE), expected=DELEGATE.fingerprint)
    desk.connected()
    desk.hears_epoch()
    assert desk.left is not None
    assert desk.left.code == 5


def test_a_manifest_and_a_welcome_count_by_the_leader_of_this_epoch_only():
    host = appointing(2)
    desk = Desk(host.other(2, DELEGATE))
    desk.connected()
    desk.hears_epoch()
    desk.ready()
    (hello,) = desk.hellos()
    desk.hears(desk.inbox, host.welcome(hello.topic, hello.payload))  # the former leader is quick
    assert ignored(desk) == 1
    assert not desk.session.handshake.agreed
    desk.hears(desk.inbox, desk.host.welcome(hello.topic, hello.payload))
    assert desk.session.handshake.agreed
    manifest, _ = desk.host.snapshot()
    desk.hears(desk.inbox, host.signed("manifest", manifest))
    assert ignored(desk) == 1
    assert desk.told(messages.ChunkRequest) == []
    desk.hears(desk.inbox, desk.host.signed("manifest", manifest))
    assert ignored(desk) == 0
    assert len(desk.told(messages.ChunkRequest)) == 1


def test_a_welcome_of_another_epoch_of_the_same_key_is_ignored():
    desk = Desk(host_of().other(2))
    desk.connected()
    desk.hears_epoch()
    desk.ready()
    (hello,) = desk.hellos()
    for number in (1, 3):
        desk.hears(desk.inbox, desk.host.other(number).welcome(hello.topic, hello.payload))
    assert ignored(desk) == 2
    assert not desk.session.handshake.agreed
    desk.hears(desk.inbox, desk.host.welcome(hello.topic, hello.payload))
    assert desk.session.handshake.agreed


def test_who_is_no_leader_any_more_is_ignored_and_counted():
    desk = joined(1)
    old = desk.host
    desk.is_told(old.task())
    desk.host = old.other(2, DELEGATE)
    desk.hears_epoch()
    says_hello_now(desk)
    for payload in (
        old.epoch(),
        old.epoch("stopped", reason="nonsense"),
        old.epoch("finished"),
        old.epoch("paused"),
        old.other(2, SECOND).epoch(),
    ):
        desk.hears_epoch(payload)
    assert ignored(desk) == 5
    for message in (old.task(), messages.Notice("leave", "go")):
        desk.hears(desk.inbox, old.sealed(message))  # under the key of the former session
    assert ignored(desk) == 2
    desk.hears_beat(old.beat("lost"))
    desk.hears_beat(old.beat(version=50))
    assert ignored(desk) == 2
    desk.pass_time(8.0)
    assert desk.left is None
    assert desk.told(messages.CatchUp) == []
    assert "gone" not in desk.warnings
    assert desk.hellos() == []
    (job,) = desk.jobs
    assert job.task == 1


def test_from_the_new_epoch_on_the_former_session_is_void():
    desk = joined()
    old = desk.host
    desk.host = old.other(2)
    desk.hears_epoch()
    desk.hears(desk.inbox, old.sealed(old.task()))
    desk.hears(desk.inbox, old.sealed(messages.Notice("leave", "go")))
    assert ignored(desk) == 2
    assert desk.jobs == []
    assert desk.left is None
    desk.pass_time(12.0)
    assert desk.hellos()
    assert desk.sent == []  # nothing under a key that nobody has any more


def test_the_reason_is_told_now_and_then():
    desk = joined()
    old = desk.host
    desk.host = old.other(2, DELEGATE)
    desk.hears_epoch()
    desk.hears_epoch(old.epoch())
    assert f"epoch 1 by {old.identity.fingerprint} is over: epoch 2 is led by" in text(desk)


@pytest.mark.parametrize("learnt", ["with the epoch", "from an epoch that is over"])
def test_a_revoked_delegate_leads_no_more(learnt):
    desk = joined()
    host = desk.host
    revoking = host.other(4)
    revoking.amend(4, SECOND)
    if learnt == "with the epoch":
        desk.host = revoking
        desk.hears_epoch()
        says_hello_now(desk)
        desk.hears_epoch(host.other(9, DELEGATE).epoch())
        assert ignored(desk) == 1
        desk.hears_epoch(revoking.other(5, SECOND).epoch())
        assert ignored(desk) == 0
        return
    # The delegate led before it was known that it may not: what it said holds no longer.
    desk.host = host.other(9, DELEGATE)
    desk.hears_epoch()
    says_hello_now(desk)
    desk.host = revoking
    desk.hears_epoch()
    says_hello_now(desk)
    assert ignored(desk) == 0
    desk.hears_epoch(host.other(9, DELEGATE).epoch())
    assert ignored(desk) == 1


def test_of_two_leaders_with_one_number_the_nearer_to_the_run_key_holds():
    desk = joined(1)
    host = desk.host
    for leader in (SECOND, DELEGATE, host.identity):
        desk.host = host.other(2, leader)
        desk.hears_epoch()
        says_hello_now(desk)
    for leader in (DELEGATE, SECOND):
        desk.hears_epoch(host.other(2, leader).epoch())
    assert ignored(desk) == 2
    assert desk.hellos() == []


@pytest.mark.parametrize("forged", ["unknown key", "rank", "charter", "charters of another"])
def test_a_forged_leader_is_ignored(forged):
    desk = joined()
    host = desk.host
    thief = host.other(5, STRANGER)
    epoch = msgspec.structs.replace(
        epoch_of(host.other(5)), leader=STRANGER.public_key, rank=1, number=5
    )
    charter = messages.Charter(3, STRANGER.public_key, ())
    if forged == "rank":
        epoch = msgspec.structs.replace(epoch, leader=DELEGATE.public_key, rank=0)
        thief.leader = DELEGATE
    elif forged == "charter":
        own = signed(STRANGER, "charter", (host.run,), charter)
        epoch = msgspec.structs.replace(epoch, charters=(*epoch.charters, own), rank=0)
    elif forged == "charters of another":
        own = signed(host.identity, "charter", ("test-00000000",), charter)
        epoch = msgspec.structs.replace(epoch, charters=(*epoch.charters, own), rank=0)
    desk.hears_epoch(thief.signed("epoch", epoch))
    assert ignored(desk) == 1
    assert desk.hellos() == []


def epoch_of(host: Host) -> messages.Epoch:
    message = peek_signed(host.epoch())
    assert isinstance(message, messages.Epoch)
    return message


def test_an_announcement_of_the_same_epoch_but_an_earlier_version_is_no_news():
    desk = joined(2)
    running = desk.host.epoch()
    desk.host.grow(1)
    desk.hears_update(2)
    desk.hears_epoch(desk.host.epoch("paused", reason="no space left on the disk"))
    desk.hears_epoch(running)
    assert "no space left" in desk.session.view(desk.now).idle_because


# A leader that comes back, and another one.


@pytest.mark.parametrize("leader", [None, DELEGATE])
def test_a_new_epoch_is_greeted_at_once_and_nothing_is_lost(leader):
    desk = joined(1)
    done, running = desk.host.task(), desk.host.task(first=2)
    desk.is_told(done)
    desk.is_told(running)
    desk.finishes(done.task)
    desk.told(messages.Result)
    desk.hears_beat(desk.host.beat("lost"))
    desk.pass_time(60.0, beats=False)
    desk.host = desk.host.other(2, leader)
    desk.hears_epoch()
    hello = says_hello_now(desk)
    assert (hello.version, hello.credit) == (1, 2)
    assert {held.task for held in hello.held} == {done.task, running.task}
    assert [result.token for result in desk.told(messages.Result)] == [done.token]
    desk.finishes(running.task)
    assert [result.token for result in desk.told(messages.Result)] == [running.token]
    assert desk.abandoned == []
    told = desk.warnings
    if leader is None:
        assert "the host is back (epoch 2)" in told
    else:
        name = desk.host.identity.fingerprint
        assert f"led by the delegate {DELEGATE.fingerprint}, appointed by {name} from now" in told


@pytest.mark.parametrize("before", ["a hello just now", "long patience", "silence", "gone", "new"])
def test_whatever_was_before_the_hello_goes_out_with_the_new_epoch(before):
    desk = joined()
    if before == "a hello just now":
        desk.is_told(messages.Notice("hello-again", ""))
    elif before == "long patience":
        desk.is_told(messages.Notice("hello-again", ""))
        desk.pass_time(100.0)
    elif before == "silence":
        desk.pass_time(100.0, beats=False)
    elif before == "gone":
        desk.hears_beat(desk.host.beat("lost"))
        desk.pass_time(6.0, beats=False)
    else:
        desk.obey(desk.session.disconnected(desk.now))
        desk.now += 0.2
        desk.connected()  # and says hello, to nobody
    desk.hellos()
    desk.host = desk.host.other(2)
    desk.hears_epoch()
    says_hello_now(desk)
    desk.pass_time(30.0)
    assert desk.hellos() == []


def test_the_same_announcement_again_is_no_reason_for_a_hello():
    desk = joined()
    for _ in range(20):
        desk.hears_epoch()
        desk.pass_time(1.0)
    assert desk.hellos() == []


def test_a_hello_that_nobody_was_there_to_hear_is_said_again_at_the_first_beat():
    """As after a broker came back, and we were quicker than the coordinator."""
    desk = joined()
    desk.obey(desk.session.disconnected(desk.now))
    desk.now += 5.0
    desk.connected()
    assert len(desk.hellos()) == 1
    desk.now += HELLO_AFTER / 2.5
    desk.hears_beat()
    says_hello_now(desk)
    for _ in range(5):
        desk.hears_beat()
        desk.pass_time(1.0)
    assert desk.hellos() == []


def test_beats_that_anybody_may_forge_cause_one_hello_more_at_most():
    desk = Desk(host_of())
    desk.connected()
    desk.hears_epoch()
    desk.ready()
    for _ in range(100):
        desk.now += 0.1
        desk.hears_beat()
    assert len(desk.hellos()) <= 4  # two or three without beats


def test_who_is_leaving_still_hands_its_results_to_the_next_leader():
    desk = joined()
    desk.is_told(desk.host.task())
    desk.obey(desk.session.finish(desk.now))
    desk.host = desk.host.other(2, DELEGATE)
    desk.hears_epoch()
    assert says_hello_now(desk).credit == 0
    desk.finishes()
    (result,) = desk.told(messages.Result)
    assert desk.left is None
    desk.is_told(messages.Acknowledge((result.task,), "accepted"))
    assert desk.left is not None
    assert desk.left.text == "left; every result is answered for"


def test_who_is_leaving_waits_for_the_next_leader_no_longer_than_for_an_answer():
    desk = joined()
    desk.is_told(desk.host.task())
    desk.obey(desk.session.finish(desk.now))
    desk.finishes()
    desk.host = desk.host.other(2, DELEGATE)
    desk.hears_epoch()
    desk.pass_time(4.5)
    assert desk.left is None
    desk.pass_time(1.0)
    assert desk.left is not None
    assert "no answer to 1 result" in desk.left.text


def test_a_hello_names_no_more_leases_than_it_may():
    desk = joined()
    for first in range(64):
        desk.is_told(desk.host.task(first=first, count=1))
    for _ in range(5):
        desk.finishes()
    for first in range(5):
        desk.is_told(desk.host.task(first=64 + first, count=1))
    desk.host = desk.host.other(2)
    desk.hears_epoch()
    held = says_hello_now(desk).held
    assert len(held) == 64
    assert {lease.task for lease in held} == {job.task for job in desk.jobs}  # those first


def test_a_lease_whose_version_is_gone_is_not_evaluated_for_nothing():
    desk = joined()
    desk.host.grow(12)
    waiting = desk.host.task(version=3)
    desk.held_back = []
    desk.is_told(waiting)
    desk.host = desk.host.other(2)
    desk.hears_epoch()
    hello = says_hello_now(desk)
    assert [held.task for held in hello.held] == [waiting.task]
    # It comes by a snapshot, and never has that version.
    manifest, chunks = desk.host.snapshot()
    desk.hears(desk.inbox, desk.host.signed("manifest", manifest))
    held_back, desk.held_back = desk.held_back, None
    assert held_back == []
    chunk = messages.Chunk(12, 0, chunks[0])
    topic = topics.snapshot(
        desk.host.run,
        topics.peer(desk.host.leader.worker, topics.LEADER_SESSION),
        desk.session.handshake.peer,
    )
    desk.hears(topic, bytes([0]) + messages.encode(chunk))
    assert desk.session.view(desk.now).version == 12
    (refusal,) = desk.told(messages.Refusal)
    assert (refusal.task, refusal.cause, refusal.token) == (waiting.task, "gone", waiting.token)
    assert desk.jobs == []


# A pause.


@pytest.mark.parametrize("leader", [None, DELEGATE])
def test_a_paused_run_is_waited_for_however_long_it_takes(leader):
    desk = joined(1)
    done, running = desk.host.task(), desk.host.task(first=2)
    desk.is_told(done)
    desk.is_told(running)
    desk.finishes(done.task)
    desk.sent.clear()
    desk.hears_epoch(desk.host.epoch("paused", reason="no space left on /data"))
    assert desk.warnings == "the host says: no space left on /data; waiting, 1 result kept"
    desk.hears_beat(desk.host.beat("lost"))
    desk.pass_time(600.0, beats=False)
    desk.finishes(running.task)
    desk.pass_time(7200.0, beats=False)
    assert desk.left is None
    assert desk.warnings.count("\n") == 0  # it is said once
    assert "no space left on /data" in desk.session.view(desk.now).idle_because
    assert desk.abandoned == []
    desk.sent.clear()
    # The broker may restart meanwhile, and says again what it kept.
    desk.obey(desk.session.disconnected(desk.now))
    desk.connected()
    desk.hears_epoch(desk.host.epoch("paused", reason="no space left on /data"))
    desk.pass_time(60.0, beats=False)
    desk.hellos()
    desk.host = desk.host.other(2, leader)
    desk.hears_epoch()
    says_hello_now(desk)
    tokens = {result.token for result in desk.told(messages.Result)}
    assert tokens == {done.token, running.token}
    assert "the run goes on" in text(desk)
    assert "paused" not in desk.session.view(desk.now).idle_because


def test_a_run_that_is_paused_when_we_come_is_waited_for():
    desk = Desk(host_of())
    desk.connected()
    desk.hears_epoch(desk.host.epoch("paused"))
    assert desk.started
    assert "the host paused the run; waiting" in desk.warnings
    desk.ready()
    desk.pass_time(3600.0, beats=False)
    assert len(desk.hellos()) <= 4
    assert desk.session.view(desk.now).idle_because == "the run is paused by its host"
    desk.host = desk.host.other(2)
    desk.hears_epoch()
    says_hello_now(desk)


def test_an_old_leader_can_not_end_the_run_of_a_later_one():
    desk = joined(2)
    old = desk.host
    for number, leader in ((2, DELEGATE), (3, None), (4, SECOND)):
        desk.host = old.other(number, leader)
        desk.hears_epoch()
        says_hello_now(desk)
        for state in ("stopped", "finished", "paused"):
            desk.hears_epoch(old.epoch(state))
        assert desk.left is None
        assert desk.session.view(desk.now).idle_because == "waiting for a task"
    desk.hears_epoch(desk.host.epoch("stopped"))
    assert desk.left is not None


# Two leaders at once.


def two_leaders(versions: int = 2) -> tuple[Desk, Host, Host]:
    """(desk, former, rightful): both made three versions more, each its own."""
    desk = joined(versions)
    former = desk.host
    rightful = former.other(2, DELEGATE)
    former.grow(3)
    desk.host = rightful
    desk.hears_epoch()
    rightful.grow(3)
    says_hello_now(desk)
    assert former.digest() != rightful.digest()
    return desk, former, rightful


def digest_of(desk: Desk) -> bytes:
    following = desk.session.replica
    assert following is not None
    return following.points[following.version].digest


def hears_updates(desk: Desk, host: Host, *versions: int) -> None:
    for version in versions:
        desk.hears(topics.update(host.run), host.update(version))


@pytest.mark.parametrize("first", ["former", "rightful"])
@pytest.mark.parametrize("kind", ["update", "in"])
def test_of_two_updates_for_one_version_that_of_the_later_epoch_is_applied(first, kind):
    desk, former, rightful = two_leaders()
    topic = desk.inbox if kind == "in" else topics.update(former.run)
    for version in (2, 3, 4):
        order = (former, rightful) if first == "former" else (rightful, former)
        for host in order:
            desk.hears(topic, host.update(version))
    assert ignored(desk) == 3
    assert desk.session.view(desk.now).version == 5
    assert digest_of(desk) == rightful.digest()
    assert "dropping" not in desk.warnings
    assert "goes on" not in desk.warnings


@settings(max_examples=25, deadline=None)
@given(
    st.permutations([(False, 2), (False, 3), (False, 4), (True, 2), (True, 3), (True, 4)]),
    st.sets(st.integers(0, 5)),
)
def test_in_whatever_order_two_leaders_speak_the_rightful_one_is_followed(order, again):
    desk, former, rightful = two_leaders()
    for at, (is_rightful, version) in enumerate(order):
        host = rightful if is_rightful else former
        hears_updates(desk, host, *[version] * (1 + (at in again)))
        if not is_rightful:
            desk.hears_epoch(former.epoch())
    assert digest_of(desk) == rightful.digest()
    assert desk.abandoned == []
    assert desk.left is None


def test_updates_of_earlier_epochs_are_what_catching_up_brings():
    host = appointing(3)
    second = host.other(2, DELEGATE)
    second.grow(2)
    third = second.other(3)
    third.grow(1)
    desk = Desk(third)
    desk.welcomed()
    for version in range(6):
        desk.hears(desk.inbox, third.update(version))
    assert desk.session.view(desk.now).version == 6
    assert digest_of(desk) == third.digest()
    assert ignored(desk) == 0


def test_who_led_before_is_not_followed_even_by_who_came_late():
    """To a newcomer the epoch begins where the run is by now."""
    founder = appointing(2)
    rightful = founder.other(2, DELEGATE)
    founder.grow(3)
    rightful.grow(3)
    desk = Desk(rightful)
    desk.welcomed()
    for version in range(5):
        hears_updates(desk, founder, version)
        desk.hears(desk.inbox, rightful.update(version))
    assert ignored(desk) == 5
    assert digest_of(desk) == rightful.digest()
    assert "dropping" not in desk.warnings


def test_what_a_former_leader_made_meanwhile_is_undone_once_the_later_one_is_heard():
    desk = joined(2)
    former = desk.host
    rightful = former.other(2, DELEGATE)
    former.grow(2)
    hears_updates(desk, former, 2, 3)
    assert desk.session.view(desk.now).version == 4
    desk.host = rightful
    desk.hears_epoch()
    says_hello_now(desk)
    assert desk.session.view(desk.now).version == 4  # nothing says yet that this is not the run's
    rightful.grow(3)
    hears_updates(desk, rightful, 2)
    assert "dropping our state" in desk.warnings
    for _ in range(2 * MISMATCHES):
        for version in range(5):
            desk.hears(desk.inbox, rightful.update(version))
    assert desk.session.view(desk.now).version == 5
    assert digest_of(desk) == rightful.digest()
    assert desk.left is None


def test_the_earliest_announcement_of_an_epoch_says_where_it_begins():
    desk = joined(2)
    former = desk.host
    rightful = former.other(2, DELEGATE)
    former.grow(1)
    early = rightful.epoch()
    rightful.grow(2)
    desk.host = rightful
    desk.hears_epoch()
    desk.hears_epoch(early)  # which the broker kept and delivers late
    hears_updates(desk, former, 2)
    assert ignored(desk) == 1
    assert desk.session.view(desk.now).version == 2


def test_another_history_shows_at_the_announcement_where_that_proves_it():
    desk = joined(2)
    former = desk.host
    rightful = former.other(2, DELEGATE)
    former.grow(1)
    hears_updates(desk, former, 2)
    rightful.grow(1)
    desk.host = rightful
    desk.hears_epoch()
    assert "dropping our state" in desk.warnings
    says_hello_now(desk)
    for version in range(3):
        desk.hears(desk.inbox, rightful.update(version))
    assert digest_of(desk) == rightful.digest()


def test_an_update_of_an_epoch_that_nobody_announced_waits_for_its_announcement():
    desk = joined(1)
    later = desk.host.other(2, DELEGATE)
    later.grow(1)
    hears_updates(desk, later, 1)
    assert ignored(desk) == 1
    assert desk.session.view(desk.now).version == 1
    desk.host = later
    desk.hears_epoch()
    says_hello_now(desk)
    hears_updates(desk, later, 1)
    assert digest_of(desk) == later.digest()


# Nothing is lost, whatever happens.

EVENTS = ["task", "task", "evaluated", "evaluated", "answer", "epoch", "welcome", "old epoch"]
EVENTS += ["forged end", "lost", "time", "long time", "disconnect", "connect", "paused"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(EVENTS), min_size=15, max_size=50), st.data())
def test_every_task_is_answered_to_whoever_leads_in_the_end(events, data):
    desk = joined()
    founder = desk.host
    given: set[bytes] = set()
    answered: set[bytes] = set()
    connected = True

    def welcome() -> None:
        if hellos := desk.hellos():
            desk.hears(desk.inbox, desk.host.welcome(hellos[-1].topic, hellos[-1].payload))

    for event in events:
        agreed = desk.session.handshake.agreed and connected
        if event == "task" and agreed and len(given) < 30:
            task = desk.host.task(first=2 * len(given))
            given.add(task.token)
            desk.is_told(task)
        elif event == "evaluated" and desk.jobs:
            desk.finishes()
        elif event == "answer" and agreed:
            for result in desk.told(messages.Result):
                if data.draw(st.booleans()):
                    answered.add(result.token)
                    desk.is_told(messages.Acknowledge((result.task,), "accepted"))
        elif event == "epoch" and connected:
            desk.host = desk.host.other(
                desk.host.number + 1, data.draw(st.sampled_from([None, DELEGATE, SECOND]))
            )
            desk.hears_epoch()
        elif event == "welcome" and connected:
            welcome()
        elif event == "old epoch" and connected and desk.host.number > 1:
            desk.hears_epoch(founder.epoch(data.draw(st.sampled_from(["running", "stopped"]))))
        elif event == "forged end" and connected:
            desk.hears_epoch(desk.host.other(desk.host.number + 5, STRANGER).epoch("finished"))
        elif event == "lost" and connected:
            desk.hears_beat(desk.host.beat("lost"))
        elif event == "paused" and connected:
            desk.hears_epoch(desk.host.epoch("paused", reason="the disk is full"))
        elif event in ("time", "long time"):
            desk.pass_time(3.0 if event == "time" else 40.0, beats=event == "time" and connected)
        elif event == "disconnect":
            connected = False
            desk.obey(desk.session.disconnected(desk.now))
        elif event == "connect" and not connected:
            connected = True
            desk.connected()
    assert desk.left is None
    if not connected:
        desk.connected()
    desk.sent.clear()
    desk.host = desk.host.other(desk.host.number + 1, DELEGATE)
    desk.hears_epoch()
    hello = says_hello_now(desk)
    assert {held.token for held in hello.held} == given - answered
    while desk.jobs:
        desk.finishes()
    assert {result.token for result in desk.told(messages.Result)} == given - answered
    assert desk.told(messages.Refusal) == []


# The words of the handshake themselves.


def test_a_handshake_signs_what_it_holds_and_reached():
    host = host_of()
    worker = Identity(b"w" * 32)
    handshake = Handshake(host.run, worker, "aaaabb")
    assert handshake.hear_epoch(host.epoch())
    held = messages.Held(1, "members", 0, 0, 2, 1, b"t" * 16)
    payload = handshake.hello(Introduction("tester", "cpu x1"), 2, 17, (held,))
    hello = open_signed(payload, worker.public_key, "hello", (host.run, "aaaabb"))
    assert isinstance(hello, messages.Hello)
    assert (hello.version, hello.held) == (17, (held,))
    assert handshake.leadership() == fingerprint(host.identity.public_key)
    assert handshake.spec == SPEC

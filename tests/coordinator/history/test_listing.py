from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from coordinator import host
from coordinator.history.keys import rotate
from coordinator.history.listing import HEADER, lines
from coordinator.history.past import opened
from coordinator.log import DamagedError
from protocol.identity import Identity, fingerprint
from protocol.state import State, params_hash
from tests.coordinator.history.conftest import UPDATES, lead


def test_each_update_is_told_by_the_version_that_it_leads_to(
    run_dir: Path, states: list[State]
) -> None:
    with opened(run_dir) as past:
        told = [line.to_json() for line in lines(past)]
    key = Identity.load(run_dir / "run.key").fingerprint
    assert [each["version"] for each in told] == list(range(1, UPDATES + 1))
    assert [each["params_hash"] for each in told] == [params_hash(s.theta) for s in states[1:]]
    assert [each["version"] for each in told if each["state_digest"]] == [64]
    assert {(each["epoch"], each["signed_by"], each["rank"]) for each in told} == {(1, key, 0)}
    judged = {each["version"]: each["centre_return"] for each in told}
    assert (judged[10], judged[11], told[9]["centre_episodes"]) == (4.5, None, 4)
    assert told[9] | {"time": 0, "bytes": 0} == {
        "version": 10,
        "time": 0,
        "seconds": 10.0,
        "members": 32,
        "late": 0,
        "dropped": 0,
        "reverts": False,
        "workers": 1,
        "centre_return": 4.5,
        "centre_episodes": 4,
        "params_hash": params_hash(states[10].theta),
        "state_digest": None,
        "epoch": 1,
        "signed_by": key,
        "rank": 0,
        "bytes": 0,
        "amendments": {},
    }


def test_columns_stand_below_their_names_on_a_narrow_terminal(run_dir: Path) -> None:
    with opened(run_dir) as past:
        told = [line.to_text() for line in lines(past, 20)]
    assert len(told) == 20 and len({len(line) for line in told}) == 1
    assert all(len(line) <= 100 for line in (HEADER, *told))
    assert told[-1].index("run key") == HEADER.index("signed by")


def test_later_epoch_has_its_signer(run_dir: Path) -> None:
    rotated = rotate(run_dir)
    lead(host.resume(run_dir), 2)
    with opened(run_dir) as past:
        last = list(lines(past, 3))
    assert [line.update.epoch for line in last] == [1, 3, 3]
    assert fingerprint(last[-1].signer) == rotated.identity.fingerprint
    assert fingerprint(last[0].signer) != rotated.identity.fingerprint


def test_more_lines_than_there_are_is_all_of_them(run_dir: Path) -> None:
    with opened(run_dir) as past:
        assert len(list(lines(past, 999))) == UPDATES


def test_damage_is_named_after_what_could_be_told(run_dir: Path) -> None:
    connection = sqlite3.connect(run_dir / "log.sqlite")
    connection.execute("UPDATE updates SET payload = zeroblob(9) WHERE version = 30")
    connection.commit()
    connection.close()
    told = []
    with opened(run_dir) as past, pytest.raises(DamagedError) as caught:
        for line in lines(past):
            told.append(line.version)
    assert told == list(range(1, 31)) and caught.value.version == 30

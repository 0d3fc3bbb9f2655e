from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from worker import places
from worker.beginning import NotWanted, take_place
from worker.console import PlainConsole
from worker.places import PlaceError, neighbours, plain, take
from worker.wishes import NOTHING

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="locks of Unix")
ROOT = Path(__file__).parents[2]
TAKES = """
import sys
from pathlib import Path
from worker.places import take
place = take(Path(sys.argv[1]), sys.argv[2])
place.socket.touch()
print(place.name, flush=True)
sys.stdin.read()
"""


def holder(home: Path, name: str = "") -> subprocess.Popen[str]:
    """Another process that takes a place."""
    return subprocess.Popen(
        [sys.executable, "-c", TAKES, str(home), name],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_place_that_can_not_be_looked_at_hides_no_other(tmp_path: Path) -> None:
    """As that of a worker which was once started by root."""
    ours = take(tmp_path, "b")
    assert ours is not None
    for name in "ac":
        (ours.folder / f"{name}.lock").symlink_to(tmp_path / "nowhere")
    assert [(place.name, place.pid) for place in neighbours(tmp_path)] == [("b", os.getpid())]
    ours.leave()


def test_each_process_has_a_place_of_its_own_and_the_dead_leave_theirs(tmp_path: Path) -> None:
    ours = take(tmp_path, "")
    assert ours is not None and ours.name == "worker"
    with holder(tmp_path) as other:
        assert other.stdout is not None
        try:
            assert other.stdout.readline() == "worker-2\n"
            assert [(place.name, place.pid) for place in neighbours(tmp_path)] == [
                ("worker", os.getpid()),
                ("worker-2", other.pid),
            ]
            assert take(tmp_path, "alpha") is not None
        finally:
            other.kill()
            other.wait()
    (stale,) = [place for place in neighbours(tmp_path) if place.name == "worker-2"]
    assert stale.pid == 0 and stale.socket.exists()
    second = take(tmp_path, "")
    assert second is not None and second.name == "worker-2"
    assert not second.socket.exists(), "what a dead one left is gone"
    ours.leave()
    again = take(tmp_path, "")
    assert again is not None and again.name == "worker"


def test_only_its_owner_may_look(tmp_path: Path) -> None:
    place = take(tmp_path / "home", "")
    assert place is not None
    place.keep(NOTHING.pause(None, 1.0))
    assert place.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in place.folder.iterdir()} == {0o600}


def test_words_are_kept_at_a_place_and_gone_when_nothing_is_wished(tmp_path: Path) -> None:
    place = take(tmp_path, "a b/../c")
    assert place is not None and place.name == "a-b-..-c"
    wishes = NOTHING.finish(5.0)
    place.keep(wishes)
    place.leave()
    (seen,) = neighbours(tmp_path)
    assert seen.wishes() == wishes
    seen.keep(NOTHING)
    assert seen.wishes() == NOTHING
    assert [path.name for path in place.folder.iterdir()] == [f"{place.name}.lock"]


@pytest.mark.parametrize("content", [b"", b"\xff", b"{" * 5000, b'{"paused": "yes"}'])
def test_damaged_words_are_no_words(tmp_path: Path, content: bytes) -> None:
    place = take(tmp_path, "")
    assert place is not None
    (place.folder / "worker.json").write_bytes(content)
    (place.folder / "worker.lock").write_bytes(content)
    assert place.wishes() == NOTHING
    assert [found.pid for found in neighbours(tmp_path)] == [0]


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("", "worker"),
        ("..", "worker"),
        ("Ann's box", "Ann-s-box"),
        ("é", "worker"),
        ("x" * 99, "x" * 40),
    ],
)
def test_names_that_files_can_have(name: str, place: str) -> None:
    assert plain(name) == place


def test_a_home_that_can_not_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / places.FOLDER).write_text("a file")
    with pytest.raises(PlaceError, match=r"can't be used .*: see to its rights, or give another"):
        take(tmp_path, "")
    stream = io.StringIO()
    assert take_place(tmp_path, "", PlainConsole(stream), by_hand=False) is None
    assert "`shoal worker` can't reach this worker" in stream.getvalue()


def test_who_was_told_to_finish_begins_for_a_person_only(tmp_path: Path) -> None:
    console = PlainConsole(io.StringIO())
    place = take(tmp_path, "")
    assert place is not None
    place.keep(NOTHING.finish(5.0))
    place.leave()
    with pytest.raises(NotWanted, match=r"begins again after `shoal worker resume --name worker`"):
        take_place(tmp_path, "", console, by_hand=False)
    begun = take_place(tmp_path, "", console, by_hand=True)
    assert begun is not None and begun.wishes() == NOTHING

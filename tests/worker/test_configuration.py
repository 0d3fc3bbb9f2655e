from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ShoalError
from worker.cli import join
from worker.config_command import settled, shown
from worker.configuration import (
    ELSEWHERE,
    Option,
    Value,
    beside,
    changed,
    judged,
    named,
    options_of,
    parsed,
    read,
    written,
)
from worker.join_options import CHECKS

ROOT = Path(__file__).parents[2]
OPTIONS = options_of(join)
BY_NAME = {option.name: option for option in OPTIONS}
TOKEN = "shoal-invite-" + "a" * 52

PRINTABLE = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20)


def values(option: Option) -> st.SearchStrategy[Value]:
    """Values that an option's kind and bounds admit."""
    if option.choices:
        return st.sampled_from(option.choices)
    low, high = option.lowest, option.highest
    numbers = st.integers(int(low or 0), int(high if high is not None else 10**9))
    kinds: dict[type, st.SearchStrategy[Value]] = {
        bool: st.booleans(),
        int: numbers,
        float: st.floats(low, high, allow_nan=False, allow_infinity=False),
        list: st.lists(PRINTABLE, max_size=3),
        str: PRINTABLE,
    }
    return kinds[option.kind]


SAID = st.fixed_dictionaries({}, optional={option.name: values(option) for option in OPTIONS})


def shoal(*arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    return subprocess.run(
        [sys.executable, "-m", "shoal", *arguments],
        cwd=ROOT,
        env={**clean, "SHOAL_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_table_has_every_option_of_the_command():
    taken = set(join.__annotations__) - {"return", "ctx", *ELSEWHERE}
    assert {option.name for option in OPTIONS} == taken
    assert BY_NAME["url"].variable == "SHOAL_JOIN"
    assert BY_NAME["cpu_share"].variable == "SHOAL_CPU_SHARE"
    assert BY_NAME["lanes"].rule == "a whole number from 1 to 1,024"
    assert BY_NAME["log_format"].choices == ("auto", "plain", "json")
    assert BY_NAME["allow_module"].kind is list
    assert set(CHECKS) <= taken


@given(SAID)
def test_what_is_written_is_read_as_it_was(said):
    assert read(written(OPTIONS, said), OPTIONS, {}, "file") == said


@given(SAID, st.data())
def test_a_change_changes_one_option_alone(said, data):
    option = data.draw(st.sampled_from(OPTIONS))
    value = data.draw(values(option))
    before = written(OPTIONS, said)
    after = changed(before, option, value)
    assert read(after, OPTIONS, {}, "file") == said | {option.name: value}
    assert len(after.splitlines()) == len(before.splitlines())


def test_a_change_keeps_what_a_person_wrote():
    text = "# mine\ncores = 2 # two\n\n[other]\n"
    assert changed(text, BY_NAME["cores"], "all") == '# mine\ncores = "all"\n\n[other]\n'
    with pytest.raises(ShoalError, match="allow-module is more than a line there"):
        changed('allow-module = [\n"a",\n]\n', BY_NAME["allow_module"], ["b"])


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_a_line(text):
    try:
        read(text, OPTIONS, CHECKS, "file")
    except ShoalError as error:
        assert str(error).startswith("file")
        assert str(error).isprintable()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("core = 2", "line 3: unknown option 'core': did you mean cores?"),
        ("warp = 9", "line 3: unknown option 'warp': there are url, name, "),
        ("lanes = 0", "line 3: lanes is 0: it must be a whole number from 1 to 1,024"),
        ("lanes = true", "line 3: lanes is true: it must be a whole number"),
        ("once = 1", "line 3: once is 1: it must be true or false"),
        ("allow-module = 'a'", "line 3: allow-module is 'a': it must be a list of texts"),
        ("log-format = 'xml'", "line 3: log-format is 'xml': it must be one of auto, plain, json"),
        ("cores = 'many'", "line 3: --cores 'many': must be all, auto, or a number from 1"),
        ("url = 'http://host'", "line 3: 'http://host' does not begin with mqtt://"),
        ("invite = 'secret'", "line 3: the invite .* is none"),
        ("invite = 7", "line 3: the invite .* is none"),
        ("[lanes]", "line 3: lanes is {}: it must be a whole number"),
        ("cpu-share = '1'\ncpu_share = '1'", "line 3: cpu-share is said twice"),
        ("cores = ", "line 3"),
        ("name = " + "1" * 5000, "a line is like cores = 2"),
    ],
)
def test_a_mistake_is_one_line_with_its_place_and_the_rule(line, words):
    with pytest.raises(ShoalError, match=f"^w.toml.*{words}") as error:
        read(f"# mine\nnice = 3\n{line}\n", OPTIONS, CHECKS, "w.toml")
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_numbers_may_be_written_where_texts_are_due():
    assert read("cores = 1\ncpu_share = 0.5", OPTIONS, CHECKS, "") == {
        "cores": "1",
        "cpu_share": "0.5",
    }


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("once", "Yes", True),
        ("once", "0", False),
        ("lanes", "8", 8),
        ("task-limit", "90", 90.0),
        ("allow_module", "a, b c", ["a", "b", "c"]),
        ("name", "1", "1"),
    ],
)
def test_what_is_typed_becomes_what_the_option_has(key, text, value):
    option = named(key, OPTIONS)
    assert judged(option, parsed(option, text), CHECKS, "here") == value


def test_a_token_goes_to_the_broker_alone_that_it_is_kept_for():
    said = {"url": "mqtts://host:8883/test-00000000", "invite": TOKEN, "cores": "1"}
    assert beside(said, None) == said
    assert beside(said, "mqtts://host") == said
    for other in ("mqtts://host:1", "mqtts://other", "mqtt://host"):
        assert beside(said, other) == {"url": said["url"], "cores": "1"}
    assert beside({"invite": TOKEN}, "mqtts://host") == {"invite": TOKEN}


def test_who_says_an_option_is_told_and_secrets_are_not():
    found = settled(OPTIONS, {"SHOAL_CORES": "2"}, {"cores": "1", "nice": 3, "invite": TOKEN})
    assert found["cores"] == ("2", "SHOAL_CORES")
    assert found["nice"] == (3, "file")
    assert found["credit"] == (2, "default")
    assert shown(BY_NAME["invite"], TOKEN) == "***"
    assert shown(BY_NAME["url"], "mqtt://me:word@host") == "mqtt://me:***@host:1883"
    assert shown(BY_NAME["proxy"], "http://me:word@host:3128") == "http://***@host:3128"


def test_a_flag_goes_before_the_environment_that_before_the_file(tmp_path):
    def lanes(*flags: str, **environment: str) -> str:
        # The first that is out of bounds is named with where it is said.
        url = "mqtt://127.0.0.1:1"
        return shoal("join", url, "--once", *flags, home=tmp_path, **environment).stderr

    (tmp_path / "worker.toml").write_text("lanes = 9999\n")
    assert lanes().startswith(f"error: {tmp_path}/worker.toml, line 1: lanes is 9999")
    (tmp_path / "worker.toml").write_text("cores = 1\nonce = true\nurl = 'mqtt://127.0.0.1:1'\n")
    assert "SHOAL_LANES in the environment: lanes is '0'" not in lanes(SHOAL_LANES="1")
    assert "SHOAL_LANES in the environment: lanes is 0" in lanes(SHOAL_LANES="0")
    from_file = shoal("join", home=tmp_path)
    assert from_file.returncode == 5, from_file.stderr
    assert "broker unreachable at mqtt://127.0.0.1:1" in from_file.stderr
    elsewhere = shoal("join", home=tmp_path, SHOAL_JOIN="mqtt://127.0.0.1:2")
    assert "broker unreachable at mqtt://127.0.0.1:2" in elsewhere.stderr
    flag = shoal("join", "mqtt://127.0.0.1:3", home=tmp_path, SHOAL_JOIN="mqtt://127.0.0.1:2")
    assert "broker unreachable at mqtt://127.0.0.1:3" in flag.stderr
    missing = shoal("join", "--config", "/nowhere.toml", home=tmp_path)
    assert missing.returncode == 2
    assert "there is no such file" in missing.stderr


def test_a_configuration_that_is_a_link_stays_one(tmp_path):
    file, home = tmp_path / "elsewhere.toml", tmp_path / "home"
    home.mkdir()
    file.write_text("cores = 1\n")
    (home / "worker.toml").symlink_to(file)
    assert shoal("worker", "config", "set", "nice", "3", home=home).returncode == 0
    assert (home / "worker.toml").is_symlink() and "nice = 3" in file.read_text()


def test_the_command_writes_shows_and_changes_the_file(tmp_path):
    file = tmp_path / "home" / "worker.toml"
    made = shoal("worker", "config", "--init", home=file.parent)
    assert made.returncode == 0, made.stderr
    assert file.stat().st_mode & 0o777 == 0o600
    assert tomllib.loads(file.read_text()) == {}
    assert '# cores = "1"' in file.read_text()
    again = shoal("worker", "config", "--init", home=file.parent)
    assert again.returncode == 2
    assert "exists" in again.stderr
    for key, value in (("cores", "1"), ("invite", TOKEN)):
        done = shoal("worker", "config", "set", key, value, home=file.parent)
        assert done.returncode == 0, done.stderr
        assert TOKEN not in done.stdout + done.stderr
    assert tomllib.loads(file.read_text()) == {"cores": "1", "invite": TOKEN}
    assert file.stat().st_mode & 0o777 == 0o600
    listed = shoal("worker", "config", home=file.parent, SHOAL_NICE="3")
    assert TOKEN not in listed.stdout
    rows = [line.split() for line in listed.stdout.splitlines()]
    assert ["cores", "1", "file"] in rows
    assert ["invite", "***", "file"] in rows
    assert ["nice", "3", "SHOAL_NICE"] in rows
    assert ["credit", "2", "default"] in rows
    assert shoal("worker", "config", "--path", home=file.parent).stdout == f"{file}\n"
    other = tmp_path / "other"
    for flags in (("--home", str(other), "set"), ("set", "--home", str(other))):
        done = shoal("worker", "config", *flags, "lanes", "4", home=file.parent)
        assert done.returncode == 0, done.stderr
        assert tomllib.loads((other / "worker.toml").read_text()) == {"lanes": 4}
        (other / "worker.toml").unlink()
    wrong = shoal("worker", "config", "set", "lanes", "many", home=file.parent)
    assert wrong.returncode == 2
    assert "lanes is 'many': it must be a whole number from 1 to 1,024" in wrong.stderr

"""What a volunteer may configure, as a table, and the file that says it. Pure."""

from __future__ import annotations

import difflib
import inspect
import json
import re
import textwrap
import tomllib
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from protocol.address import parse_address
from protocol.errors import ShoalError
from protocol.figures import printable

LARGEST_FILE = 64 * 1024
"""Bytes of a configuration."""
LONGEST_VALUE = 60
"""Characters of a wrong value that are shown."""
PREFIX = "SHOAL_"
ELSEWHERE = ("config", "home", "exit_with_parent")
"""What no file can say: where it lies, and what only the program that starts a worker knows."""
SECRET = ("invite",)
"""Never shown."""

WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
"""What a text says where yes or no is asked."""

Value = str | int | float | bool | list[str]


@dataclass(frozen=True, slots=True)
class Option:
    """One thing that `shoal join` may be told.

    Attributes:
        name: as the command's parameter, `cpu_share`.
        kind: `str`, `int`, `float`, `bool` or `list`.
        default: what holds where nothing is said; None where that is nothing, or is found out.
        variable: of the environment.
        choices: all that a text may be, where they are few.
    """

    name: str
    kind: type
    default: Value | None
    help: str
    variable: str
    lowest: float | None = None
    highest: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """How a file calls it: as the flag, without its dashes in front."""
        return self.name.replace("_", "-")

    @property
    def secret(self) -> bool:
        """Whether nobody may see its value."""
        return self.name in SECRET

    @property
    def rule(self) -> str:
        """What a value must be, after the words "must be"."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        words = {str: "text", bool: "true or false", list: "a list of texts"}
        if self.kind in words:
            return words[self.kind]
        number = "a whole number" if self.kind is int else "a number"
        low, high = self.lowest, self.highest
        if low is not None and high is not None:
            return f"{number} from {low:,g} to {high:,g}"
        return number if low is None else f"{number}, at least {low:,g}"

    def admits(self, value: object) -> bool:
        """Whether a value is of the kind that it must be, and within its bounds."""
        if self.kind is list:
            return isinstance(value, list) and all(isinstance(item, str) for item in value)
        if self.kind in (int, float):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not (whole or (self.kind is float and isinstance(value, float))):
                return False
            number = typing.cast(float, value)
            low = float("-inf") if self.lowest is None else self.lowest
            high = float("inf") if self.highest is None else self.highest
            return low <= number <= high
        return isinstance(value, self.kind) and (not self.choices or value in self.choices)


Check = Callable[[str], object]
"""Reads the text of a value; raises ShoalError where it says nothing."""


def options_of(command: Callable[..., Any]) -> tuple[Option, ...]:
    """What a command takes that a file may say too, in the order of its parameters."""
    hints = typing.get_type_hints(command, include_extras=True)
    return tuple(
        _option(name, hints[name], parameter.default)
        for name, parameter in inspect.signature(command).parameters.items()
        if name not in ELSEWHERE and typing.get_origin(hints[name]) is typing.Annotated
    )


def read(
    text: str, options: tuple[Option, ...], checks: Mapping[str, Check], where: str
) -> dict[str, Value]:
    """What a file says, by the names of options. Raises ShoalError that names the line."""
    try:
        table = tomllib.loads(text)
    except ValueError as error:  # an integer of thousands of digits among them
        raise ShoalError(
            f"{where}: {printable(str(error))}: a line is like cores = 2, a text is in quotes"
        ) from None
    except RecursionError:
        raise ShoalError(f"{where} has values too deep in one another: it needs no level") from None
    known = {option.name: option for option in options}
    found: dict[str, Value] = {}
    for key, value in table.items():
        line = f"{where}, line {_line_of(key, text)}"
        option = known.get(key.replace("-", "_"))
        if option is None:
            raise ShoalError(f"{line}: {_unknown(key, options)}")
        if option.name in found:
            raise ShoalError(f"{line}: {option.key} is said twice: leave one of them out")
        found[option.name] = judged(option, value, checks, line)
    return found


def beside(said: Mapping[str, Value], url: str | None) -> dict[str, Value]:
    """What a file says to somebody who joins at `url`, which was said elsewhere: a token that it
    has beside an address is for that broker, and no other one gets to see what it is there."""
    own = said.get("url")
    if url is None or own is None or _broker(url) == _broker(str(own)):
        return dict(said)
    return {name: value for name, value in said.items() if name != "invite"}


def judged(option: Option, value: Any, checks: Mapping[str, Check], where: str) -> Value:
    """A value that its option may have. Raises ShoalError that says where it is."""
    if option.kind is str and not option.choices and type(value) in (int, float):
        value = str(value)  # cores = 2
    if not option.admits(value):
        shown = "" if option.secret else f" is {_shown(value)}"
        raise ShoalError(f"{where}: {option.key}{shown}: it must be {option.rule}")
    check = checks.get(option.name)
    if check is not None:
        try:
            check(str(value))
        except ShoalError as error:
            raise ShoalError(f"{where}: {error}") from None
    return typing.cast(Value, value)


def parsed(option: Option, text: str) -> object:
    """A value that is typed as text, as what its option has; the text where it is none."""
    if option.kind is list:
        return [part for part in re.split(r"[,\s]+", text) if part]
    if option.kind is bool:
        return WORDS.get(text.lower(), text)
    if option.kind in (int, float):
        try:
            return option.kind(text)
        except ValueError:
            return text
    return text


def named(key: str, options: tuple[Option, ...]) -> Option:
    """The option of that name. Raises ShoalError with what may have been meant."""
    for option in options:
        if option.key == key.replace("_", "-"):
            return option
    raise ShoalError(_unknown(key, options))


def written(options: tuple[Option, ...], values: Mapping[str, Value]) -> str:
    """A file with every option: those in `values` are said, of the others what would hold."""
    parts = [
        "# What `shoal join` takes from here. A flag and the environment go before it;\n"
        "# the variable of an option is named beside it. `shoal worker config` shows what holds.\n"
    ]
    for option in options:
        about = textwrap.fill(
            f"{option.help} ({option.variable})",
            width=98,
            initial_indent="# ",
            subsequent_indent="# ",
            break_on_hyphens=False,
        )
        parts.append(f"\n{about}\n{_line(option, values.get(option.name))}\n")
    return "".join(parts)


def changed(text: str, option: Option, value: Value) -> str:
    """The file with one option said anew, and all else in it as it was.

    Raises ShoalError where that can't be told from its lines.
    """
    line = _line(option, value)
    said = re.compile(rf"^[ \t]*{_spelt(option.name)}[ \t]*=.*$", re.MULTILINE)
    silent = re.compile(rf"^#[ \t]*{re.escape(option.key)} =.*$", re.MULTILINE)
    for pattern in (said, silent):
        after, count = pattern.subn(lambda _: line, text, count=1)
        if count:
            break
    else:
        after = f"{text.rstrip()}\n{line}\n".lstrip("\n")
    before = {key.replace("-", "_"): entry for key, entry in tomllib.loads(text).items()}
    try:
        now = {key.replace("-", "_"): entry for key, entry in tomllib.loads(after).items()}
    except ValueError:
        now = {}
    if now != before | {option.name: value}:
        raise ShoalError(f"{option.key} is more than a line there: change it with an editor")
    return after


def toml(value: Value) -> str:
    """A value as a file has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's too, but for one character that only TOML must escape.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(toml(item) for item in value)}]"
    return repr(value)


def _broker(url: str) -> tuple[str, int]:
    address = parse_address(url)
    return address.host, address.port


def _option(name: str, hint: Any, default: Any) -> Option:
    kind, about = typing.get_args(hint)[:2]
    kinds = [part for part in typing.get_args(kind) if part is not type(None)]
    if typing.get_origin(kind) is not list and kinds:
        kind = kinds[0]
    kind = typing.get_origin(kind) or kind
    choices: tuple[str, ...] = ()
    if issubclass(kind, StrEnum):
        choices, kind = tuple(kind), str
    elif issubclass(kind, Path):
        kind = str
    variable = about.envvar if isinstance(about.envvar, str) else PREFIX + name.upper()
    silent = default is None or default == "" or default is inspect.Parameter.empty
    return Option(
        name,
        kind,
        None if silent else str(default) if kind is str else default,
        " ".join((about.help or "").split()),
        variable,
        about.min,
        about.max,
        choices,
    )


def _line(option: Option, value: Value | None) -> str:
    """How a file says it, or in a comment what holds where it does not."""
    if value is not None:
        return f"{option.key} = {toml(value)}"
    if option.default is not None:
        return f"# {option.key} = {toml(option.default)}"
    examples: dict[type, str] = {str: '""', list: "[]"}
    return f"# {option.key} = {examples.get(option.kind, '')}".rstrip()


def _line_of(key: str, text: str) -> int:
    """The line that says a key, counted from 1."""
    said = re.search(rf"^[ \t]*(?:{_spelt(key)}|\[{re.escape(key)})\b", text, re.MULTILINE)
    return 1 if said is None else text.count("\n", 0, said.start()) + 1


def _spelt(name: str) -> str:
    """A pattern for all ways in which a key is written."""
    return "[\"']?" + "[_-]".join(map(re.escape, re.split("[_-]", name))) + "[\"']?"


def _unknown(key: str, options: tuple[Option, ...]) -> str:
    keys = [option.key for option in options]
    close = difflib.get_close_matches(key.replace("_", "-"), keys, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(keys)}"
    return f"unknown option {_shown(key)}: {hint}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = printable(repr(value))
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."

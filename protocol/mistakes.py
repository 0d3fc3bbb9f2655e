"""What is wrong with a field, in plain words: from msgspec's message to field, value and rule."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from protocol.figures import printable

LONGEST_VALUE = 60
"""Characters of a wrong value, or of a wrong name, that are shown."""

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_KEY = "key` in `"
_RULES = {
    ">=": "at least",
    ">": "more than",
    "<=": "at most",
    "<": "less than",
}


def explain(message: str, raw: Mapping[str, Any], model: type[msgspec.Struct]) -> str:
    """One line that names field, value and rule, of what msgspec said when `raw` was no `model`.

    Args:
        message: of the `msgspec.ValidationError`.
        raw: the plain values that were converted.
        model: what they should have been; a pattern's `description` says it in words.
    """
    # Names of fields may be a stranger's: whatever is in them, the line stays one line.
    return printable(_explained(message, raw, model))


def _explained(message: str, raw: Mapping[str, Any], model: type[msgspec.Struct]) -> str:
    rule, _, where = message.partition(" - at `")
    subject = ""
    if where.startswith(_KEY):
        subject, where = "a name in ", where.removeprefix(_KEY)
    keys = re.findall(r"[^.\[\]$`]+", where)
    path = _shown_path(keys)
    value, annotation, parent = _at(raw, model, keys)
    unknown = re.match(r"Object contains unknown field `(.*)`", rule, re.DOTALL)
    if unknown:
        known = sorted(_fields(annotation, value))
        close = difflib.get_close_matches(unknown[1], known, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"known here: {', '.join(known)}"
        return f"unknown field `{_join(path, unknown[1])}`: {hint}"
    missing = re.match(r"Object missing required field `(.*)`", rule)
    if missing:
        return f"`{_join(path, missing[1])}` is missing: add it"
    needed = _rule(rule, annotation)
    if rule.startswith("Invalid"):
        choices = _literals(annotation) or _tags(parent)
        needed = _either([repr(choice) for choice in choices])
    return f"{subject}{path or 'this'} is {_shown(value)}: must be {needed}"


def _at(raw: Any, annotation: Any, keys: list[str]) -> tuple[Any, Any, Any]:
    """The value at a path, its declared type, and the type of the table that holds it."""
    parent = None
    for key in keys:
        if isinstance(raw, Mapping):
            raw = raw.get(key)
        elif isinstance(raw, list | tuple) and key.isdigit() and int(key) < len(raw):
            raw = raw[int(key)]
        if not key.isdigit():  # what is declared of a list tells of its entries too
            annotation, parent = _field(annotation, key), annotation
    return raw, annotation, parent


def _field(annotation: Any, key: str) -> Any:
    """The declared type of a field of a section, or of one of several sections; else None."""
    for section in _sections(annotation):
        hints = get_type_hints(section, include_extras=True)
        if key in hints:
            return hints[key]
    return None


def _sections(annotation: Any) -> list[type[msgspec.Struct]]:
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return [annotation]
    return [section for part in get_args(annotation) for section in _sections(part)]


def _fields(annotation: Any, value: Any) -> list[str]:
    """The fields of a section; among several, of the one that the value's tag names."""
    sections = _sections(annotation)
    if len(sections) > 1 and isinstance(value, Mapping):
        sections = [s for s in sections if value.get(_tag(s)[0]) == _tag(s)[1]] or sections
    return [name for section in sections for name in section.__struct_fields__]


def _tag(section: type[msgspec.Struct]) -> tuple[str | None, Any]:
    config = section.__struct_config__
    return config.tag_field, config.tag


def _tags(annotation: Any) -> list[Any]:
    return [_tag(section)[1] for section in _sections(annotation)]


def _literals(annotation: Any) -> list[Any]:
    return list(get_args(annotation)) if get_origin(annotation) is Literal else []


def _rule(rule: str, annotation: Any) -> str:
    """What the value must be, after the words "must be"."""
    if "matching regex" in rule:
        return next(
            (text for pattern, text in _patterns(annotation) if repr(pattern) in rule), rule
        )
    multiple = re.search(r"that's a multiple of (\S+)", rule)
    if multiple:
        return f"a multiple of {multiple[1]}"
    exact = re.search(r"of length (\d+), got", rule)
    if exact:
        return f"{exact[1]} entries long"
    length = re.search(r"of length (\S+) (\S+)", rule)
    if length:
        unit = "characters" if "`str`" in rule else "entries"
        return f"{_RULES[length[1]]} {length[2]} {unit} long"
    bound = re.search(r" (>=|>|<=|<) (\S+)$", rule)
    if bound:
        return f"{_RULES[bound[1]]} {_number(bound[2])}"
    expected = re.match(r"Expected `(.*?)`", rule)
    if expected:
        kinds = [kind for kind in expected[1].split(" | ") if kind != "null"]
        return _either([_WORDS.get(kind, kind) for kind in kinds])
    return rule


def _patterns(annotation: Any) -> list[tuple[str, str]]:
    """Each pattern in a declared type, of entries too, with its description."""
    own = [meta for meta in get_args(annotation)[1:] if isinstance(meta, msgspec.Meta)]
    found = [(meta.pattern, meta.description) for meta in own if meta.pattern and meta.description]
    return found + [pair for part in get_args(annotation) for pair in _patterns(part)]


def _number(text: str) -> str:
    number = float(text)
    return f"{int(text):,}" if text.lstrip("-").isdigit() else f"{number:,.15g}"


def _either(choices: list[str]) -> str:
    return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"


def _shown(value: Any) -> str:
    shown = "true" if value is True else "false" if value is False else repr(value)
    return _shortened(shown)


def _shown_path(keys: list[str]) -> str:
    """Keys as people write them, `a.b[0]`; of a table with any names, the table alone."""
    path = ""
    for key in keys:
        if key.isdigit():
            path += f"[{key}]"
        else:
            path = _join(path, key)
    return path


def _join(path: str, key: str) -> str:
    key = _shortened(key)
    return f"{path}.{key}" if path else key


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."

"""Lays a volunteer's configuration under what the command line and the environment say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from protocol.errors import ShoalError
from worker.configuration import (
    LARGEST_FILE,
    PREFIX,
    Check,
    Option,
    Value,
    beside,
    judged,
    parsed,
    read,
)
from worker.home import configuration_file, home_of


def configured(options: tuple[Option, ...], checks: Mapping[str, Check]) -> type[TyperCommand]:
    """The class of a command whose options have values in a file, too."""

    class Configured(TyperCommand):
        """A flag goes before the environment, that before the file, that before the default."""

        def make_context(
            self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
        ) -> Any:
            extra.setdefault("auto_envvar_prefix", PREFIX.rstrip("_"))
            return super().make_context(info_name, args, parent, **extra)

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
            if not ctx.resilient_parsing and not given.get("help"):
                path = file_of(given.get("config"), given.get("home"), os.environ)
                said = load(path, options, checks)
                judge_environment(options, checks, os.environ)
                ctx.default_map = beside(said, given.get("url") or os.environ.get("SHOAL_JOIN"))
            return super().parse_args(ctx, args)

    return Configured


def file_of(
    config: str | Path | None, home: str | Path | None, environment: Mapping[str, str]
) -> Path:
    """The configuration that a command line and an environment name, which must exist where they
    do, or the usual one, which may."""
    named = config or environment.get(f"{PREFIX}CONFIG")
    if named:
        path = Path(named).expanduser()
        if not path.exists():
            raise ShoalError(
                f"--config {path}: there is no such file; shoal worker config --init makes one"
            )
        return path
    home = home or environment.get(f"{PREFIX}HOME")
    return configuration_file(home_of(Path(home) if home else None))


def judge_environment(
    options: tuple[Option, ...], checks: Mapping[str, Check], environment: Mapping[str, str]
) -> None:
    """Raises ShoalError where a variable has what its option can't be."""
    for option in options:
        if text := environment.get(option.variable):
            judged(option, parsed(option, text), checks, f"{option.variable} in the environment")


def load(path: Path, options: tuple[Option, ...], checks: Mapping[str, Check]) -> dict[str, Value]:
    """What a configuration says, nothing where there is none. Raises ShoalError."""
    text = text_of(path)
    return {} if text is None else read(text, options, checks, str(path))


def text_of(path: Path) -> str | None:
    """A configuration as it is, None where there is none. Raises ShoalError."""
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise ShoalError(f"{path} is no file: a configuration is one, in TOML")
        if path.stat().st_size > LARGEST_FILE:
            raise ShoalError(
                f"{path} is larger than {LARGEST_FILE >> 10} KiB, so it is no configuration: "
                "name another file with --config"
            )
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ShoalError(f"can't read {path}: {error}; mend it, or name another file") from None


def keep(file: Path, text: str) -> None:
    """Write a configuration, which only its owner may read: it may have a token. Raises
    ShoalError."""
    from protocol.disk import write_whole

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file.resolve(), text.encode())  # where it is a link, that stays one
    except OSError as error:
        raise ShoalError(
            f"can't write {file}: {error.strerror}; name another with --config, or make "
            "that directory writable"
        ) from None


def source_of(ctx: typer.Context, name: str) -> str:
    """Where a value came from: `flag`, `environment`, `file` or `default`."""
    source: Any = ctx.get_parameter_source(name)
    words = {"COMMANDLINE": "flag", "ENVIRONMENT": "environment", "DEFAULT_MAP": "file"}
    return "default" if source is None else words.get(source.name, "default")

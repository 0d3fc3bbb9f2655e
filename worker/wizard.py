"""The few questions of `shoal join` on a terminal that has no configuration yet."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from getpass import getpass
from pathlib import Path

from protocol.address import Address, parse_address
from protocol.cores import usable_cores
from protocol.errors import ShoalError
from protocol.identity import Identity
from protocol.invites import seed_of
from protocol.link import FatalLinkError
from protocol.nearby import Nearby
from protocol.surroundings import address_from_here
from worker import preflight
from worker.amounts import cores_granted
from worker.configuration import Option, Value, changed, written
from worker.configured import keep, text_of
from worker.console import harmless
from worker.names import label_of
from worker.nearby import look_around
from worker.visit import Visit, visit

LOCAL = "mqtt://127.0.0.1:1883"
ALL = "all"
"""What is typed for every run at a broker."""
LONGEST_NAME = 64
ASKED_FOR_TOKEN = ("credentials", "authorisation")
"""Why a broker refuses whom it does not know."""


class _AgainError(Exception):
    """The question is to be asked again; what is wrong has been said."""


@dataclass
class Wizard:
    """Asks, checks each answer, and says what is in order.

    Attributes:
        identity: the worker's; nothing is kept of it before the end.
        proxy: to go through.
        given: options that are said already, which are not asked for.
        answers: what is known so far, by the names of options.
    """

    identity: Identity
    proxy: str | None = None
    given: Collection[str] = ()
    answers: dict[str, Value] = field(default_factory=dict)

    def ask(self) -> dict[str, Value]:
        """All answers. Raises KeyboardInterrupt at Ctrl-C, and where the terminal is gone."""
        print("No run is configured here yet. Enter takes what is in brackets; Ctrl-C ends.")
        self._ask_where()
        if "cores" not in self.given:
            self.answers["cores"] = self._cores()
        if "name" not in self.given and (name := self._name()):
            self.answers["name"] = name
        return self.answers

    # Where.

    def _ask_where(self) -> None:
        print("Looking for runs on the local network ...")
        try:
            nearby = asyncio.run(look_around())
        except ShoalError as error:
            print(f"  {error}")
            nearby = []
        for number, found in enumerate(nearby, 1):
            print(f"  {number}  {_described(found)}")
        default = "1" if nearby else LOCAL
        while True:
            question = "Address, or one of these numbers" if nearby else "The host's join line"
            typed = _line(f"{question} [{default}]: ") or default
            try:
                chosen = _chosen(typed, nearby)
                self._look(chosen, said_by_network=typed.isdigit())
            except ShoalError as error:
                print(f"  {error}")
                default = typed
            except _AgainError:
                default = typed
            else:
                return

    def _look(self, text: str, *, said_by_network: bool) -> None:
        """Visit it, as often as a token or a choice is still missing."""
        token = ""
        while True:
            address = address_from_here(text, self.proxy, invite=token or None)
            try:
                visited = asyncio.run(visit(address, self.identity))
            except FatalLinkError as error:
                if error.reason not in ASKED_FOR_TOKEN or address.user is not None:
                    raise
                print(f"  {error}" if token else "  This broker lets in only whom its host knows.")
                token = self._token()
                continue
            print(f"  {preflight.reached(address, visited.seconds)}")
            if visited.epoch is not None:
                self._confirm(visited, checked=_names_key(text) and not said_by_network)
                self._keep(_whole(text, visited.address), token)
                return
            run = self._run(visited)
            if run == ALL:
                self._keep(parse_address(text).with_credentials, token)
                return
            text = _with_run(text, run)

    def _keep(self, url: str, token: str) -> None:
        self.answers["url"] = url
        if token:
            self.answers["invite"] = token

    def _run(self, visited: Visit) -> str:
        """The name of the run that is chosen, or `ALL`."""
        if not visited.runs:
            print(f"  no run is led at {visited.address.broker}")
            raise _AgainError
        for number, here in enumerate(visited.runs, 1):
            print(f"  {number}  {here.run}  {harmless(here.environment)}")
        while True:
            typed = _line(f"Which run, or {ALL} of them in turn [1]: ") or "1"
            if typed == ALL:
                return ALL
            if typed.isdigit() and 1 <= int(typed[:4]) <= len(visited.runs):
                return visited.runs[int(typed) - 1].run
            print(f"  {typed[:40]!r}: it must be {ALL}, or a number from 1 to {len(visited.runs)}")

    def _confirm(self, visited: Visit, *, checked: bool) -> None:
        """Show who leads; where no join line of the host's said so, people compare the key."""
        assert visited.spec is not None
        spec = visited.spec
        print(
            f"  run {visited.address.run}: {harmless(spec.environment.id)}, "
            f"{spec.size:,} parameters"
        )
        print(f"  {preflight.accepted()}")
        if checked:
            print(f"  led by the key {visited.address.fingerprint}, as the join line says")
            return
        print(f"  led by the key {visited.address.fingerprint}")
        if not _agreed("Is that the key in the line that the host shows [y]: "):
            raise _AgainError

    def _token(self) -> str:
        while True:
            typed = _hidden("Token of the host (it is not shown) [none]: ")
            if not typed:
                raise _AgainError
            try:
                seed_of(typed)
            except ShoalError as error:
                print(f"  {error}")
            else:
                return typed

    # What.

    def _cores(self) -> str:
        usable = usable_cores()
        while True:
            typed = _line(f"Cores to lend: 1 to {usable}, all, or auto for all but one [auto]: ")
            try:
                cores_granted(typed or "auto", usable)
            except ShoalError as error:
                print(f"  {error}")
            else:
                return typed or "auto"

    def _name(self) -> str:
        """What was typed; nothing where the name of the key will do."""
        while True:
            typed = _line(f"Name that the host sees [{label_of(self.identity.worker)}]: ")
            if len(typed) <= LONGEST_NAME and typed.isprintable():
                return typed
            print(f"  a name has at most {LONGEST_NAME} characters, all of them printable")


def save(file: Path, options: tuple[Option, ...], answers: dict[str, Value]) -> None:
    """Keep the answers in the configuration, beside what it says already. Raises ShoalError."""
    text = text_of(file) or written(options, {})
    for option in options:
        if option.name in answers:
            text = changed(text, option, answers[option.name])
    keep(file, text)
    print(f"Saved in {file}; shoal worker config shows it, and shoal join begins with it.")


def _chosen(typed: str, nearby: list[Nearby]) -> str:
    """The address that was typed, in a whole join line perhaps, or that a number stands for."""
    if typed.isdigit():
        if not 1 <= int(typed[:4]) <= len(nearby):
            raise ShoalError(f"{typed[:40]!r}: give a join line, or a number that is listed")
        return str(nearby[int(typed) - 1].address)
    text = typed.rpartition("shoal join ")[2].split("  (")[0].strip()
    parse_address(text)
    return text


def _described(found: Nearby) -> str:
    token = ", asks for a token" if found.asks else ""
    return f"{found.environment}  {found.address.run} at {found.address.broker}{token}"


def _names_key(text: str) -> bool:
    return parse_address(text).fingerprint is not None


def _with_run(text: str, run: str) -> str:
    """The address that was typed, with the run that was chosen."""
    return dataclasses.replace(parse_address(text), run=run).with_credentials


def _whole(text: str, visited: Address) -> str:
    """The address that was typed, with the run and the key that were found."""
    typed = parse_address(text)
    found = dataclasses.replace(typed, run=visited.run, fingerprint=visited.fingerprint)
    return found.with_credentials


def _line(question: str) -> str:
    try:
        return input(question).strip()
    except EOFError:
        raise KeyboardInterrupt from None


def _hidden(question: str) -> str:
    try:
        return getpass(question).strip()
    except EOFError:
        raise KeyboardInterrupt from None


def _agreed(question: str) -> bool:
    while True:
        typed = _line(question).lower()
        if typed in ("", "y", "yes"):
            return True
        if typed in ("n", "no"):
            return False
        print("  y or n")

"""What a volunteer reads before the work begins, a line for each thing that is in order. Pure."""

from __future__ import annotations

from protocol.address import Address
from protocol.figures import span
from protocol.greeting import CLIENT_VERSION
from protocol.spec import PROTOCOL_VERSION, RunSpec


def reached(address: Address, seconds: float) -> str:
    """The broker answered, and how it proved who it is."""
    way = "" if address.proxy is None else " through the proxy"
    return f"broker reached{way} in {1000.0 * seconds:,.0f} ms; {proof(address)}"


def proof(address: Address) -> str:
    """What keeps others out of a connection."""
    if not address.tls:
        return "no TLS: whoever is on the way can read along"
    if address.certificate is not None:
        return "TLS, with the certificate of the join line"
    return "TLS, with a certificate of an authority that this machine trusts"


def accepted() -> str:
    """This version may take part."""
    return f"version {CLIENT_VERSION} is accepted (protocol {PROTOCOL_VERSION})"


CLOSE, FAR = 3.0, 300.0
"""Seconds by which clocks may differ without a word on it, and beyond which some things suffer."""


def clock(ahead: float) -> tuple[str, bool]:
    """How this machine's clock compares with the host's, `ahead` of it by so many seconds, and
    whether that is a warning: nothing of a run goes by clocks, but a volunteer's hours do, and so
    do certificates."""
    if abs(ahead) <= CLOSE:
        return "this machine's clock agrees with the host's", False
    differs = f"this machine's clock is {span(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'}"
    if abs(ahead) <= FAR:
        return f"{differs} the host's, which is no matter", False
    return (
        f"{differs} the host's: the run does not mind, but --schedule, --until and certificates go "
        "by it; see which of the two is wrong",
        True,
    )


TESTED = "its trial episodes"
"""Words of the line that tells of them."""


def tested(spec: RunSpec, numeric_class: bytes) -> str:
    """The run's environment is here, and what its trial episodes told."""
    if not numeric_class:
        return (
            f"{spec.environment.id} is here; {TESTED} went otherwise when they were "
            "played again, so others can't confirm returns of it exactly"
        )
    return (
        f"{spec.environment.id} is here; {TESTED}, played twice, agree "
        f"(class {numeric_class.hex()[:8]})"
    )

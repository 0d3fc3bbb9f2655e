"""Opens the way to a broker: TCP or a proxy, TLS where the address asks for it, a WebSocket."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast
from urllib.parse import urlsplit

from protocol.address import Address
from protocol.errors import ShoalError

PROXY_SCHEMES = ("http", "socks5", "socks4")
"""Proxies that we can go through: by CONNECT, or SOCKS; names are resolved by the proxy."""


class CertificateError(Exception):
    """The broker is not who it should be."""


class WayBarredError(OSError):
    """The proxy, or the WebSocket's server, does not let us through."""


async def dial(stream: asyncio.Protocol, address: Address, tls: ssl.SSLContext | None) -> None:
    """Connect `stream` to the broker: it then exchanges the bytes of MQTT alone.

    `tls`: instead of the system's certificate authorities; of no meaning where the address has
    the certificate's fingerprint. Raises CertificateError, OSError or UnicodeError.
    """
    loop = asyncio.get_running_loop()
    context = _context(address, tls) if address.tls else None
    inner: Any = stream
    if address.websocket:
        from protocol.websocket import WebSocket  # its library takes a moment to load

        inner = WebSocket(stream, address)
    try:
        if address.proxy is not None:
            sock = await _through(address.proxy, address)
            name = address.host if context else None
            transport, _ = await loop.create_connection(
                lambda: inner, sock=sock, ssl=context, server_hostname=name
            )
        else:
            transport, _ = await loop.create_connection(
                lambda: inner, address.host, address.port, ssl=context, happy_eyeballs_delay=0.25
            )
    except ssl.SSLCertVerificationError as error:
        raise CertificateError(
            f"{address.broker} does not prove its name ({error.verify_message}): "
            "give the whole join line, in which what follows the dot vouches for it; else check "
            "the host name, or trust its certificate authority (SSL_CERT_FILE names others)"
        ) from None
    try:
        if address.certificate is not None:
            _require_certificate(transport, address)
        if address.websocket:
            await inner.opened
    except BaseException:
        transport.abort()
        raise


def check_proxy(url: str) -> str:
    """The URL of a proxy that we can go through, as it is. Raises ShoalError, which never repeats
    credentials."""
    shown = url.rpartition("@")[2][:80]
    try:
        parts = urlsplit(url)
        usable = bool(parts.scheme in PROXY_SCHEMES and parts.hostname and parts.port)
    except ValueError:
        usable = False
    if not usable:
        raise ShoalError(
            f"proxy {shown!r}: it must be like http://host:3128 or socks5://host:1080, "
            "with user:password@ before the host where it asks for them"
        )
    return url


def _context(address: Address, given: ssl.SSLContext | None) -> ssl.SSLContext:
    if address.certificate is None:
        return given or ssl.create_default_context()
    # Names, dates and signatures prove nothing more to who knows the key.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _require_certificate(transport: asyncio.BaseTransport, address: Address) -> None:
    from protocol.certificate import certificate_fingerprint

    shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
    found = certificate_fingerprint(cast(bytes, shown))
    if found != address.certificate:
        raise CertificateError(
            f"{address.broker} has the certificate {found}, but the join line says "
            f"{address.certificate}: the line is mistyped, or somebody else answers there; "
            "ask the host for a new line"
        )


async def _through(proxy: str, address: Address) -> Any:
    """A socket to the broker by way of the proxy."""
    from python_socks import ProxyConnectionError, ProxyError
    from python_socks.async_.asyncio import Proxy

    try:
        return await Proxy.from_url(proxy, rdns=True).connect(address.host, address.port)
    except ProxyConnectionError:
        raise WayBarredError(f"the proxy {proxy.rpartition('@')[2]} can't be reached") from None
    except ProxyError as error:
        raise WayBarredError(f"the proxy says: {str(error)[:120]}") from None

"""TLS of a cluster: what its servers show, and what those who call them trust.

All processes of a cluster show one certificate. A caller expects the name by which it knows the cluster, whatever
address the call goes to: so a certificate for ``lab.example.org`` serves tablet servers on any interface and port.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fluss_lab.errors import InvalidPropertyError
from fluss_lab.rpc.grpc_module import grpc

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
#: Addresses that stand for all interfaces: servers listen on them, clients cannot call them.
WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104  # named, not bound
_HANDSHAKE_STEPS_MAX: Final = 8
_CERTIFICATE: Final = re.compile(r"-----BEGIN (X509 )?CERTIFICATE-----[^-]+-----END (X509 )?CERTIFICATE-----")


@dataclass(frozen=True, slots=True)
class Trust:
    """What a caller expects of a server with TLS.

    Attributes:
        ca: Certificates to trust, as PEM text; empty: the system's.
        name: The name that the server's certificate must have; empty: the host that is called.
    """

    ca: str = field(default="", repr=False)
    name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        """Return what gRPC wants of it."""
        return grpc.ssl_channel_credentials(self.ca.encode() or None)

    def options(self) -> tuple[tuple[str, str], ...]:
        """Return the channel options that belong to it."""
        return (("grpc.ssl_target_name_override", self.name),) if self.name else ()


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server shows.

    Attributes:
        certificate: Its certificate chain, as PEM text.
        key: The private key.
        names: The names that the certificate is for, at least one.
    """

    certificate: str = field(repr=False)
    key: str = field(repr=False)
    names: tuple[str, ...]

    def credentials(self) -> grpc.ServerCredentials:
        """Return what gRPC wants of it."""
        return grpc.ssl_server_credentials([(self.key.encode(), self.certificate.encode())])

    def trust(self) -> Trust:
        """Return how the cluster's own processes trust each other: this certificate, and no other."""
        return Trust(self.certificate, self.names[0])


def read_trusted(option: str, path: str) -> str:
    """Return the certificates to trust of a file that an option names; ``~`` is the home.

    Raises:
        InvalidPropertyError: The file cannot be read, or has no certificate.
    """
    try:
        return _certificates(Path(path).expanduser())
    except (OSError, ValueError, RuntimeError) as error:
        raise InvalidPropertyError(
            f"{option}={path}: expected a PEM file with the certificates to trust ({error})"
        ) from error


def _certificates(path: Path) -> str:
    """Return the certificates of a PEM file, as text, and nothing else of it: those to trust travel, a key beside them must not."""
    found = [match[0] for match in _CERTIFICATE.finditer(_read_text(path))]
    if not found:
        raise ValueError("it has no certificate")
    text = "\n".join([*found, ""])
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    return text


def _read_text(path: Path) -> str:
    return path.read_text("utf-8", "replace")  # what is not ASCII is a comment


def load_identity(certificate: Path, key: Path) -> Identity:
    """Return what servers show, checked as a caller would: a handshake of this certificate with itself.

    Args:
        certificate: PEM file with the certificate chain.
        key: PEM file with its private key, without a passphrase.

    Raises:
        InvalidPropertyError: A file cannot be read, the two do not belong together, or the certificate is out of date
            or has no name; the text says which.
    """
    where = f"server.tls.certificate {certificate}, server.tls.key {key}"
    try:
        texts = _certificates(certificate), _read_text(key)
        found = _handshake(certificate, key)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise InvalidPropertyError(f"{where}: expected a certificate chain and its key in PEM ({error})") from error
    names = tuple(
        str(value).replace("*", "any", 1) for kind, value in found.get("subjectAltName", ()) if kind in _NAME_KINDS
    )
    if not names:
        raise InvalidPropertyError(f"{where}: the certificate names no host: expected a subjectAltName with DNS or IP")
    return Identity(*texts, names)


_NAME_KINDS: Final = ("DNS", "IP Address")


def _handshake(certificate: Path, key: Path) -> dict[str, Any]:
    """Return the certificate as a peer sees it that trusts exactly it."""
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(certificate, key, password=_no_passphrase)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.check_hostname = False
    theirs.load_verify_locations(certificate)
    theirs.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_us, to_them = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = theirs.wrap_bio(to_them, to_us)
    sides = (peer, ours.wrap_bio(to_us, to_them, server_side=True))
    for _ in range(_HANDSHAKE_STEPS_MAX):
        waiting = 0
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting += 1
        if not waiting:
            break
    return dict(peer.getpeercert() or {})


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase: give one without")


def target(host: str, port: int) -> str:
    """Return a host and port as gRPC wants them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def reachable(host: str) -> str:
    """Return where this machine's own processes call a server that listens on a host."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # named, not bound

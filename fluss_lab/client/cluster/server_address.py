"""The address of a server, with the token and the trust that it needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fluss_lab.errors import InvalidRequestError
from fluss_lab.model.json_codec import decode, encode
from fluss_lab.rpc.access.tls import WILDCARDS, Trust


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A coordinator's address and the token of its cluster. The token never shows in messages.

    Attributes:
        tls: Whether the cluster speaks TLS.
        ca: Certificates to trust, as PEM text; empty: the system's.
        name: The name that the certificate of its servers must have; empty: `host`.
    """

    host: str
    port: int
    token: str = field(repr=False)
    tls: bool = False
    ca: str = field(default="", repr=False)
    name: str = ""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @staticmethod
    def of(host: str, port: int, token: str, trust: Trust | None) -> ServerAddress:
        """Return the address of a cluster that is trusted so; None: it speaks without TLS."""
        if trust is None:
            return ServerAddress(host, port, token)
        return ServerAddress(host, port, token, True, trust.ca, trust.name)

    def trust(self) -> Trust | None:
        """Return what to expect of the cluster's servers, wherever they listen; None: they speak without TLS."""
        return Trust(self.ca, self.name or self.host) if self.tls else None

    def other_server(self, host: str, port: int) -> ServerAddress:
        """Return another server of the cluster.

        Args:
            host: As the coordinator returned it; one that stands for all interfaces is called where the coordinator is.
            port: As the coordinator returned it.
        """
        name = (self.name or self.host) if self.tls else ""
        return replace(self, host=self.host if host in WILDCARDS else host, port=port, name=name)

    def to_json(self) -> str:
        """Return the address as text that `from_json` reads; it holds the token, so treat it as a secret."""
        return encode(self, indent=0).decode()

    @staticmethod
    def from_json(text: str) -> ServerAddress:
        """Read an address.

        Raises:
            InvalidRequestError: The text is none.
        """
        return decode(ServerAddress, text, "server address in JSON", error=InvalidRequestError)

"""The form of errors on the wire: a gRPC status for everybody, and our code beside it for our own clients."""

from __future__ import annotations

import itertools
from typing import Final

from fluss_lab import errors
from fluss_lab.errors import FlussError, error_code, error_from_code
from fluss_lab.rpc.grpc_module import grpc

CODE_KEY: Final = "fluss-error-code"
#: A longer message does not help.
MESSAGE_LENGTH_MAX: Final = 3000
#: What a message may take on the wire, where a character is one byte or several times three: trailing metadata are limited to 8 kB,
#: above which gRPC drops calls at random, with all that was said of them.
WIRE_SIZE_MAX: Final = 7000
#: What gRPC says, in a `RESOURCE_EXHAUSTED`, of a message that it does not take; else there is too much of something.
_TOO_LARGE: Final = "message larger than max"
#: What gRPC says, in an `UNAVAILABLE`, when a handshake failed for good.
_UNTRUSTED: Final = ("Hostname Verification Check failed", "CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER")
#: What it says of a connection that was taken and closed before anything was said: by a server that expects TLS, or has enough of them.
_CLOSED: Final = "Socket closed"
#: What it says then of a certificate whose time is over, or has not come.
_OUT_OF_DATE: Final = ("certificate has expired", "certificate is not yet valid")

#: Nearest base of an error -> gRPC status; looked up along the class's bases, so it is total.
STATUS_OF_CLASS: Final[dict[type[FlussError], grpc.StatusCode]] = {
    errors.InvalidError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.UnsupportedError: grpc.StatusCode.UNIMPLEMENTED,
    errors.NotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.AlreadyExistsError: grpc.StatusCode.ALREADY_EXISTS,
    errors.DatabaseNotEmptyError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.OffsetOutOfRangeError: grpc.StatusCode.OUT_OF_RANGE,
    errors.AuthenticationError: grpc.StatusCode.UNAUTHENTICATED,
    errors.UnavailableError: grpc.StatusCode.UNAVAILABLE,
    errors.RequestTimeoutError: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.ResourceExhaustedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.ConflictError: grpc.StatusCode.ABORTED,
    errors.CorruptDataError: grpc.StatusCode.DATA_LOSS,
    errors.InternalError: grpc.StatusCode.INTERNAL,
    errors.FlussError: grpc.StatusCode.FAILED_PRECONDITION,
}


def status_of(error: FlussError) -> grpc.StatusCode:
    """Return the gRPC status of an error."""
    return next(STATUS_OF_CLASS[cls] for cls in type(error).__mro__ if cls in STATUS_OF_CLASS)


def trailers_of(error: FlussError) -> tuple[tuple[str, str], ...]:
    """Return the trailing metadata that carries an error's code."""
    return ((CODE_KEY, str(error_code(error))),)


def shorten_message(message: str) -> str:
    """Return a message short enough to travel, of characters that do: what a file's name has of no encoding is escaped."""
    text = message[: MESSAGE_LENGTH_MAX + 1].encode("utf-8", "backslashreplace").decode()
    sizes = itertools.accumulate(map(_wire_size, text))
    length = min(MESSAGE_LENGTH_MAX, sum(size <= WIRE_SIZE_MAX for size in sizes))
    return text if len(text) <= length else text[:length] + " ..."


def _wire_size(character: str) -> int:
    """Return how many bytes gRPC makes of a character of a message."""
    return 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())


def error_of(failure: grpc.RpcError, what: str) -> FlussError:
    """Return the error that a failed call stands for.

    Args:
        failure: As raised by gRPC; it is a `grpc.Call` too.
        what: The call and its address, for the text.
    """
    trailers = dict(failure.trailing_metadata() or ())
    details = failure.details() or ""
    if (code := trailers.get(CODE_KEY)) is not None:
        return error_from_code(int(code), details)
    match failure.code():
        case grpc.StatusCode.UNAVAILABLE:
            return _reach_error(what, details)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return errors.RequestTimeoutError(f"{what}: no answer in time; whether the server acted is not known")
        case grpc.StatusCode.UNAUTHENTICATED:
            return errors.AuthenticationError(
                f"{what}: {details or 'the token is missing or wrong'}: expected that of the server there, as the file `token` of its "
                "lab's folder has it; where the file was replaced while it ran, `fluss-lab down` and `fluss-lab up`"
            )
        case grpc.StatusCode.RESOURCE_EXHAUSTED if _TOO_LARGE in details:
            return errors.RecordTooLargeError(
                f"{what}: the request has more bytes than the server takes ({details}); send less at once, or raise "
                "server.request-size-max"
            )
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return errors.ResourceExhaustedError(f"{what}: {details}")
        case grpc.StatusCode.UNIMPLEMENTED:
            return errors.UnsupportedError(
                f"{what}: the server does not know the call (UNIMPLEMENTED: {details}): it is of an older version, or no such "
                "server; restart it with this version"
            )
        case grpc.StatusCode.CANCELLED:
            return errors.ServerUnavailableError(f"{what}: the call was cut off ({details})")
        case other:
            return errors.InternalError(f"{what}: {other.name}: {details}")


def _reach_error(what: str, details: str) -> FlussError:
    """Return the error of a call that no server took."""
    if any(word in details for word in _OUT_OF_DATE):
        return errors.AuthenticationError(
            f"{what}: the server's certificate, or one of those that sign it, is out of date ({details}): put one that is not into the "
            "files of server.tls.certificate and server.tls.key, then `fluss-lab down` and `fluss-lab up`; or set the clock of "
            "this machine"
        )
    if any(word in details for word in _UNTRUSTED):
        return errors.AuthenticationError(
            f"{what}: the server's certificate is not trusted, or it does not speak TLS ({details}): give the "
            "certificates to trust (client.tls.ca, tls_ca), and call it by a name that its certificate has"
        )
    if _CLOSED in details:
        return errors.ServerUnavailableError(
            f"{what}: the connection was closed ({details}): the server ended, or has as many connections as "
            "server.connections-max allows, or speaks TLS where the caller does not: then give the certificates to trust "
            "(client.tls.ca, tls_ca)"
        )
    return errors.ServerUnavailableError(
        f"{what}: no server answers ({details}); is it running? See `fluss-lab status`"
    )

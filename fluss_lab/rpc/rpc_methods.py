"""The RPCs by their names, read from the compiled protocol: how each encodes and decodes, the limits of a request, its timeout."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from fluss_lab.errors import InvalidRequestError
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc import message_codec

#: Bytes of a request without its records. The longest are definitions of tables of a thousand columns. Memory grows
#: fifty-fold when bytes that were made for it become messages.
MESSAGE_BYTES_MAX: Final = 4 << 20
#: Fields and entries of lists of one request, over all its messages: of some 100,000 buckets. An answer may have a
#: message for each bucket, of some hundred bytes.
ITEMS_MAX: Final = 500_000
#: Longest wait for an answer that does not wait for records: a metadata commit on a slow disk takes seconds.
CALL_TIMEOUT_S: Final = 30.0
#: A DDL call writes to the lake's catalog, which may be far.
DDL_TIMEOUT_S: Final = 120.0
_LAKE_DDL: Final = frozenset({"create_table", "alter_table", "drop_table", "drop_database", "drop_partition"})
#: What changes databases, tables and partitions.
DDL: Final = _LAKE_DDL | {"create_database", "create_partition"}
#: Room above a long poll's own wait.
POLL_MARGIN_S: Final = 20.0
#: A write may wait for a failing disk or its predecessor.
PRODUCE_MARGIN_S: Final = 5.0
#: Missing fields that an error names.
_MISSING_SHOWN: Final = 5


def check_size(message_type: type[Message], size: int) -> None:
    """Check that a request without its records is small enough to be parsed.

    Raises:
        InvalidRequestError: It is not.
    """
    if size > MESSAGE_BYTES_MAX:
        raise InvalidRequestError(
            f"{message_type.DESCRIPTOR.name}: expected at most {MESSAGE_BYTES_MAX} bytes beside records, found {size}; "
            "send several requests"
        )


def check_fields(message: Message) -> None:
    """Check that a request has what it must have, its lists are not too long, and its texts are text.

    Protobuf itself passes on texts that are none, and requests within which required fields are missing.

    Raises:
        InvalidRequestError: They are not.

    Cost: 1 us for each message in it, up to the limit.
    """
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors()[:_MISSING_SHOWN])
        raise InvalidRequestError(f"{message.DESCRIPTOR.name}: missing {missing}")
    left = ITEMS_MAX
    waiting = [message]
    while waiting:
        for field, value in waiting.pop().ListFields():
            values = value if field.is_repeated else (value,)
            left -= len(values)
            if left < 0:
                raise InvalidRequestError(
                    f"{message.DESCRIPTOR.name}: expected at most {ITEMS_MAX} fields and entries of lists, found more; "
                    "send several requests"
                )
            if field.message_type is not None:
                waiting.extend(values)
            elif field.type == field.TYPE_STRING and not all(isinstance(text, str) for text in values):
                raise InvalidRequestError(f"{message.DESCRIPTOR.name}: {field.name} is no UTF-8 text")


COORDINATOR: Final = "CoordinatorGateway"
TABLET_SERVER: Final = "TabletServerGateway"


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC.

    Attributes:
        name: As the gateways call it: ``fetch_log``.
        path: As gRPC calls it: ``/fluss.TabletServerGateway/FetchLog``.
        streams: Whether the server answers with a stream.
    """

    name: str
    path: str
    streams: bool
    encode_request: Callable[[Any], bytes]
    decode_request: Callable[[bytes], Any]
    encode_response: Callable[[Any], bytes]
    decode_response: Callable[[bytes], Any]

    def timeout_s(self, request: Any, call_timeout_s: float) -> float:
        """Return how long a caller waits for the answer.

        Args:
            request: The request: a long poll and a write say how long the server may wait itself.
            call_timeout_s: Of a call that waits for nothing.
        """
        if self.name == "fetch_log":
            return min(POLL_MARGIN_S, call_timeout_s) + float(request.max_wait_ms) / 1000
        if self.name in {"produce_log", "put_kv"}:
            return PRODUCE_MARGIN_S + float(request.message.timeout_ms) / 1000
        return DDL_TIMEOUT_S if self.name in _LAKE_DDL else call_timeout_s


def methods_of(service: str) -> dict[str, Method]:
    """Return the RPCs of a service by gateway method name."""
    methods = pb.DESCRIPTOR.services_by_name[service].methods
    names = [re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower() for method in methods]
    return {name: method_of(service, name) for name in names}


@cache
def method_of(service: str, name: str) -> Method:
    """Return an RPC of a service by its gateway method name. Each is made once: every connection has them.

    Raises:
        KeyError: There is none.
    """
    descriptor = pb.DESCRIPTOR.services_by_name[service]
    method = descriptor.methods_by_name["".join(word.capitalize() for word in name.split("_"))]
    request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    return Method(
        name,
        f"/{descriptor.full_name}/{method.name}",
        method.server_streaming,
        _encoder(request),
        _request_decoder(request),
        _encoder(response),
        _decoder(response),
    )


def _encoder(message_type: type[Message]) -> Callable[[Any], bytes]:
    if message_type.DESCRIPTOR.name in message_codec.PAYLOAD_PATHS:
        return message_codec.encode
    encode: Callable[[Any], bytes] = message_type.SerializeToString
    return encode


def _request_decoder(message_type: type[Message]) -> Callable[[bytes], Any]:
    """Return the decoder of requests, which may be hostile: within limits, and with valid UTF-8."""
    if message_type.DESCRIPTOR.name in message_codec.PAYLOAD_PATHS:

        def decode_frame(data: bytes) -> Any:
            frame = message_codec.decode(data, message_type, check=partial(check_size, message_type))
            check_fields(frame.message)
            return frame

        return decode_frame

    def decode(data: bytes) -> Any:
        check_size(message_type, len(data))
        try:
            message = message_type.FromString(data)
        except DecodeError as error:
            raise InvalidRequestError(f"not a {message_type.DESCRIPTOR.name}: {error}") from error
        check_fields(message)
        return message

    return decode


def _decoder(message_type: type[Message]) -> Callable[[bytes], Any]:
    """Return the decoder of answers; of one that is no such message gRPC itself says so, whatever is raised here."""
    if message_type.DESCRIPTOR.name in message_codec.PAYLOAD_PATHS:
        return partial(message_codec.decode, message_type=message_type)
    decode: Callable[[bytes], Any] = message_type.FromString
    return decode

"""The RPCs by their names, read from the compiled protocol, and how each encodes and decodes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from fluss_lab.errors import InvalidRequestError
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.rpc import message_codec, request_limits

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


def methods_of(service: str) -> dict[str, Method]:
    """Return the RPCs of a service by gateway method name."""
    methods = pb.DESCRIPTOR.services_by_name[service].methods
    names = [re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower() for method in methods]
    return {name: method_of(service, name) for name in names}


def method_of(service: str, name: str) -> Method:
    """Return an RPC of a service by its gateway method name.

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

    def encode(message: Message) -> bytes:
        return bytes(message.SerializeToString())

    return encode


def _request_decoder(message_type: type[Message]) -> Callable[[bytes], Any]:
    """Return what decodes a request, which anybody may have made: within limits, and with text that is text."""
    if message_type.DESCRIPTOR.name in message_codec.PAYLOAD_PATHS:

        def decode_frame(data: bytes) -> Any:
            frame = message_codec.decode(data, message_type, check=partial(request_limits.check_size, message_type))
            request_limits.check_fields(frame.message)
            return frame

        return decode_frame
    decode_plain = _decoder(message_type)

    def decode(data: bytes) -> Any:
        request_limits.check_size(message_type, len(data))
        message = decode_plain(data)
        request_limits.check_fields(message)
        return message

    return decode


def _decoder(message_type: type[Message]) -> Callable[[bytes], Any]:
    if message_type.DESCRIPTOR.name in message_codec.PAYLOAD_PATHS:
        return lambda data: message_codec.decode(data, message_type)

    def decode(data: bytes) -> Message:
        try:
            return message_type.FromString(data)
        except DecodeError as error:
            raise InvalidRequestError(f"not a {message_type.DESCRIPTOR.name}: {error}") from error

    return decode

"""The limits of a request, beside those of the records that it carries."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

from fluss_lab.errors import InvalidRequestError

#: Bytes of a request without its records. The longest are definitions of tables of a thousand columns. Memory grows
#: fifty-fold when bytes that were made for it become messages.
MESSAGE_BYTES_MAX: Final = 4 << 20
#: Fields and entries of lists of one request, over all its messages: of some 100,000 buckets. An answer may have a
#: message for each bucket, of some hundred bytes.
ITEMS_MAX: Final = 500_000
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
            "ask in several requests"
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
                    "ask in several requests"
                )
            if field.message_type is not None:
                waiting.extend(values)
            elif field.type == field.TYPE_STRING and not all(isinstance(text, str) for text in values):
                raise InvalidRequestError(f"{message.DESCRIPTOR.name}: {field.name} is no UTF-8 text")

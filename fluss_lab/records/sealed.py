"""Small files that say whether they are whole: their content, a newline, and the CRC-32C of the content in hexadecimal."""

from __future__ import annotations

import google_crc32c


def seal_content(body: bytes) -> bytes:
    """Return the bytes of a file with a content."""
    return b"%s\n%08x" % (body, google_crc32c.value(body))


def unseal_content(data: bytes) -> bytes | None:
    """Return the content of a file; None when it is not as it was sealed."""
    body = data.rpartition(b"\n")[0]
    return body if seal_content(body) == data else None

"""Keys of MinIO that end, and may do less than those that they are asked for with: STS's AssumeRole, signed by hand.

No library that the product has asks for such keys: boto3 does.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import urllib.parse
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from tools.beyond.minio_server import REGION, MinioServer

#: The shortest that MinIO gives.
SECONDS_MIN: Final = 900
_ANSWER_TIMEOUT_S: Final = 10.0
_SIGNED: Final = "content-type;host;x-amz-date"
_FORM: Final = "application/x-www-form-urlencoded"


def session_keys(minio: MinioServer, actions: Sequence[str] = ("s3:*",)) -> dict[str, str]:
    """Return pyiceberg's properties for new keys with a session token, for a quarter of an hour.

    Args:
        minio: Whose.
        actions: What they may do, in every bucket.
    """
    policy = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": list(actions), "Resource": ["arn:aws:s3:::*"]}],
    }
    asked = {
        "Action": "AssumeRole", "Version": "2011-06-15", "DurationSeconds": str(SECONDS_MIN), "Policy": json.dumps(policy),
    }  # fmt: skip
    body = urllib.parse.urlencode(asked).encode()
    headers = _signed(minio, body, datetime.now(UTC))
    request = urllib.request.Request(minio.endpoint, body, headers)  # noqa: S310 - of loopback
    with urllib.request.urlopen(request, timeout=_ANSWER_TIMEOUT_S) as answer:  # noqa: S310
        text = answer.read().decode()
    return {
        "s3.access-key-id": _found(text, "AccessKeyId"),
        "s3.secret-access-key": _found(text, "SecretAccessKey"),
        "s3.session-token": _found(text, "SessionToken"),
    }


def _found(text: str, name: str) -> str:
    match = re.search(f"<{name}>(.*?)</{name}>", text, re.S)
    assert match is not None, f"an answer of STS without {name}"
    return match[1].strip()


def _signed(minio: MinioServer, body: bytes, now: datetime) -> dict[str, str]:
    """Return the headers of a request to the root of the server: version 4 of Amazon's signatures."""
    host, stamp = minio.endpoint.removeprefix("http://"), now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{REGION}/sts/aws4_request"
    head = f"content-type:{_FORM}\nhost:{host}\nx-amz-date:{stamp}\n"
    asked = f"POST\n/\n\n{head}\n{_SIGNED}\n{hashlib.sha256(body).hexdigest()}"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(asked.encode()).hexdigest()}"
    key = f"AWS4{minio.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    return {
        "Authorization": f"AWS4-HMAC-SHA256 Credential={minio.access_key}/{scope}, SignedHeaders={_SIGNED}, Signature={signature}",
        "Content-Type": _FORM,
        "X-Amz-Date": stamp,
    }

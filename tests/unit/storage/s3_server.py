"""A small object store that speaks S3 over HTTP, for tests: conditional puts, ranges, parts, lists, and faults on call.

Nothing is verified but the access key. What was asked is noted, so that requests can be counted.
"""

from __future__ import annotations

import hashlib
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

BUCKET = "lake"
RESET = -1
_CODES = {403: "AccessDenied", 404: "NoSuchKey", 503: "SlowDown", 507: "XMinioStorageFull"}


class S3Server:
    """The store.

    Attributes:
        objects: Content by key.
        uploads: Parts by upload id, of those that were neither completed nor aborted.
        requests: Method and key of each request.
        fault: Called with method and key: what status is answered instead, `RESET`, or None; a status plus 1,000 is
            answered after the request was done.
        key_id: The one access key that may.
        bucket: The one that is there.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], int | None] = lambda _method, _key: None
        self.key_id = "lab"
        self.bucket = BUCKET
        self.lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": self}))
        self._http.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._http.server_address[1]}"

    def options(self, prefix: str = "labs/one", **more: str) -> dict[str, str]:
        """Return the cluster options for remote storage here."""
        return {
            "remote.data.dir": f"s3://{BUCKET}/{prefix}", "remote.s3.endpoint": self.endpoint, "remote.s3.allow-http": "true",
            "remote.s3.access-key-id": "lab", "remote.s3.secret-access-key": "hidden-secret", "remote.s3.retries-max": "1",
            "remote.s3.retry-time-max": "1s", **more,
        }  # fmt: skip

    def count(self, method: str, pattern: str = "") -> int:
        """Return how many requests were made of a method for keys that match."""
        return sum(each == method and re.search(pattern, key) is not None for each, key in self.requests)

    @contextmanager
    def failing(self, status: int, method: str = "", pattern: str = "", times: int = 1 << 30) -> Iterator[None]:
        """Answer requests of a method for keys that match with a status, so many times."""
        left = [times]

        def fault(asked: str, key: str) -> int | None:
            if left[0] and asked.startswith(method) and re.search(pattern, key):
                left[0] -= 1
                return status
            return None

        before, self.fault = self.fault, fault
        try:
            yield
        finally:
            self.fault = before


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a store while the block runs."""
    store = S3Server()
    thread = threading.Thread(target=store._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        store._http.shutdown()
        store._http.server_close()
        thread.join()


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _chunks(body: BinaryIO) -> Iterator[bytes]:
    while size := int(body.readline().split(b";")[0], 16):
        yield body.read(size)
        body.readline()


class _Handler(BaseHTTPRequestHandler):
    store: S3Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 (the names of http.server)

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        body = self._body()
        self.store.requests.append((self.command, key))
        status = self.store.fault(self.command, key) or 0
        if status == RESET:
            self.close_connection = True
            return
        if 0 < status < 1000:
            self._fail(status, _CODES.get(status, "InternalError"))
        elif f"Credential={self.store.key_id}/" not in self.headers.get("Authorization", ""):
            self._fail(403, "InvalidAccessKeyId")
        elif bucket != self.store.bucket:
            self._fail(404, "NoSuchBucket")
        else:
            with self.store.lock:
                answer = self._done(key, query, body)
            if status > 1000:
                self._fail(status - 1000, "InternalError")
            else:
                self._answer(*answer)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        # AWS's SDK cuts what it sends twice: as HTTP does, and so that a checksum can follow.
        sent = b"".join(_chunks(self.rfile))
        self.rfile.readline()
        return b"".join(_chunks(BytesIO(sent))) if self.headers.get("Content-Encoding") == "aws-chunked" else sent

    def _answer(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", headers.pop("size", str(len(data))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _fail(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def _done(self, key: str, query: dict[str, str], body: bytes) -> tuple[int, bytes]:
        # Headers of the answer are set as attributes: see `_answer`.
        return getattr(self, f"_{self.command.lower()}")(key, query, body)

    def _missing(self) -> tuple[int, bytes]:
        return 404, b"<Error><Code>NoSuchKey</Code></Error>"

    def _get(self, key: str, query: dict[str, str], _body: bytes) -> tuple[int, bytes]:
        if not key:
            return 200, self._listed(query.get("prefix", ""), query.get("delimiter", ""))
        if (data := self.store.objects.get(key)) is None:
            return self._missing()
        if (found := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))) is None:
            return 200, data
        start, stop = int(found[1]), min(int(found[2]) + 1, len(data))
        if start >= len(data):
            return 416, b"<Error><Code>InvalidRange</Code></Error>"
        self._range = f"bytes {start}-{stop - 1}/{len(data)}"
        return 206, data[start:stop]

    def _head(self, key: str, _query: dict[str, str], _body: bytes) -> tuple[int, bytes]:
        data = self.store.objects.get(key) if key else b""
        return (404, b"") if data is None else (200, data)

    def _put(self, key: str, query: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if (upload := query.get("uploadId")) is not None:
            self.store.uploads[upload][int(query["partNumber"])] = body
            return 200, b""
        there, match = self.store.objects.get(key), self.headers.get("If-Match")
        if match is not None and there is None:
            return self._missing()
        if (match is not None and match != _tag(there or b"")) or (
            self.headers.get("If-None-Match") and there is not None
        ):
            return 412, b"<Error><Code>PreconditionFailed</Code></Error>"
        self.store.objects[key] = body
        return 200, b""

    def _post(self, key: str, query: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if "delete" in query:
            keys = [unescape(each) for each in re.findall(r"<Key>(.*?)</Key>", body.decode())]
            for each in keys:
                self.store.objects.pop(each, None)
            listed = "".join(f"<Deleted><Key>{escape(each)}</Key></Deleted>" for each in keys)
            return 200, f"<DeleteResult>{listed}</DeleteResult>".encode()
        if "uploads" in query:
            self.store.uploads[found := uuid.uuid4().hex] = {}
            return 200, (
                f"<InitiateMultipartUploadResult><Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key>"
                f"<UploadId>{found}</UploadId></InitiateMultipartUploadResult>"
            ).encode()
        data = b"".join(part for _, part in sorted(self.store.uploads.pop(query["uploadId"]).items()))
        self.store.objects[key] = data
        return 200, (
            f"<CompleteMultipartUploadResult><Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key><ETag>{escape(_tag(data))}</ETag>"
            "</CompleteMultipartUploadResult>"
        ).encode()

    def _delete(self, key: str, query: dict[str, str], _body: bytes) -> tuple[int, bytes]:
        if "uploadId" in query:
            self.store.uploads.pop(query["uploadId"], None)
        else:
            self.store.objects.pop(key, None)
        return 204, b""

    def _listed(self, prefix: str, delimiter: str) -> bytes:
        contents, prefixes = "", set()
        for key, data in sorted(self.store.objects.items()):
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                prefixes.add(prefix + rest.split(delimiter)[0] + delimiter)
            else:
                contents += (
                    f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                    f"<ETag>{escape(_tag(data))}</ETag><Size>{len(data)}</Size></Contents>"
                )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(prefixes)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}{common}</ListBucketResult>".encode()

    def end_headers(self) -> None:
        """Add what a store says of an object."""
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        if (found := getattr(self, "_range", None)) is not None:
            self.send_header("Content-Range", found)
            del self._range
        key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]
        if (data := self.store.objects.get(key)) is not None or "partNumber" in self.path:
            self.send_header("ETag", _tag(data or b""))
        super().end_headers()

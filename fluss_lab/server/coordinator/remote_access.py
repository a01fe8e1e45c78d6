"""The access of clients to remote storage in an object store: by which options and credentials it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from fluss_lab.model.config import options as opt
from fluss_lab.model.json_codec import encode
from fluss_lab.rpc import fluss_api_pb2 as pb
from fluss_lab.server.folder.remote_storage import remote_root
from fluss_lab.storage.file_store import Place
from fluss_lab.storage.store_location import location_of

Token: TypeAlias = pb.GetFileSystemSecurityTokenResponse


def place_from(options: Mapping[str, str]) -> Place:
    """Return ``remote.data.dir``; where it is not given, the working directory."""
    return remote_root(options, Path())


def described_options(options: Mapping[str, str]) -> Iterator[pb.PbKeyValue]:
    """Yield the cluster's options as it describes itself: without the credentials of remote storage."""
    hidden = {option.key for option in opt.REMOTE_S3_SECRETS}
    for key, value in sorted(options.items()):
        if key not in hidden:
            yield pb.PbKeyValue(key=key, value=value)


def security_token(options: Mapping[str, str]) -> Token:
    """Return how remote storage is read; an empty token says that a client's own environment has the credentials.

    So it is when ``remote.s3.client-credentials`` says so, when the servers have theirs from their environment, which cannot be
    handed on, and for stores other than S3. Without an object store the schema is empty.
    """
    given = opt.REMOTE_DATA_DIR.of(options)
    found = location_of(given, opt.REMOTE_DATA_DIR.key) if given else Path()
    response = Token(schema="", token=b"")
    if isinstance(found, Path):
        return response
    response.schema = found.scheme
    for option in opt.REMOTE_S3_OPTIONS:
        if option not in opt.REMOTE_S3_SECRETS and option.key in options:
            response.addition_info.add(key=option.key, value=options[option.key])
    key_id, secret, session = (option.of(options) for option in opt.REMOTE_S3_SECRETS)
    if key_id and found.scheme == "s3" and opt.REMOTE_S3_CLIENT_CREDENTIALS.of(options) == "server":
        response.token = encode({"access_key_id": key_id, "access_key_secret": secret, "security_token": session})
    return response

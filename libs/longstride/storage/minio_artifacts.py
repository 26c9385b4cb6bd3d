"""Artifacts behind the S3 API, by the ``minio`` SDK: MinIO, SeaweedFS, AWS and whoever else speaks it."""

import io
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

import urllib3
from minio import Minio, S3Error
from minio.error import InvalidResponseError, MinioException, ServerError

from longstride.contracts.artifact import ArtifactRef
from longstride.storage.artifacts import StoredObject, address, is_fresh, path_of, verified
from longstride.storage.errors import ArtifactMissing, StorageError, StorageFull, StorageRefused, StorageUnavailable

T = TypeVar("T")
ATTEMPTS = 4
FIRST_DELAY_S = 0.2
"""Doubled a try, with jitter: a store that refuses connections is given up after about 1.5 s."""
SMALL = 64 * 1024
"""Bytes up to which an object is sent at once rather than looked for first."""

_ABSENT = {"NoSuchKey", "NoSuchBucket", "NoSuchObject", "ResourceNotFound"}
_FULL = {
    "XMinioStorageFull",
    "XMinioAdminBucketQuotaExceeded",
    "QuotaExceeded",
    "InsufficientStorage",
    "EntityTooLarge",
}
_REFUSED = {
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AuthorizationHeaderMalformed",
    "InvalidBucketName",
    "RequestTimeTooSkewed",
}
_OURS = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}


class MinioArtifacts:
    """An ``ArtifactStore`` in one bucket, which is made when it is missing."""

    def __init__(
        self,
        endpoint: str,
        access_key: str,
        secret_key: str,
        bucket: str,
        *,
        region: str = "us-east-1",
        connect_timeout_s: float = 3.0,
        read_timeout_s: float = 30.0,
    ) -> None:
        """Nothing is connected yet.

        Args:
            endpoint: ``http://host:port`` or ``https://host``.
            access_key: the S3 access key.
            secret_key: the S3 secret key.
            bucket: 3 to 63 lower-case letters, digits, dots and hyphens.
            region: given, so that the SDK need not ask for it.
            connect_timeout_s: seconds for one connection attempt.
            read_timeout_s: seconds of silence that an answer may have.

        Raises:
            ValueError: ``endpoint`` is not an http or https URL, or it has a path.
        """
        url = urlsplit(endpoint)
        if url.scheme not in ("http", "https") or not url.netloc or url.path.strip("/"):
            raise ValueError(f"the S3 endpoint must look like http://host:port, not {endpoint!r}")
        self._endpoint = f"{url.scheme}://{url.netloc}"
        self._bucket = bucket
        pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=connect_timeout_s, read=read_timeout_s), maxsize=8, retries=False
        )
        self._client = Minio(
            url.netloc, access_key, secret_key, secure=url.scheme == "https", region=region, http_client=pool
        )

    def put(self, data: bytes, *, session: str, kind: str, media_type: str = "application/octet-stream") -> ArtifactRef:
        """Store; an object of some size that is there already is not sent again."""
        ref = address(data, session, kind, media_type)
        self._try(f"write {ref.key}", lambda: self._put(ref, data))
        return ref

    def get(self, ref: ArtifactRef) -> bytes:
        """Read, and check size and hash."""
        path_of(ref.key)
        data = self._try(f"read {ref.key}", lambda: _absent_as_none(lambda: self._read(ref)))
        if data is None:
            raise ArtifactMissing(f"no artifact lies under {ref.key} in bucket {self._bucket}")
        return verified(ref, data)

    def exists(self, ref: ArtifactRef) -> bool:
        """Whether an object lies there."""
        path_of(ref.key)
        return self._try(f"look for {ref.key}", lambda: self._found(ref)) is not None

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Objects whose key begins with ``prefix``, in no particular order. A failure in between is not retried."""
        try:
            for found in self._client.list_objects(self._bucket, prefix, recursive=True):
                yield StoredObject(found.object_name, found.size, found.last_modified)
        except (MinioException, urllib3.exceptions.HTTPError, OSError) as error:
            if _code(error) != "NoSuchBucket":
                raise self._failure(f"list {prefix or 'everything'}", error) from error

    def delete(self, key: str) -> None:
        """Remove an object."""
        path_of(key)
        self._try(f"delete {key}", lambda: _absent_as_none(lambda: self._client.remove_object(self._bucket, key)))

    def check(self) -> None:
        """Make the bucket when it is missing."""
        self._try(f"use bucket {self._bucket}", self._make_bucket)

    def _put(self, ref: ArtifactRef, data: bytes) -> None:
        found = self._found(ref) if len(data) > SMALL else None
        if found is not None and found.size == len(data) and is_fresh(found.modified_at):
            return
        try:
            self._send(ref, data)
        except S3Error as error:
            if error.code != "NoSuchBucket":
                raise
            self._make_bucket()
            self._send(ref, data)

    def _send(self, ref: ArtifactRef, data: bytes) -> None:
        one_part = max(len(data), 5 * 1024 * 1024)
        self._client.put_object(
            self._bucket, ref.key, io.BytesIO(data), len(data), content_type=ref.media_type, part_size=one_part
        )

    def _read(self, ref: ArtifactRef) -> bytes:
        response = self._client.get_object(self._bucket, ref.key)
        try:
            return response.read(ref.size + 1)  # one more than expected shows that it is too long
        finally:
            response.close()
            response.release_conn()

    def _found(self, ref: ArtifactRef) -> StoredObject | None:
        found = _absent_as_none(lambda: self._client.stat_object(self._bucket, ref.key))
        return None if found is None else StoredObject(ref.key, found.size, found.last_modified)

    def _make_bucket(self) -> None:
        if not self._client.bucket_exists(self._bucket):
            try:
                self._client.make_bucket(self._bucket)
            except S3Error as error:
                if error.code not in _OURS:
                    raise

    def _try(self, action: str, work: Callable[[], T]) -> T:
        """The one place that retries: outages and overload, a bounded number of times."""
        for attempt in range(ATTEMPTS):
            try:
                return work()
            except (MinioException, urllib3.exceptions.HTTPError, OSError) as error:
                failure = self._failure(action, error)
                if not failure.retryable or attempt == ATTEMPTS - 1:
                    raise failure from error
            time.sleep(FIRST_DELAY_S * 2**attempt * random.uniform(0.5, 1.5))
        raise AssertionError("at least one attempt")

    def _failure(self, action: str, error: Exception) -> StorageError:
        where = f"the artifact store at {self._endpoint}"
        code = _code(error)
        if code in _FULL:
            return StorageFull(f"{where} is full, cannot {action}: free some room")
        if code in _REFUSED:
            return StorageRefused(
                f"{where} refuses to {action}: {code}; check the keys, the bucket's name and its policy"
            )
        return StorageUnavailable(f"{where} cannot {action}: {code or error}")


def _code(error: Exception) -> str | None:
    match error:
        case S3Error():
            return error.code
        case ServerError():
            return "InsufficientStorage" if error.status_code == 507 else f"HTTP {error.status_code}"
        case InvalidResponseError():
            return "an answer that is not S3's; is this the S3 port?"
    return None


def _absent_as_none(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except S3Error as error:
        if error.code in _ABSENT:
            return None
        raise

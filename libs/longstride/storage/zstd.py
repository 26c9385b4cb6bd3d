"""Compressed objects: zstd at one level and without options, so that one build makes one object of the same bytes."""

from typing import BinaryIO, cast

import zstandard

MAGIC = b"\x28\xb5\x2f\xfd"
LEVEL = 3
"""On text it gives most of what higher levels give, at hundreds of megabytes a second."""


def compress(data: bytes) -> bytes:
    """One frame that knows its own length."""
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=False).compress(data)


def decompress(data: bytes, limit: int) -> bytes:
    """The content of one frame.

    Args:
        data: what ``compress`` made.
        limit: bytes that the content may have.

    Raises:
        ValueError: not such a frame, or a longer one.
    """
    try:
        declared = zstandard.frame_content_size(data)
        if not 0 <= declared <= limit:
            raise ValueError(f"a zstd frame of {declared} bytes, where at most {limit} are expected")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=declared) if declared else b""
    except zstandard.ZstdError as error:
        raise ValueError(f"not a zstd frame: {error}") from error


def compressing(file: BinaryIO) -> BinaryIO:
    """A stream that writes one frame into ``file``; close it before the file."""
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    return cast(BinaryIO, compressor.stream_writer(file, closefd=False))

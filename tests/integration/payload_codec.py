"""The codec of the tests, by a name that a worker's --codec takes."""

from __future__ import annotations

from rsm_spark.codecs.aes_gcm import AesGcmCodec

__all__ = ["encrypting", "no_codec"]


def encrypting() -> AesGcmCodec:
    return AesGcmCodec([bytes(range(32))], compresses=True)


def no_codec() -> int:
    return 5

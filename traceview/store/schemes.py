"""Lists the kinds of stores, and what each needs."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

EXTRA: Final = "pip install 'traceview[cloud]'"


class Scheme(Struct, frozen=True):
    """A kind of store. `package`: what fsspec needs for it. `access`: how it learns who asks.

    `bucket`: what holds the files there; empty where nothing does that could be missing. `loggers`: what else logs, beside
    the package.
    """

    package: str
    access: str
    bucket: str = ""
    loggers: tuple[str, ...] = ()


_AZURE: Final = Scheme(
    "adlfs",
    "set AZURE_STORAGE_ACCOUNT_NAME and run az login, or set AZURE_STORAGE_CONNECTION_STRING",
    bucket="container",
    loggers=("azure",),
)
_GOOGLE: Final = Scheme(
    "gcsfs",
    "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS",
    bucket="bucket",
    loggers=("google",),
)
SCHEMES: Final = {
    "gs": _GOOGLE,
    "s3": Scheme(
        "s3fs",
        "run aws configure, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; "
        "FSSPEC_S3_ANON=true for a public bucket",
        bucket="bucket",
    ),
    "az": _AZURE,
    "abfs": _AZURE,
    "memory": Scheme("fsspec", "the memory of this process"),
}

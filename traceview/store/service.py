"""Asks a store through fsspec: opens it once per process, waits for no answer too long, and names what is wrong.

Whatever a store or its client raises becomes `FileNotFoundError` or a `StoreError` of one line.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final, TypeVar

from msgspec import Struct

from traceview.base.errors import StoreError, TraceviewError, UsageError
from traceview.base.text import lazy_pattern
from traceview.store.schemes import EXTRA, SCHEMES

_Answer = TypeVar("_Answer")

LONGEST_WAIT_S: Final = 60
"""How long a store may take to answer, with the further tries of its client; docs/stores.md states it."""

SLOWEST_BYTES_PER_S: Final = 64 << 10
"""What is sent more slowly than this is taken for a store that has stopped answering."""

_LONGEST_REASON: Final = 160
_DENIALS: Final = (401, 403, 407)
_CREDENTIALS: Final = ("Credential", "Token", "Auth", "Forbidden", "AccountName")
"""What the clients' errors about credentials have in their names; importing each client to ask would take seconds."""

_ADDRESS_IN_TEXT: Final = lazy_pattern(r"[a-z][a-z0-9+.-]{1,9}://\S*")
"""In what a client says: it may hold what gives access."""

_CAPITAL: Final = lazy_pattern(r"(?<=[a-z])[A-Z]|^[A-Z](?=[a-z])")
_VERSIONS: Final = (
    "ETag",
    "etag",
    "generation",
    "LastModified",
    "Last-Modified",
    "last_modified",
    "updated",
    "mtime",
    "created",
)
_LINK_KINDS: Final = ("directory", "file")


class DeniedError(StoreError):
    """The store does not let this user in."""


class SilentError(StoreError):
    """The store does not answer in time."""


class Entry(Struct, frozen=True):
    """What a store says of a file or a folder. `st_size`: bytes of a file. `version` changes with its content."""

    st_size: int
    version: str = ""
    is_folder: bool = False


class Service:
    """A store. `scheme` and `authority` name it: `s3` and a bucket.

    Paths begin with `/` and are not encoded.
    """

    def __init__(self, scheme: str, authority: str) -> None:
        self.scheme = scheme
        self.authority = authority
        self._kind = SCHEMES[scheme]

    @property
    def _filesystem(self) -> Any:
        return _filesystem(self.scheme, self.authority)

    def entry(self, path: str) -> Entry:
        """The file or folder of this path; raises `FileNotFoundError` if there is none."""

        def ask() -> Any:
            self._filesystem.invalidate_cache()
            return self._filesystem.info(self._address(path))

        return _entry(self.ask(ask, path))

    def entries(self, path: str) -> dict[str, Entry]:
        """What the folder holds, by name; empty if there is no such folder.

        A name that no file below the folder can have is left out.
        """
        address = self._address(path)

        def ask() -> Any:
            self._filesystem.invalidate_cache()
            return self._filesystem.ls(address, detail=True)

        try:
            listed = self.ask(ask, path)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return dict(self._named(address, listed))

    def _named(self, address: str, listed: list[dict[str, Any]]) -> Iterator[tuple[str, Entry]]:
        folder = self._filesystem._strip_protocol(address).rstrip("/") + "/"
        for row in listed:
            place = str(row.get("name", ""))
            kind = str(row.get("type"))
            if not place.startswith(folder) or kind not in _LINK_KINDS:
                continue
            name = place[len(folder) :].rstrip("/")
            if name and "/" not in name and "\0" not in name and name not in (".", ".."):
                yield name, _entry(row)

    def read(self, path: str, begin: int, end: int) -> bytes:
        """The bytes from `begin` to `end`."""
        address = self._address(path)
        content: bytes = self.ask(
            lambda: self._filesystem.cat_file(address, start=begin, end=end), path, end - begin
        )
        return content

    def put(self, path: str, file: str) -> None:
        """Store a local file; readers see it whole or not at all."""
        size = Path(file).stat().st_size
        self.ask(lambda: self._filesystem.put_file(file, self._address(path)), path, size)

    def shown(self, path: str) -> str:
        """The address as people write it."""
        return self._address("" if path == "/" and self.authority else path)

    def _address(self, path: str) -> str:
        return (
            f"{self.scheme}://{self.authority}{path}"
            if self.authority
            else f"{self.scheme}:/{path}"
        )

    def ask(self, action: Callable[[], _Answer], path: str, size: int = 0) -> _Answer:
        """The answer. `size`: bytes that travel.

        Raises `FileNotFoundError`, or `StoreError`: also where the answer does not come in time.
        """
        try:
            return _within(action, LONGEST_WAIT_S + size / SLOWEST_BYTES_PER_S)
        except TraceviewError:
            raise
        except Exception as error:
            # What the client raised holds the whole address, and would be in a traceback.
            raise self._store_error(error, path) from None

    def _store_error(self, error: Exception, path: str) -> Exception:
        status = _status(error)
        if status == 404 or isinstance(error, FileNotFoundError):
            return FileNotFoundError(self.shown(path))
        if isinstance(error, IsADirectoryError | NotADirectoryError):
            return type(error)(self.shown(path))
        if _is_late(error):
            return SilentError(f"{self.shown(path)}: the store did not answer in time")
        if _is_denial(error):
            return DeniedError(
                f"{self.shown(path)}: access denied: {_reason(error)}", hint=self._kind.access
            )
        return StoreError(f"{self.shown(path)}: {_reason(error)}")


def _within(action: Callable[[], _Answer], limit_s: float) -> _Answer:
    """What an action gives; raises `TimeoutError` if it has not ended by then.

    It goes on, on a thread that ends with the process: no client lets a request be taken back everywhere.
    """
    answer: Future[_Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(action())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=run, daemon=True).start()
    return answer.result(limit_s)


_opened: dict[tuple[int, str, str], Any] = {}
_opening: Final = Lock()


def _filesystem(scheme: str, authority: str) -> Any:
    """The client of a store. It has threads, which a forked process does not have, so each process opens its own."""
    key = (os.getpid(), scheme, authority)
    with _opening:
        if key not in _opened:
            _opened[key] = _open(scheme, authority)
        return _opened[key]


def _open(scheme: str, authority: str) -> Any:
    package = SCHEMES[scheme].package
    # Without this what a client logs goes to standard error, with tracebacks; who configures logging gets it still.
    for name in (package, *SCHEMES[scheme].loggers):
        logging.getLogger(name).addHandler(logging.NullHandler())
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    try:
        from fsspec.core import url_to_fs

        return url_to_fs(f"{scheme}://{authority}/", **options)[0]
    except ImportError as error:
        named = "fsspec" if error.name == "fsspec" else package
        raise UsageError(f"{scheme}:// needs {named}", hint=EXTRA) from None
    except Exception as error:
        # Most clients look for credentials here.
        raise StoreError(
            f"{scheme}://{authority}: {_reason(error)}",
            hint=SCHEMES[scheme].access,
        ) from error


def _entry(row: Mapping[str, Any]) -> Entry:
    if row.get("type") == "directory":
        return Entry(0, is_folder=True)
    size = row.get("size")
    version = next((str(row[key]) for key in _VERSIONS if row.get(key)), "")
    known_size = size if isinstance(size, int) and size >= 0 else 0
    return Entry(known_size, version.removeprefix("W/").strip('"'))


def _status(error: BaseException | None) -> int | None:
    status = getattr(error, "status", None)
    # aiohttp warns where it is asked for a code.
    status = getattr(error, "code", None) if status is None else status
    status = status or getattr(getattr(error, "response", None), "status_code", None)
    is_number = isinstance(status, int) or (isinstance(status, str) and status.isdigit())
    return int(status) if is_number and status else None


def _is_denial(error: BaseException) -> bool:
    names = " ".join(kind.__name__ for kind in type(error).__mro__)
    return (
        isinstance(error, PermissionError)
        or _status(error) in _DENIALS
        # gcsfs says it in the text alone.
        or (isinstance(error, OSError) and str(error).startswith("Forbidden:"))
        or any(word in names for word in _CREDENTIALS)
    )


def _is_late(error: BaseException) -> bool:
    """Whether no answer came in time; each client has a class of its own for that."""
    return any("Timeout" in kind.__name__ for kind in type(error).__mro__)


def _reason(error: BaseException) -> str:
    """What an error says, in one line; its class where it says nothing. The address, which may give access, is left out."""
    text = " ".join(str(error).split())
    status = _status(error)
    if status is not None and "http" in text:
        text = f"HTTP {status} {getattr(error, 'message', '')}".strip()
    elif hasattr(error, "request_info"):
        # What aiohttp raises without a status has nothing but the address as its text.
        text = ""
    words = _CAPITAL.sub(lambda match: f" {match[0].lower()}", type(error).__name__).strip()
    text = _ADDRESS_IN_TEXT.sub("…", text) or words
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 1]}…"

"""Asks a store through fsspec: opens it once per process, asks again where that can help, and names what is wrong.

Whatever a store or its client raises becomes `FileNotFoundError` or a `StoreError` of one line.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from html import unescape
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

from msgspec import Struct

from traceview.base.errors import StoreError, TraceNotFoundError, TraceviewError, UsageError
from traceview.base.text import lazy_pattern
from traceview.store.schemes import EXTRA, SCHEMES

_Answer = TypeVar("_Answer")

PAUSES_S: Final = (0.5, 1.0, 2.0)
"""How long to wait before each further try at a web server; the clients of stores try again by themselves."""

LONGEST_WAIT_S: Final = 60
"""How long a store may take to answer, further tries included; docs/stores.md states it."""

SLOWEST_BYTES_PER_S: Final = 64 << 10
"""What is sent more slowly than this is taken for a store that has stopped answering."""

_LONGEST_REASON: Final = 160
_FINAL: Final = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    NotImplementedError,
    TypeError,
    ValueError,
)
"""Errors that another try would repeat: what is not there, not allowed or not what was taken for it, what a kind of store
cannot do at all (fsspec raises `NotImplementedError`: web servers take no files), and addresses that make no sense."""
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
    """A store, or a server. `scheme` and `authority` name it: `s3` and a bucket, `https` and a host.

    Paths begin with `/` and are not encoded.
    """

    def __init__(self, scheme: str, authority: str) -> None:
        self.scheme = scheme
        self.authority = authority
        self._kind = SCHEMES[scheme]

    @property
    def _filesystem(self) -> Any:
        return _filesystem(self.scheme, self.authority)

    def entry(self, path: str, query: str = "") -> Entry:
        """The file or folder of this path.

        Raises `FileNotFoundError` if there is none, and `TraceNotFoundError` if there is not even its bucket.
        """
        address = self._address(path, query)

        def ask() -> Any:
            self._filesystem.invalidate_cache()
            return self._filesystem.info(address)

        try:
            found = self.ask(ask, path)
        except FileNotFoundError:
            self._check_bucket(path)
            raise
        _existing.add((self.scheme, self.authority))
        is_page = self._kind.is_web and str(found.get("mimetype")).startswith("text/html")
        return _entry({**found, "type": "directory"} if is_page else found)

    def _check_bucket(self, path: str) -> None:
        """Raise `TraceNotFoundError` if the store says that the bucket is not there; a bucket is asked about once."""
        bucket = (self.scheme, self.authority)
        if not self._kind.bucket or bucket in _existing:
            return
        try:
            self.ask(lambda: self._filesystem.info(self._address("/")), path)
        except FileNotFoundError:
            raise TraceNotFoundError(
                f"{self.shown(path)}: no {self._kind.bucket} is called {self.authority}"
            ) from None
        except StoreError:
            # Who may read a file need not be allowed to ask for its bucket.
            return
        _existing.add(bucket)

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
        except DeniedError:
            if self._kind.is_web:
                # Few servers list what they let everybody read.
                return {}
            raise
        return dict(self._named(address, listed))

    def _named(self, address: str, listed: list[dict[str, Any]]) -> Iterator[tuple[str, Entry]]:
        folder = self._filesystem._strip_protocol(address).rstrip("/") + "/"
        for row in listed:
            place = str(row.get("name", ""))
            kind = str(row.get("type"))
            if self._kind.is_web:
                place = unescape(place).partition("?")[0].partition("#")[0]
            if not place.startswith(folder) or kind not in _LINK_KINDS:
                continue
            name = place[len(folder) :].rstrip("/")
            if self._kind.is_web:
                kind = "directory" if place.endswith("/") else kind
                name = unquote(name).removeprefix("./")
            if name and "/" not in name and "\0" not in name and name not in (".", ".."):
                yield name, _entry({**row, "type": kind})

    def read(
        self, path: str, begin: int, end: int | None, query: str = "", whole: int | None = None
    ) -> bytes:
        """The bytes from `begin` to `end`, or all of them from a server that knows no ranges, and for `end` None.

        `whole`: bytes of the file, all of which a web server may send.
        """
        address = self._address(path, query)
        part = {} if end is None else {"start": begin, "end": end}
        size = None if end is None else whole if self._kind.is_web else end - begin
        content: bytes = self.ask(lambda: self._filesystem.cat_file(address, **part), path, size)
        return content

    def put(self, path: str, file: str) -> None:
        """Store a local file; readers see it whole or not at all."""
        size = Path(file).stat().st_size
        self.ask(lambda: self._filesystem.put_file(file, self._address(path)), path, size)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.ask(lambda: self._filesystem.rm_file(self._address(path)), path)

    def shown(self, path: str) -> str:
        """The address as it may be shown: without a password and what else gives access."""
        authority = self.authority.rpartition("@")[2] if self._kind.is_web else self.authority
        if not authority:
            return f"{self.scheme}:/{path}"
        return f"{self.scheme}://{authority}{'' if path == '/' else path}"

    def _address(self, path: str, query: str = "") -> str:
        if self._kind.is_web:
            return f"{self.scheme}://{self.authority}{quote(path)}{query}"
        return f"{self.scheme}://{self.authority}{path}"

    def ask(self, action: Callable[[], _Answer], path: str, size: int | None = 0) -> _Answer:
        """The answer, if necessary after several tries. `size`: bytes that travel, None where nobody knows how many.

        Raises `FileNotFoundError`, or `StoreError`: also where the answer does not come in time.
        """
        limit_s = None if size is None else LONGEST_WAIT_S + size / SLOWEST_BYTES_PER_S
        ends_s = time.monotonic() + (limit_s or 0)
        for pause_s in (*(PAUSES_S if self._kind.is_web else ()), None):
            try:
                return _within(action, None if limit_s is None else ends_s - time.monotonic())
            except TraceviewError:
                raise
            except Exception as raised:
                error, cause = raised, raised.__cause__
                is_missing = isinstance(raised, FileNotFoundError)
                if self._kind.is_web and is_missing and isinstance(cause, Exception):
                    # For a web server, whatever fails is a file that is not there, with the failure as its cause.
                    error = cause
                if pause_s is None or _is_final(error):
                    # What the client raised holds the whole address, and would be in a traceback.
                    raise self._store_error(error, path) from None
                time.sleep(pause_s)
        raise AssertionError("the last try answers or raises")

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


def _within(action: Callable[[], _Answer], limit_s: float | None) -> _Answer:
    """What an action gives; raises `TimeoutError` if it has not ended by then.

    It goes on, on a thread that ends with the process: no client lets a request be taken back everywhere.
    """
    if limit_s is None:
        return action()
    answer: Future[_Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(action())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=run, daemon=True).start()
    return answer.result(max(limit_s, 0))


_existing: Final[set[tuple[str, str]]] = set()
"""Buckets that are known to be there."""

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

        if SCHEMES[scheme].is_web:
            from aiohttp import ClientTimeout

            waiting = ClientTimeout(sock_connect=LONGEST_WAIT_S, sock_read=LONGEST_WAIT_S)
            # What is packed has other lengths than the ranges that are asked for.
            headers = {"Accept-Encoding": "identity"}
            options["client_kwargs"] = {"headers": headers, "timeout": waiting}
        return url_to_fs(f"{scheme}://{authority}/", **options)[0]
    except ImportError as error:
        named = "fsspec" if error.name == "fsspec" else package
        raise UsageError(f"{scheme}:// needs {named}", hint=EXTRA) from None
    except Exception as error:
        # Most clients look for credentials here.
        raise StoreError(
            f"{scheme}://{authority.rpartition('@')[2]}: {_reason(error)}",
            hint=SCHEMES[scheme].access,
        ) from error


def _entry(row: Mapping[str, Any]) -> Entry:
    if row.get("type") == "directory":
        return Entry(0, is_folder=True)
    size = row.get("size")
    version = next((str(row[key]) for key in _VERSIONS if row.get(key)), "")
    known_size = size if isinstance(size, int) and size >= 0 else UNKNOWN_BYTES
    return Entry(known_size, version.removeprefix("W/").strip('"'))


UNKNOWN_BYTES: Final = -1
"""The size of a file in the listing of a web server, which names no sizes."""


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


def _is_final(error: BaseException) -> bool:
    """Whether asking again would give the same answer."""
    status = _status(error)
    is_refusal = status is not None and 400 <= status < 500 and status not in (408, 429)
    return isinstance(error, _FINAL) or is_refusal or _is_denial(error) or _is_late(error)


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

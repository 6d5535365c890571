"""Names files in stores as `Path` names those on disk, reads them in ranges, and writes files that were made here."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, Literal

from traceview.base.errors import StoreError, TraceNotFoundError, UsageError
from traceview.base.location import Location
from traceview.store.schemes import SCHEMES
from traceview.store.service import DeniedError, Entry, Service, SilentError

DEEPEST: Final = 16
MOST_FOLDERS: Final = 10_000
"""No log directory is so large."""

_LISTED_AT_ONCE: Final = 16


@dataclass(frozen=True, order=True, repr=False)
class RemotePath:
    """A place in a store: a file, a folder, or a name that neither has. See `traceview.base.location.Location`.

    What listings have said it does not ask again: `listing` has by folder the entries in it. `known`: what the store said when
    it was asked for this place alone.
    """

    scheme: str
    authority: str
    path: PurePosixPath
    known: Entry | None = field(default=None, compare=False)
    listing: Mapping[PurePosixPath, Mapping[str, Entry]] = field(
        default_factory=dict, compare=False
    )

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __str__(self) -> str:
        return self._service.shown(self._text).rstrip("/")

    # Its name

    @property
    def name(self) -> str:
        """The last part; that of a bucket or host where there is no other."""
        return self.path.name or self.authority

    @property
    def suffix(self) -> str:
        """The ending of the name."""
        return self.path.suffix

    @property
    def parent(self) -> RemotePath:
        """The folder that holds it."""
        return replace(self, path=self.path.parent, known=None)

    @property
    def parents(self) -> tuple[RemotePath, ...]:
        """All folders that hold it, the innermost first."""
        return tuple(replace(self, path=path, known=None) for path in self.path.parents)

    def __truediv__(self, name: str) -> RemotePath:
        return replace(self, path=self.path / name.lstrip("/"), known=None)

    def with_name(self, name: str) -> RemotePath:
        """The place of this name in the same folder."""
        return self.parent / name

    def relative_to(self, folder: RemotePath) -> PurePosixPath:
        """The way from `folder` to this place."""
        if (folder.scheme, folder.authority) != (self.scheme, self.authority):
            raise ValueError(f"{self} is not below {folder}")
        return self.path.relative_to(folder.path)

    def resolve(self) -> RemotePath:
        """Itself: stores have no links."""
        return self

    # What is there

    def stat(self) -> Entry:
        """What the store says of it; raises `FileNotFoundError` if there is nothing."""
        known = self.known or self.listing.get(self.path.parent, {}).get(self.path.name)
        if known:
            return known
        # Nothing lies below what is not there.
        ways = zip((self.path, *self.path.parents), self.path.parents, strict=False)
        if any(
            folder in self.listing and way.name not in self.listing[folder] for way, folder in ways
        ):
            raise FileNotFoundError(str(self))
        return self._service.entry(self._text)

    def asked(self) -> RemotePath:
        """The same place, with what the store says of it now; raises `FileNotFoundError` and `StoreError`."""
        return replace(self, known=self._service.entry(self._text))

    def exists(self) -> bool:
        """Whether there is a file or a folder."""
        return self._is_folder() is not None

    def is_file(self) -> bool:
        """Whether there is a file."""
        return self._is_folder() is False

    def is_dir(self) -> bool:
        """Whether there is a folder."""
        return self._is_folder() is True

    def _is_folder(self) -> bool | None:
        try:
            return self.stat().is_folder
        except (FileNotFoundError, DeniedError):
            # Some stores deny what is not there.
            return None

    def iterdir(self) -> Iterator[RemotePath]:
        """What the folder holds."""
        folder = self if self.path in self.listing else self.listed()
        for name in folder.listing[self.path]:
            yield folder / name

    def walk(self) -> Iterator[tuple[RemotePath, list[str], list[str]]]:
        """As `os.walk`: each folder, with the names of those in it, which the caller may shorten, and of its files.

        Folders of one level are listed at the same time. Raises `TraceNotFoundError` if they never end.
        """
        level = [self.listed()]
        count = 0
        with ThreadPoolExecutor(_LISTED_AT_ONCE) as pool:
            for _ in range(DEEPEST):
                below: list[RemotePath] = []
                for folder in level:
                    content = folder.listing[folder.path]
                    folders = sorted(name for name, entry in content.items() if entry.is_folder)
                    names = [name for name, entry in content.items() if not entry.is_folder]
                    yield folder, folders, names
                    below += [folder / name for name in folders]
                    count += len(folders)
                    if count > MOST_FOLDERS:
                        raise TraceNotFoundError(
                            f"{self}: more than {MOST_FOLDERS:,} folders below it",
                            hint="name the log directory or the run itself",
                        )
                if not below:
                    return
                level = list(pool.map(RemotePath.listed, below))

    def listed(self) -> RemotePath:
        """The same place, with what lies in it now."""
        found = self._service.entries(self._text)
        return replace(self, listing={**self.listing, self.path: found})

    # Its content

    def open(self, mode: Literal["rb"] = "rb") -> BinaryIO:
        """The file, to be read in parts or whole. Raises `FileNotFoundError`, `IsADirectoryError`, `StoreError`."""
        # Listings may write versions in another way than what is said of one file.
        entry = self._service.entry(self._text)
        if entry.is_folder:
            raise IsADirectoryError(21, "Is a directory", str(self))
        return io.BufferedReader(RemoteFile(self._service, self._text, entry), BLOCK_BYTES)

    def read_bytes(self) -> bytes:
        """The content of the file."""
        with self.open() as file:
            return file.read()

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The content of a text file."""
        return self.read_bytes().decode(encoding, errors)

    def put(self, file: str) -> None:
        """Store a local file here; readers see it whole or not at all."""
        self._service.put(self._text, file)

    # Inside

    @property
    def _text(self) -> str:
        return str(self.path) if self.path.name else "/"

    @property
    def _service(self) -> Service:
        return Service(self.scheme, self.authority)


def remote_path(scheme: str, rest: str) -> RemotePath:
    """The place that `rest`, what stands behind `scheme://`, names there; raises `UsageError` if it names none.

    No message repeats an address that may hold a key or a password, be it in a form that none may have.
    """
    kind = SCHEMES[scheme]
    authority, _, path = ("", "", rest) if scheme == "memory" else rest.partition("/")
    if _has_credentials(scheme, authority):
        raise UsageError(f"{scheme}://: an address takes no key and password", hint=kind.access)
    if not authority and kind.bucket:
        raise UsageError(f"{scheme}://: names no {kind.bucket}")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise UsageError(f"{scheme}://…/{path}: a store has no folder ..")
    return RemotePath(scheme, authority, PurePosixPath("/", *parts))


def _has_credentials(scheme: str, authority: str) -> bool:
    """Whether a bucket is none: no name of one has a colon or an @, but those of access points and of Azure have.

    A secret may have slashes, so that what follows `KEY:` may look like a folder.
    """
    if scheme in ("az", "abfs"):
        return ":" in authority
    return not authority.startswith("arn:") and any(mark in authority for mark in ":@")


# Writing: a store shows a file when it has all of it


def writable(place: Location) -> RemotePath:
    """The place, with what the store says of it now; raises `UsageError` if nothing can be written there."""
    assert isinstance(place, RemotePath)
    try:
        return place.asked()
    except FileNotFoundError:
        # Nothing is there, and nothing lies below it.
        return replace(place, known=None, listing={place.path.parent: {}, place.path: {}})


def put_file(place: Location, made: Path) -> None:
    """Store a file that was made on this machine. Raises `StoreError`."""
    path = writable(place)
    try:
        path.put(str(made))
    except FileNotFoundError:
        raise UsageError(f"cannot write {path}: there is no {path.parents[-1]}") from None


# Reading

BLOCK_BYTES: Final = 1 << 20
"""The least that is asked for: a request takes as long as a megabyte."""

RANGE_BYTES: Final = 8 << 20
AT_ONCE: Final = 8
"""Requests for one file at the same time: one alone does not fill a network."""


class RemoteFile(io.RawIOBase):
    """A file of a store, opened to be read; `entry`: what the store said of it then."""

    def __init__(self, service: Service, path: str, entry: Entry) -> None:
        super().__init__()
        self._service = service
        self._path = path
        self._entry = entry
        self._place = 0
        self._has_part = False

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte; returns which."""
        size = self._entry.st_size
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: size}[whence]
        self._place = max(0, base + place)
        return self._place

    def readall(self) -> bytes:
        """All that follows."""
        return self.read(max(0, self._entry.st_size - self._place)) or b""

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes, in several ranges at the same time; returns how many, fewer only at the end.

        Raises `StoreError`, also if the store has another file by now than when this one was opened.
        """
        begin, end = self._place, min(self._place + len(buffer), self._entry.st_size)
        begins = range(begin, end, RANGE_BYTES)
        if not begins:
            return 0
        try:
            for at, data in zip(begins, self._read_at_once(begins, end), strict=True):
                buffer[at - begin : at - begin + len(data)] = data
        except SilentError:
            raise
        except (StoreError, FileNotFoundError):
            self._check_same()
            raise
        if self._has_part or len(begins) > 1:
            self._check_same()
        self._has_part = True
        self._place = end
        return end - begin

    def _read_at_once(self, begins: Sequence[int], end: int) -> list[bytes]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            reads = [pool.submit(self._read, at, min(at + RANGE_BYTES, end)) for at in begins]
            try:
                return [read.result() for read in reads]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _read(self, begin: int, end: int) -> bytes:
        # One byte more than there should be shows that the file has grown.
        data = self._service.read(self._path, begin, end + (end == self._entry.st_size))
        if len(data) != end - begin:
            name = self._service.shown(self._path)
            raise StoreError(f"{name}: {len(data):,} bytes came instead of {end - begin:,}")
        return data

    def _check_same(self) -> None:
        try:
            if self._service.entry(self._path) == self._entry:
                return
        except FileNotFoundError:
            # It was deleted, which is a change, too.
            pass
        raise StoreError(
            f"{self._service.shown(self._path)}: the file changed while it was read",
            hint="read it again when nothing writes it any more",
        )

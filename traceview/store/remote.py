"""Names files in stores as `Path` names those on disk; reads each of their bytes once, and writes files that were made here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, Literal, cast

from traceview.base.errors import StoreError, TraceNotFoundError, UsageError
from traceview.base.location import Location
from traceview.store.ranges import RemoteFile
from traceview.store.schemes import SCHEMES
from traceview.store.service import DeniedError, Entry, Service

DEEPEST: Final = 16
MOST_FOLDERS: Final = 10_000
"""No log directory is so large."""

_LISTED_AT_ONCE: Final = 16


@dataclass(frozen=True, order=True, repr=False)
class RemotePath:
    """A place in a store: a file, a folder, or a name that neither has. See `traceview.base.location.Location`.

    What a listing has said of it, it knows and does not ask again: `known` is its entry there, `folder` all that lies
    beside it, `content` all that lies in it.
    """

    scheme: str
    authority: str
    path: PurePosixPath
    known: Entry | None = field(default=None, compare=False)
    folder: Mapping[str, Entry] | None = field(default=None, compare=False)
    content: Mapping[str, Entry] | None = field(default=None, compare=False)

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
        return replace(self, path=self.path.parent, known=None, folder=None, content=self.folder)

    @property
    def parents(self) -> tuple[RemotePath, ...]:
        """All folders that hold it, the innermost first."""
        return tuple(
            replace(self, path=path, known=None, folder=None, content=None)
            for path in self.path.parents
        )

    def __truediv__(self, name: str) -> RemotePath:
        place = self
        for part in PurePosixPath(name.lstrip("/")).parts:
            known = None if place.content is None else place.content.get(part)
            # Nothing lies below what is not there.
            content: Mapping[str, Entry] | None = None
            if place.content is not None and known is None:
                content = {}
            place = replace(
                place,
                path=place.path / part,
                known=known,
                folder=place.content,
                content=content,
            )
        return place

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
        if self.known is not None:
            return self.known
        if self.folder is not None:
            raise FileNotFoundError(str(self))
        return self._service.entry(self._text)

    def asked(self) -> RemotePath:
        """The same place, with what the store says of it now; raises `FileNotFoundError` and `StoreError`."""
        return replace(self, known=self._service.entry(self._text))

    def vacant(self) -> RemotePath:
        """The same place, of which it is known that nothing is there."""
        return replace(self, known=None, folder={}, content={})

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
        if self.known is not None:
            return self.known.is_folder
        try:
            return self.stat().is_folder
        except (FileNotFoundError, DeniedError):
            # Some stores deny what is not there.
            return None

    def iterdir(self) -> Iterator[RemotePath]:
        """What the folder holds."""
        folder = self if self.content is not None else self.listed()
        for name in folder.content or ():
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
                    content = folder.content or {}
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
        return replace(self, content=self._service.entries(self._text))

    # Its content

    def open(self, mode: Literal["rb"] = "rb") -> BinaryIO:
        """The file, to be read in parts or whole. Raises `FileNotFoundError`, `IsADirectoryError`, `StoreError`."""
        entry = self.stat()
        if entry.is_folder:
            raise IsADirectoryError(21, "Is a directory", str(self))
        # It is what `open` gives in Python, which no class of `io` says of itself.
        return cast("BinaryIO", RemoteFile(self._service, self._text, entry))

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

    def unlink(self) -> None:
        """Remove the file."""
        self._service.remove(self._text)

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
        return place.vacant()
    except TraceNotFoundError as error:
        raise UsageError(f"cannot write {error.message}") from None


def put_file(place: Location, made: Path) -> None:
    """Store a file that was made on this machine. Raises `StoreError`."""
    _put(writable(place), made)


def _put(path: RemotePath, made: Path) -> None:
    try:
        path.put(str(made))
    except FileNotFoundError:
        raise UsageError(f"cannot write {path}: there is no {path.parents[-1]}") from None


def put_files(place: Location, made: Path, names: Iterable[str], others: Iterable[str]) -> None:
    """Store the files of these names in the folder `made`, and remove `others` there, which belong to another report.

    If a file cannot be written, those that are new are removed. Raises `StoreError`.
    """
    folder = writable(place)
    is_new = {name: not (folder / name).exists() for name in names}
    written: list[RemotePath] = []
    try:
        for name in is_new:
            _put(folder / name, made / name)
            written += [folder / name] if is_new[name] else []
    except BaseException:
        for path in written:
            with suppress(StoreError, FileNotFoundError):
                path.unlink()
        raise
    for name in others:
        with suppress(FileNotFoundError):
            if (folder / name).exists():
                (folder / name).unlink()

"""Reads a file of a store in ranges: several at the same time, and each byte once.

What has been read in part is kept for a while, because a run is chosen by parts of its files before it is read.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Final

from traceview.base.errors import StoreError
from traceview.store.service import SilentError

if TYPE_CHECKING:
    from traceview.store.service import Entry, Service

BLOCK_BYTES: Final = 1 << 20
"""The least that is asked for: a request takes as long as a megabyte."""

RANGE_BYTES: Final = 8 << 20
AT_ONCE: Final = 8
"""Requests for one file at the same time: one alone does not fill a network."""

KEPT_BYTES: Final = 256 << 20

_kept: OrderedDict[tuple[str, int, str], dict[int, bytes]] = OrderedDict()
"""By file and its version the blocks that were read, by number."""
_keeping: Final = Lock()


def forget() -> None:
    """Keep nothing of what was read."""
    with _keeping:
        _kept.clear()


def _blocks_of(key: tuple[str, int, str]) -> dict[int, bytes]:
    with _keeping:
        blocks = _kept.setdefault(key, {})
        _kept.move_to_end(key)
        while len(_kept) > 1 and _size_of_kept() > KEPT_BYTES:
            _kept.popitem(last=False)
    return blocks


def _size_of_kept() -> int:
    return sum(len(block) for blocks in _kept.values() for block in blocks.values())


class RemoteFile(io.RawIOBase):
    """A file of a store, opened to be read."""

    def __init__(self, service: Service, path: str, entry: Entry) -> None:
        super().__init__()
        self._service = service
        self._path = path
        self._entry = entry
        self._key = service.shown(path), entry.st_size, entry.version
        self._blocks = _blocks_of(self._key)
        self._size = entry.st_size
        self._place = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte; returns which."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = max(0, base + place)
        return self._place

    def read(self, count: int | None = -1) -> bytes:
        """The next bytes: all of them for -1, fewer only at the end."""
        begin = min(self._place, self._size)
        end = self._size if count is None or count < 0 else min(begin + count, self._size)
        self._place = end
        numbers = range(begin // BLOCK_BYTES, -(-end // BLOCK_BYTES))
        self._fetch([number for number in numbers if number not in self._blocks])
        data = b"".join(self._blocks[number] for number in numbers)
        if begin == 0 and end == self._size:
            # Nobody reads a part after the whole.
            self._blocks.clear()
            return data
        first = numbers.start * BLOCK_BYTES
        return data[begin - first : end - first]

    def _fetch(self, missing: list[int]) -> None:
        ranges = list(_joined(missing))
        has_parts = bool(self._blocks)
        try:
            if len(ranges) == 1:
                self._read(*ranges[0])
            elif ranges:
                self._read_at_once(ranges)
        except SilentError:
            raise
        except (StoreError, FileNotFoundError) as error:
            if isinstance(error, StoreError) or self._blocks:
                self._check_same()
            raise
        if ranges and (has_parts or len(ranges) > 1):
            self._check_same()

    def _read_at_once(self, ranges: list[tuple[int, int]]) -> None:
        with ThreadPoolExecutor(min(AT_ONCE, len(ranges))) as pool:
            reads = [pool.submit(self._read, begin, end) for begin, end in ranges]
            try:
                for read in reads:
                    read.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _read(self, begin: int, end: int) -> None:
        end = min(end, self._size)
        # One byte more than there should be shows that the file has grown.
        data = self._service.read(self._path, begin, end + (end == self._size))
        if len(data) != end - begin:
            name = self._service.shown(self._path)
            raise StoreError(f"{name}: {len(data):,} bytes came instead of {end - begin:,}")
        for place in range(begin, end, BLOCK_BYTES):
            offset = place - begin
            self._blocks[place // BLOCK_BYTES] = data[offset : offset + BLOCK_BYTES]

    def _check_same(self) -> None:
        """Raise `StoreError` if the store has another file by now than when this one was opened.

        Listings may write versions in another way than what is said of one file, so both are asked before that is said.
        """
        try:
            if self._service.entry(self._path) == self._entry:
                return
            folder, _, name = self._path.rpartition("/")
            if self._service.entries(folder or "/").get(name) == self._entry:
                return
        except FileNotFoundError:
            # It was deleted, which is a change, too.
            pass
        with _keeping:
            _kept.pop(self._key, None)
        raise StoreError(
            f"{self._service.shown(self._path)}: the file changed while it was read",
            hint="read it again when nothing writes it any more",
        )


def _joined(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Blocks beside each other as ranges of bytes, none longer than one request should be."""
    most = RANGE_BYTES // BLOCK_BYTES
    begin = 0
    for place in range(1, len(numbers) + 1):
        is_end = place == len(numbers) or numbers[place] != numbers[place - 1] + 1
        if is_end or place - begin == most:
            yield numbers[begin] * BLOCK_BYTES, (numbers[place - 1] + 1) * BLOCK_BYTES
            begin = place

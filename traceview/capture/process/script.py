"""Runs a script as if Python had been started with it.

It runs in this process and thread as `__main__`, with its own arguments and `sys.path[0]`. Its module stays in
`sys.modules` afterwards, because its `atexit` functions and threads still look things up there.

With a `typer.py` beside it, a script means that one, and traceview the installed one, which it has imported long before.
"""

from __future__ import annotations

import atexit
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader, all_suffixes
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any, Final
from zipfile import is_zipfile

from traceview.base.errors import UsageError
from traceview.capture.process.termination import ENDINGS, SIGNALLED, interrupts_held

_INTERRUPTED: Final = SIGNALLED + signal.SIGINT
FILE: Final = __file__
"""Where the frames are that the script runs in."""
_OUR_FRAMES: Final = f"{Path(__file__).parent.parent}{os.sep}"
_DEMO_FRAMES: Final = f"{_OUR_FRAMES}demo{os.sep}"
"""The demo is a script like any other, although it is ours."""


@dataclass(frozen=True)
class ScriptEnd:
    """How a script ended: its exit code, and whether an exception other than `SystemExit` ended it.

    `signal`: the number of the signal that ended it, None if none did.
    """

    code: int
    is_failure: bool
    signal: int | None = None

    @classmethod
    def by_error(cls, error: BaseException | None) -> ScriptEnd:
        """An exception that nothing caught ends it; None: it comes to its last line."""
        is_failure = not isinstance(error, SystemExit | None)
        number = signal.SIGINT if isinstance(error, KeyboardInterrupt) else None
        return cls(_exit_code(error), is_failure, number)

    @classmethod
    def by_signal(cls, number: int) -> ScriptEnd:
        """A signal ends it."""
        return cls(SIGNALLED + number, is_failure=False, signal=number)

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal ended it, or its own handler of such a signal."""
        return self.signal is not None or self.code in {SIGNALLED + number for number in ENDINGS}


@dataclass(frozen=True)
class Script:
    """What to run: the path of a file, or of a directory or zip archive with a `__main__.py`; with `is_module`, a module."""

    name: str
    arguments: Sequence[str] = ()
    is_module: bool = False

    def check(self) -> None:
        """Raise `UsageError` if there is no such script. A module is only looked up when it runs."""
        if self.is_module:
            return
        path = Path(self.name)
        if not path.exists():
            raise UsageError(f"script not found: {self.name}", hint=self._hint())
        if path.is_file() and not os.access(path, os.R_OK):
            raise UsageError(f"script cannot be read: {self.name}")
        if path.is_dir() and not (path / "__main__.py").is_file():
            raise UsageError(f"{self.name} is a directory without a __main__.py")

    def _hint(self) -> str:
        if self.name.startswith("-"):
            return "put options of traceview capture before the script"
        if not self.name.endswith(".py") and all(p.isidentifier() for p in self.name.split(".")):
            return f"to run a module: traceview capture -m {self.name}; no program of this name is installed"
        return "give the path of a Python file"

    def run(
        self, before_exit: Callable[[ScriptEnd], None], say: Callable[[str], None]
    ) -> ScriptEnd:
        """Run it to its end and print its traceback as Python does.

        `before_exit` is called right after the script, however it ended; a first Ctrl-C in it only makes `say` print
        a line. Raises `UsageError` if a module is not found.
        """
        load = self._load_module if self.is_module else self._load_file
        error: BaseException | None = None
        folder = self._folder()
        _set_first_path(folder)
        modules = OwnModules(folder)
        modules.give_way()
        try:
            code, module = load()
        except UsageError:
            raise
        except BaseException as raised:
            error = raised
        else:
            error = self._execute(code, module)
        finally:
            modules.come_back()
        end = ScriptEnd.by_error(error)
        with interrupts_held(say):
            # The traceback first, as with plain Python; saving the capture may take a while.
            if error is not None:
                _show(error)
            before_exit(end)
        return end

    def _execute(self, code: CodeType, module: ModuleType) -> BaseException | None:
        sys.modules["__main__"] = module
        sys.argv[:] = [str(module.__file__) if self.is_module else self.name, *self.arguments]
        try:
            exec(code, vars(module))
        except BaseException as error:
            return error
        return None

    def _folder(self) -> str:
        """Where Python looks for modules first."""
        if self.is_module:
            return str(Path.cwd())
        path = Path(self.name)
        # Python resolves links here, and only here.
        is_folder = path.is_dir() or is_zipfile(path)
        return str(Path.cwd() / path) if is_folder else str(Path(os.path.realpath(path)).parent)

    def _load_file(self) -> tuple[CodeType, ModuleType]:
        path = Path(self.name)
        if path.is_dir() or is_zipfile(path):
            # As Python does: the name of a directory as it is given, that of an archive made absolute.
            place = self.name if path.is_dir() else str(Path.cwd() / path)
            spec = PathFinder.find_spec("__main__", [place])
            if spec is None:
                raise UsageError(f"{self.name} has no __main__.py")
            return _code_of(spec), _main_module(spec, package="")
        file_name = str(Path.cwd() / path)
        with io.open_code(file_name) as file:
            source = file.read()
        module = _empty_main()
        module.__file__ = file_name
        module.__loader__ = SourceFileLoader("__main__", file_name)
        return compile(source, file_name, "exec", dont_inherit=True), module

    def _load_module(self) -> tuple[CodeType, ModuleType]:
        spec = _spec_of(self.name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = _spec_of(f"{self.name}.__main__")
        if spec is None:
            raise UsageError(
                f"module not found, or not runnable: {self.name}",
                hint="-m takes a module, or a package with a __main__, as python -m does",
            )
        package = spec.parent if spec.parent is not None else ""
        return _code_of(spec), _main_module(spec, package=package)


def _spec_of(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except ModuleNotFoundError as error:
        # The module or its package does not exist; any other missing import is the script's own error.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise


def _code_of(spec: ModuleSpec) -> CodeType:
    code: CodeType | None = None
    # Of the import system's loaders only those of Python code have the method.
    get_code: Callable[[str], CodeType | None] | None = getattr(spec.loader, "get_code", None)
    if get_code is not None:
        code = get_code(spec.name)
    if code is None:
        raise UsageError(f"module without Python code: {spec.name}")
    return code


def _main_module(spec: ModuleSpec, *, package: str) -> ModuleType:
    module = _empty_main()
    module.__file__ = spec.origin
    module.__loader__ = spec.loader
    module.__package__ = package
    module.__spec__ = spec
    vars(module)["__cached__"] = spec.cached
    return module


def _empty_main() -> ModuleType:
    module = ModuleType("__main__")
    names = vars(module)
    names.update(__builtins__=sys.modules["builtins"], __cached__=None)
    if sys.version_info < (3, 14):
        names["__annotations__"] = {}
    return module


def _set_first_path(directory: str) -> None:
    # With -P or PYTHONSAFEPATH Python adds no directory.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[:1] = [directory]


def _exit_code(error: BaseException | None) -> int:
    if error is None:
        return 0
    if isinstance(error, KeyboardInterrupt):
        return _INTERRUPTED
    if not isinstance(error, SystemExit):
        return 1
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


def _show(error: BaseException) -> None:
    """Print a traceback, or the message of `SystemExit`, if it has one."""
    if not isinstance(error, SystemExit):
        without_our_frames(error)
        sys.excepthook(type(error), error, error.__traceback__)
    elif not isinstance(error.code, int | None):
        sys.stderr.write(f"{error.code}\n")


def without_our_frames(error: BaseException) -> None:
    """Remove the frames of this package from the tracebacks of an exception, its causes and contexts."""
    visited: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in visited:
            continue
        visited.add(id(current))
        current.__traceback__ = _stripped(current.__traceback__)
        waiting += [current.__cause__, current.__context__]


def _stripped(trace: TracebackType | None) -> TracebackType | None:
    kept = []
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not path.startswith(_OUR_FRAMES) or path.startswith(_DEMO_FRAMES):
            kept.append(trace)
        trace = trace.tb_next
    result: TracebackType | None = None
    for entry in reversed(kept):
        result = TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result


@contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM and the end of the terminal into `SystemExit(128 + number)`, unless they are handled already."""
    process = os.getpid()

    def terminate(number: int, _frame: FrameType | None) -> Any:
        if os.getpid() != process:
            # A forked child ends as it would without us.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        raise SystemExit(SIGNALLED + number)

    handled = [number for number in ENDINGS if _take(number, terminate)]
    try:
        yield
    finally:
        for number in handled:
            if signal.getsignal(number) is terminate:
                signal.signal(number, signal.SIG_DFL)


def _take(number: int, handler: Callable[[int, FrameType | None], Any]) -> bool:
    """Handle a signal that is not handled yet; False if it is, or outside the main thread."""
    if signal.getsignal(number) is not signal.SIG_DFL:
        return False
    try:
        signal.signal(number, handler)
    except ValueError:
        return False
    return True


_AT_START: Final = frozenset(
    [
        "__main__",
        "_collections_abc",
        "abc",
        "builtins",
        "codecs",
        "encodings",
        "genericpath",
        "io",
        "ntpath",
        "os",
        "posixpath",
        "site",
        "stat",
        "sys",
        "traceview",
        "zipimport",
    ]
)
"""Python has imported these before any script, or `traceview` itself."""
_LATE: Final = (
    "traceview.xplane.decode_reference",
    "traceview.xplane.planes",
    "traceview.xplane.read",
    "traceview.xplane.space",
    "pynvml",
)
"""What a capture imports while the script runs."""


class OwnModules:
    """The names that both use, for a script in `folder`. Without any, nothing is changed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        own = set(_modules_in(Path(folder))) - _AT_START
        self._names = {name for name in own if name in sys.modules or self._is_elsewhere(name)}
        self._others: dict[str, ModuleType] = {}
        self._place: int | None = None
        if self._shared(set(sys.modules)):
            for name in _LATE:
                with suppress(ImportError):
                    import_module(name)

    def give_way(self) -> None:
        """The script begins: it finds its own modules."""
        self._exchange()

    def come_back(self) -> None:
        """The script has ended: traceview finds its own again, until the functions run that the script left behind."""
        if not self._names:
            return
        self._exchange()
        with suppress(ValueError):
            self._place = sys.path.index(self._folder)
            del sys.path[self._place]
        atexit.register(self._leave)

    def _leave(self) -> None:
        self._exchange()
        if self._place is not None:
            sys.path.insert(self._place, self._folder)

    def _exchange(self) -> None:
        loaded = {name: sys.modules.pop(name) for name in self._shared(set(sys.modules))}
        sys.modules.update(self._others)
        self._others = loaded

    def _is_elsewhere(self, name: str) -> bool:
        paths = [path for path in sys.path if path != self._folder]
        spec = PathFinder.find_spec(name, paths)
        return spec is not None and not str(spec.origin).startswith(self._folder)

    def _shared(self, loaded: set[str]) -> list[str]:
        return [name for name in loaded if name.partition(".")[0] in self._names]


def _modules_in(folder: Path) -> Iterator[str]:
    """The names of the modules and packages in a folder."""
    suffixes = tuple(all_suffixes())
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name.endswith(suffixes):
                yield path.name.partition(".")[0]
            elif (path / "__init__.py").is_file():
                yield path.name

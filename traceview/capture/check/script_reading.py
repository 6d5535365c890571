"""Reads, without running it, what a training script says about its own profiling and placement.

Only literal code counts: calls by the names of their imports, and constants. What a script computes stays unknown.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from traceview.base.errors import UsageError

MOST_BYTES: Final = 4 << 20
"""Nobody writes longer scripts by hand."""

_ROOTS: Final = ("tensorflow.", "keras.", "tf_keras.")
_JAX: Final = ("jax.", "flax.", "optax.", "equinox.")
_STRATEGIES: Final = (
    "MirroredStrategy",
    "MultiWorkerMirroredStrategy",
    "CentralStorageStrategy",
    "OneDeviceStrategy",
    "ParameterServerStrategy",
    "TPUStrategy",
)
_MODELS: Final = ("Sequential", "Model", "clone_model", "load_model", "model_from_json")
_CREATORS: Final = ("keras.applications.", "keras.metrics.", "keras.models.", "keras.optimizers.")
"""No layers: their variables are created when the model is built."""
_SCHEDULES: Final = "keras.optimizers.schedules."


@dataclass(frozen=True)
class Call:
    """A call of TensorFlow or Keras, by the full name of the function, with its literal arguments."""

    name: str
    line: int
    keywords: dict[str, Any]
    arguments: tuple[Any, ...]


class Unknown:
    """The value of an argument that is not a constant."""

    def __repr__(self) -> str:
        return "..."


UNKNOWN: Final = Unknown()


@dataclass(frozen=True)
class ScriptReading:
    """What one file says. Lines count from 1.

    `variables_outside`: (line, name) of models, optimizers and variables created outside `strategy.scope()` although
    there is a strategy.
    """

    path: Path
    calls: tuple[Call, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    variables_outside: tuple[tuple[int, str], ...] = ()
    imports_tensorflow: bool = False
    imports_jax: bool = False

    def named(self, *names: str) -> list[Call]:
        """The calls whose name ends with one of `names`, whole parts only."""
        return [
            call for call in self.calls if any(f".{call.name}".endswith(f".{n}") for n in names)
        ]

    @property
    def strategies(self) -> list[Call]:
        """The calls that create a distribution strategy."""
        return self.named(*_STRATEGIES)


def read_script(path: Path) -> ScriptReading:
    """Read a file; raises `UsageError` with the reason if it is not readable Python."""
    if path.is_dir():
        path = path / "__main__.py"
    if not path.is_file():
        raise UsageError(f"script not found: {path}")
    try:
        size = path.stat().st_size
        source = path.read_bytes() if size <= MOST_BYTES else b""
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    if size > MOST_BYTES:
        raise UsageError(f"{path} has {size >> 20} MiB, too many for a script")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, filename=str(path))
        return _Reader(path, tree).read()
    except SyntaxError as error:
        raise UsageError(f"{path}:{error.lineno or 1}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} is not readable Python: {error}") from error


class _Reader:
    def __init__(self, path: Path, tree: ast.Module) -> None:
        self._path = path
        self._tree = tree
        self._aliases = dict(_imports(tree))
        self._functions = {
            node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
        }
        self._classes = {
            node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
        }

    def read(self) -> ScriptReading:
        nodes = list(ast.walk(self._tree))
        calls = [self._call(node) for node in nodes if isinstance(node, ast.Call)]
        return ScriptReading(
            path=self._path,
            calls=tuple(sorted((call for call in calls if call), key=lambda call: call.line)),
            environment=dict(self._environment(nodes)),
            variables_outside=tuple(sorted(set(self._outside()))),
            imports_tensorflow=any(
                f"{name}.".startswith(_ROOTS) for name in self._aliases.values()
            ),
            imports_jax=any(f"{name}.".startswith(_JAX) for name in self._aliases.values()),
        )

    def _name(self, node: ast.AST) -> str:
        """`tf.keras.Model` as `tensorflow.keras.Model`; methods of unknown objects keep their last part."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            parts.append(self._aliases.get(node.id, node.id))
        return ".".join(reversed(parts))

    def _call(self, node: ast.Call) -> Call | None:
        name = self._name(node.func)
        is_known = name.startswith((*_ROOTS, *_JAX))
        if not is_known and not (
            isinstance(node.func, ast.Attribute) and node.func.attr == "compile"
        ):
            return None
        return Call(
            name if is_known else "compile",
            node.lineno,
            {word.arg: self._constant(word.value) for word in node.keywords if word.arg},
            tuple(self._constant(argument) for argument in node.args),
        )

    @staticmethod
    def _constant(node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return UNKNOWN

    def _environment(self, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
        """`os.environ["NAME"] = "value"` with two constants, anywhere in the script."""
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                target = node.targets[0]
                if self._name(target.value) == "os.environ":
                    key, value = self._constant(target.slice), self._constant(node.value)
                    if isinstance(key, str) and isinstance(value, str):
                        yield key, value

    # Variables outside strategy.scope()

    def _outside(self) -> Iterator[tuple[int, str]]:
        bodies = [self._tree.body, *(function.body for function in self._functions.values())]
        for body in filter(self._makes_strategy, bodies):
            for node in _own(body, with_scopes=False):
                creator = self._creation(node, set()) if isinstance(node, ast.Call) else ""
                if creator and isinstance(node, ast.Call):
                    yield node.lineno, creator

    def _makes_strategy(self, body: Sequence[ast.stmt]) -> bool:
        """Whether this block creates a strategy and does not enter its scope with `enter_context`."""
        has_strategy = False
        for node in _own(body):
            if isinstance(node, ast.Call):
                name = self._name(node.func)
                has_strategy |= name.startswith(_ROOTS) and name.rpartition(".")[2] in _STRATEGIES
                if name.endswith("enter_context") and any(map(_is_scope, node.args)):
                    return False
        return has_strategy

    def _creation(self, node: ast.Call, visited: set[str]) -> str:
        """The name of what creates variables in a call, empty if nothing visible does."""
        name = self._name(node.func)
        last = name.rpartition(".")[2]
        if name.startswith(_ROOTS):
            is_creator = any(part in name for part in _CREATORS) and _SCHEDULES not in name
            is_creator = is_creator and last[:1].isupper()
            return name if is_creator or last in _MODELS or last == "Variable" else ""
        if name in self._classes:
            bases = [self._name(base) for base in self._classes[name].bases]
            is_model = any(
                b.startswith(_ROOTS) and b.endswith((".Model", ".Module")) for b in bases
            )
            return name if is_model else ""
        if name in self._functions and name not in visited:
            visited.add(name)
            for inner in _own(self._functions[name].body, with_scopes=False):
                if isinstance(inner, ast.Call):
                    creator = self._creation(inner, visited)
                    if creator:
                        return f"{name}() → {creator}"
        return ""


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    (alias.asname, alias.name)
                    if alias.asname
                    else (alias.name.partition(".")[0],) * 2
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _own(statements: Iterable[ast.AST], *, with_scopes: bool = True) -> Iterator[ast.AST]:
    """The nodes of a block without those of functions and classes in it; `with_scopes`: with those of `scope()`."""
    waiting = list(statements)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if not with_scopes and _enters_scope(node):
            continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))


def _enters_scope(node: ast.AST) -> bool:
    return isinstance(node, ast.With) and any(_is_scope(item.context_expr) for item in node.items)


def _is_scope(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "scope"
    )

"""What is put around a function is called with it, compiled or in Python, whatever names the function has."""

from __future__ import annotations

from typing import Any

import pytest

from traceview.capture.process import around as module
from traceview.capture.process.around import around


class Unnamed:
    """As a function of nanobind."""

    def __init__(self) -> None:
        self.__name__, self.__qualname__ = "ready", None

    def __call__(self, value: int) -> int:
        return 2 * value


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_function_without_a_qualified_name(
    is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(module, "NATIVE", None)
    seen: list[Any] = []

    def after(token: Any, result: Any, error: BaseException | None) -> Any:
        seen.append((token, result, error))
        return result

    hooked = around(Unnamed(), lambda value: -value, after)
    assert hooked(21) == 42
    assert seen == [(-21, 42, None)]
    assert hooked.__name__ == "ready"

"""Does the bootstrap get as far as its own message on a Python that is too old, and does its demo always show something?"""

from __future__ import annotations

import ast
from pathlib import Path

DEV = Path(__file__).parent.parent / "scripts" / "dev.py"


def test_it_parses_on_an_old_python() -> None:
    tree = ast.parse(DEV.read_text(encoding="utf-8"), feature_version=(3, 7))
    # The first thing done after imports that an old Python has as well.
    guard = next(
        node for node in tree.body[1:] if not isinstance(node, (ast.Import, ast.ImportFrom))
    )
    assert isinstance(guard, ast.If)
    assert "sys.version_info < (3, 10)" in ast.unparse(guard.test)
    futures = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    assert futures == [], "an old Python does not parse `from __future__ import annotations`"

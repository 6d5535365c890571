"""Writes the pages in docs/ that are made from the code, and renews the outputs on the others.

The notebook stays as it is where nothing is installed that can run it.

python -m scripts.docs            writes them
python -m scripts.docs --check    says whether they are current
"""

from __future__ import annotations

import argparse
import sys

from scripts.docs import DOCS, PAGES, notebook
from scripts.readme import current


def main() -> int:
    """Write or check; 1 if a page is not current."""
    parser = argparse.ArgumentParser(prog="python -m scripts.docs")
    parser.add_argument("--check", action="store_true", help="write nothing")
    is_check = parser.parse_args().check
    stale = 0
    pages = {DOCS / name: make() for name, make in PAGES.items()}
    for path in sorted(DOCS.glob("*.md")):
        if path.name not in PAGES:
            pages[path] = current(path.read_text(encoding="utf-8"))
    if notebook.can_run():
        pages[notebook.PATH] = notebook.executed()
    for path, text in pages.items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"{path.name}: {'not current' if is_check else 'written'}")
        if not is_check:
            path.write_text(text, encoding="utf-8", newline="\n")
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

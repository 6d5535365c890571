"""Writes the pages in docs/ that are made from the code, and renews the outputs on the others and in the README.

The notebook stays as it is where nothing is installed that can run it.

python -m scripts.docs
"""

from __future__ import annotations

from scripts.docs import BY_HAND, DOCS, PAGES, notebook
from scripts.docs.outputs import current


def main() -> None:
    """Write what is not current."""
    pages = {DOCS / name: make() for name, make in PAGES.items()}
    pages |= {path: current(path.read_text(encoding="utf-8")) for path in BY_HAND}
    if notebook.can_run():
        pages[notebook.PATH] = notebook.executed()
    for path, text in pages.items():
        if path.read_text(encoding="utf-8") != text:
            print(f"{path.name}: written")
            path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()

"""Reads the elements of an HTML page with the parser of the standard library, which forgives nothing here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final

VOID: Final = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "wbr"})
RAW: Final = frozenset({"script", "style"})


@dataclass
class Element:
    """One element; `text` is all of it, with what its children hold."""

    tag: str
    attributes: dict[str, str]
    parent: Element | None
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """The elements below this one of a tag, with these attributes; `class_` for class."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [
            one
            for one in self.below()
            if tag in (one.tag, "*") and wanted.items() <= one.attributes.items()
        ]

    def below(self) -> Iterator[Element]:
        """Everything inside, in the order of the page."""
        waiting = self.children[::-1]
        while waiting:
            one = waiting.pop()
            yield one
            waiting += one.children[::-1]

    def one(self, tag: str, **attributes: str) -> Element:
        (found,) = self.all(tag, **attributes)
        return found


class _Tree(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {}, None)
        self.open = self.root

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs}, self.open)
        self.open.children.append(element)
        if tag not in VOID:
            self.open = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.tag, f"</{tag}> closes <{self.open.tag}> at {self.getpos()}"
        assert self.open.parent is not None
        self.open = self.open.parent

    def handle_data(self, data: str) -> None:
        place: Element | None = self.open
        while place is not None:
            place.texts.append(data)
            place = None if self.open.tag in RAW else place.parent

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data[:80]}")


def parsed(page: str) -> Element:
    """The page as elements; raises unless every element is closed where it should be and ids are unique."""
    assert page.startswith("<!DOCTYPE html>\n")
    tree = _Tree()
    tree.feed(page)
    tree.close()
    assert tree.open is tree.root, f"<{tree.open.tag}> is never closed"
    ids = [one.attributes["id"] for one in tree.root.all("*") if "id" in one.attributes]
    assert sorted(ids) == sorted(set(ids))
    return tree.root

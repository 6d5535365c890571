"""Hands every request to one method, whatever its kind: what the servers that stand in for stores have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from http.server import BaseHTTPRequestHandler


class AnyRequest(BaseHTTPRequestHandler, ABC):
    """Keeps connections open, as the clients of stores expect."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.begin()

    def do_HEAD(self) -> None:
        self.begin()

    def do_POST(self) -> None:
        self.begin()

    def do_PUT(self) -> None:
        self.begin()

    def do_DELETE(self) -> None:
        self.begin()

    @abstractmethod
    def begin(self) -> None:
        """Read the request and answer it."""

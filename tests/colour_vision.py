"""Computes how far colours are apart, also for people who see red and green alike.

Contrast as in WCAG 2.2, "relative luminance"; simulation by Machado, Oliveira and Fernandes (2009) at severity 1;
difference as the distance in CIE L*a*b* under D65.
"""

from __future__ import annotations

from math import dist
from typing import Final, TypeAlias

Triple: TypeAlias = tuple[float, float, float]
Matrix: TypeAlias = tuple[Triple, Triple, Triple]

SIGHTS: Final[dict[str, Matrix]] = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}
"""What linear light looks like, by sight."""

_XYZ: Final[Matrix] = (
    (0.4124564, 0.3575761, 0.1804375),
    (0.2126729, 0.7151522, 0.0721750),
    (0.0193339, 0.1191920, 0.9503041),
)
_WHITE: Final = (0.95047, 1.0, 1.08883)


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours."""
    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    """The relative luminance of `#rrggbb`."""
    red, green, blue = _linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def difference(first: str, second: str, sight: str) -> float:
    """The distance of two colours as a sight shows them."""
    return dist(_lab(first, sight), _lab(second, sight))


def _linear(colour: str) -> Triple:
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return _straight(red), _straight(green), _straight(blue)


def _straight(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _times(matrix: Matrix, values: Triple) -> Triple:
    first, second, third = (
        sum(factor * value for factor, value in zip(row, values, strict=True)) for row in matrix
    )
    return first, second, third


def _lab(colour: str, sight: str) -> Triple:
    seen = _times(SIGHTS[sight], _linear(colour))
    red, green, blue = (min(max(value, 0.0), 1.0) for value in seen)
    x, y, z = (
        _root(value / white)
        for value, white in zip(_times(_XYZ, (red, green, blue)), _WHITE, strict=True)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _root(value: float) -> float:
    return value ** (1 / 3) if value > 216 / 24389 else (24389 / 27 * value + 16) / 116

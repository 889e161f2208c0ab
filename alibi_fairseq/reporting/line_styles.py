"""Line styles of position methods.

A position method looks the same in every figure, and figures are legible without color.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from matplotlib.colors import hsv_to_rgb, to_hex, to_rgb

# Okabe and Ito's colors, which color-blind readers can distinguish, then darker ones. Markers and
# line styles distinguish the methods in print.
_COLORS = {
    "ALiBi": "#0072B2",
    "Sinusoidal": "#D55E00",
    "Rotary": "#009E73",
    "T5 bias": "#E69F00",
    "Learned": "#CC79A7",
    "No positions": "#000000",
    "Transformer-XL": "#56B4E9",
    "KERPLE": "#8C510A",
    "Sandwich": "#762A83",
    "xPos": "#808000",
    "FIRE": "#7F7F7F",
    "FoX": "#01665E",
    "CoPE": "#B2182B",
    "BAM": "#1B1464",
    "ALiBi, trainable slopes": "#3F94C6",
    "ALiBi, random slopes": "#7FB8D8",
    "ALiBi, other slopes": "#00486F",
    "ALiBi, even slopes": "#4B6FAE",
    "GRAPE-A-QK": "#A6611A",
    "Inkling bias": "#C51B7D",
}
_MARKERS = "os^DvxP*<>hXdpH8+123"
_DASHES: tuple[str | tuple, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
# Sizes of the markers of the shortest and the longest training length.
_SMALLEST = 4.5
_LARGEST = 7.5
# Fraction of white in the color of the shortest training length.
_LIGHTEST = 0.45


@dataclass(frozen=True)
class LineStyle:
    """Color, marker, dash pattern, and size of the markers (in points) of a line."""

    color: str
    marker: str
    linestyle: str | tuple
    size: float = 5


def method_style(method: str, length: int | None = None, lengths: Sequence[int] = ()) -> LineStyle:
    """Return the style of a position method; an unknown method gets one derived from its name.

    Training lengths of a method have the same marker and dash pattern, and a darker color and
    larger markers the longer they are.

    Args:
        method: name of the position method in tables.
        length: training length of the line.
        lengths: training lengths to distinguish; the shortest has the lightest color.
    """
    if method in _COLORS:
        method_index = list(_COLORS).index(method)
        color = _COLORS[method]
    else:
        method_index = zlib.crc32(method.encode())
        hue = method_index % 360 / 360
        color = to_hex(hsv_to_rgb((hue, 0.9, 0.6)))
    linestyle = _DASHES[method_index % len(_DASHES)]
    marker = _MARKERS[method_index % len(_MARKERS)]
    if length is None or len(lengths) < 2:
        return LineStyle(color, marker, linestyle)
    longest_index = len(lengths) - 1
    length_index = sorted(lengths).index(length)
    fraction = length_index / longest_index
    size = _SMALLEST + fraction * (_LARGEST - _SMALLEST)
    return LineStyle(_lighter(color, _LIGHTEST * (1 - fraction)), marker, linestyle, size)


def _lighter(color: str, fraction: float) -> str:
    """Mix a color with a fraction of white."""
    channels = [channel + (1 - channel) * fraction for channel in to_rgb(color)]
    return to_hex(channels)


def variant_style(style: LineStyle, index: int) -> LineStyle:
    """Return the style of the next line in a panel where ``index`` lines already use ``style``.

    It has the marker of its method, a lighter color, and another dash pattern.
    """
    if index == 0:
        return style
    other_dashes = [dashes for dashes in _DASHES if dashes != style.linestyle]
    linestyle = other_dashes[index % len(other_dashes)]
    color = _lighter(style.color, 0.4)
    return replace(style, color=color, linestyle=linestyle)

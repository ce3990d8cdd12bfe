"""The picture of the image case: an invented table, drawn here so that no model has seen it.

Standard library only; the PNG is the same on every machine.
"""

from __future__ import annotations

import struct
import zlib

TITLE = "CROSSINGS PER SEASON"
HEADER = ("LINE", "SPRING", "SUMMER", "AUTUMN", "WINTER")
ROWS = (
    ("SKERRY", "1207", "2954", "1661", "483"),
    ("HOLM", "2039", "4415", "3186", "752"),
    ("VOE", "864", "1932", "1078", "315"),
)
LINE, SEASON, ANSWER = "HOLM", "AUTUMN", "3186"

# 5 x 7 pixel glyphs, a row a number, most significant of five bits at the left
_GLYPHS = {
    "A": (14, 17, 17, 31, 17, 17, 17), "C": (14, 17, 16, 16, 16, 17, 14), "E": (31, 16, 16, 30, 16, 16, 31),
    "G": (14, 17, 16, 23, 17, 17, 14), "H": (17, 17, 17, 31, 17, 17, 17), "I": (14, 4, 4, 4, 4, 4, 14),
    "K": (17, 18, 20, 24, 20, 18, 17), "L": (16, 16, 16, 16, 16, 16, 31), "M": (17, 27, 21, 21, 17, 17, 17),
    "N": (17, 25, 21, 19, 17, 17, 17), "O": (14, 17, 17, 17, 17, 17, 14), "P": (30, 17, 17, 30, 16, 16, 16),
    "R": (30, 17, 17, 30, 20, 18, 17), "S": (15, 16, 16, 14, 1, 1, 30), "T": (31, 4, 4, 4, 4, 4, 4),
    "U": (17, 17, 17, 17, 17, 17, 14), "V": (17, 17, 17, 17, 17, 10, 4), "W": (17, 17, 17, 21, 21, 27, 17),
    "Y": (17, 17, 10, 4, 4, 4, 4), "0": (14, 17, 19, 21, 25, 17, 14), "1": (4, 12, 4, 4, 4, 4, 14),
    "2": (14, 17, 1, 6, 8, 16, 31), "3": (30, 1, 1, 14, 1, 1, 30), "4": (2, 6, 10, 18, 31, 2, 2),
    "5": (31, 16, 30, 1, 1, 17, 14), "6": (6, 8, 16, 30, 17, 17, 14), "7": (31, 1, 2, 4, 8, 8, 8),
    "8": (14, 17, 17, 14, 17, 17, 14), "9": (14, 17, 17, 15, 1, 2, 12), " ": (0, 0, 0, 0, 0, 0, 0),
}  # fmt: skip
_SCALE = 4
_COLUMN, _LINE_HEIGHT, _MARGIN = 190, 60, 40
_BLACK, _WHITE, _GREY = 0, 255, 200


def table_png() -> bytes:
    """An 8-bit greyscale PNG of the table, about 1000 x 350 pixels."""
    width = 2 * _MARGIN + _COLUMN * len(HEADER)
    height = 2 * _MARGIN + _LINE_HEIGHT * (len(ROWS) + 2)
    pixels = [bytearray([_WHITE]) * width for _ in range(height)]
    _write(pixels, _MARGIN, _MARGIN, TITLE)
    for number, row in enumerate((HEADER, *ROWS)):
        top = _MARGIN + _LINE_HEIGHT * (number + 1)
        for x in range(_MARGIN, width - _MARGIN):
            pixels[top - 14][x] = _GREY
        for column, text in enumerate(row):
            _write(pixels, _MARGIN + column * _COLUMN, top, text)
    raw = b"".join(b"\0" + bytes(row) for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(raw, 9)) + _chunk(b"IEND", b"")


def _write(pixels: list[bytearray], left: int, top: int, text: str) -> None:
    for place, letter in enumerate(text):
        for y, bits in enumerate(_GLYPHS[letter]):
            for x in range(5):
                if bits >> (4 - x) & 1:
                    at = left + (place * 6 + x) * _SCALE
                    for row in range(_SCALE):
                        pixels[top + y * _SCALE + row][at : at + _SCALE] = bytes([_BLACK]) * _SCALE


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

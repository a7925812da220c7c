"""Inputs with known answers: lines and pages of text in Pillow's own typeface, and a synthetic voice with pauses."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.precision.samples import Array, normalised
from benchmarks.wild.samples import speech

_TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem "
    "hand part place case week company system program question work government number night point home water room "
    "mother area money story fact month lot right study book eye job word business issue side kind head house "
    "service friend father power hour game line end member law car city community name president team minute idea "
    "kid body parent information back face others level office door health person art war history party result "
    "change morning reason research girl guy moment air teacher force education"
)
_RATE, _FRAME, _CONTEXT = 16000, 512, 64


def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _word(rng: np.random.Generator) -> str:
    word = (
        str(rng.choice(_TEXT.split())) if rng.random() < 0.75 else str(rng.integers(1, 10 ** int(rng.integers(1, 6))))
    )
    return word.capitalize() if rng.random() < 0.2 else word


def line_of_text(height: int, width: int, rng: np.random.Generator) -> tuple[Array, str]:
    """(3, height, width), from -1 to 1, and what is written: a little askew, blurred, and noisy."""
    from PIL import Image, ImageDraw, ImageFilter

    font, text = _font(int(rng.integers(height // 2, height * 3 // 4))), _word(rng)
    while font.getlength(longer := f"{text} {_word(rng)}") < width - 20:
        text = longer
    ink = Image.new("L", (width, height), 0)
    place = int(rng.integers(2, 12)), height // 2 + int(rng.integers(-3, 4))
    ImageDraw.Draw(ink).text(place, text, fill=255, font=font, anchor="lm")
    ink = ink.rotate(rng.uniform(-1, 1), resample=Image.Resampling.BICUBIC)
    return _printed(np.asarray(ink.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.5)))), 0.08, rng) * 2 - 1, text


def page(side: int, rng: np.random.Generator) -> tuple[Array, int]:
    """(3, side, side), normalised, and how many quarters of a turn clockwise it was turned: paragraphs of text,
    photographed from above at a resolution at which nothing can be read.
    """
    from PIL import Image, ImageDraw

    wide = 3 * side
    ink = Image.new("L", (wide, wide), 0)
    draw, down, margin = ImageDraw.Draw(ink), int(rng.integers(20, 60)), int(rng.integers(20, 80))
    while down < wide - 40:
        size = int(rng.choice([16, 20, 24, 36]))
        font = _font(size)
        for _ in range(int(rng.integers(1, 7))):
            text = _word(rng)
            while font.getlength(longer := f"{text} {_word(rng)}") < (wide - 2 * margin) * rng.uniform(0.8, 1.0):
                text = longer
            draw.text((margin, down), text, fill=255, font=font)
            down += int(1.4 * size)
        down += int(rng.integers(10, 40))
    small = np.asarray(ink, float).reshape(side, 3, side, 3).mean((1, 3))
    turns = int(rng.integers(4))
    return normalised(np.rot90(_printed(small, 0.2, rng), -turns, (1, 2))), turns


def _printed(ink: Array, noise: float, rng: np.random.Generator) -> Array:
    """(3, ...), from 0 to 1: ink of 0 to 255 on paper, of some contrast and tint, with up to so much noise."""
    paper, black = rng.uniform(0.6, 1.0), rng.uniform(0.0, 0.4)
    grey = paper + (black - paper) * ink / 255 + rng.normal(0, rng.uniform(0, noise), ink.shape)
    tint = rng.uniform(0.9, 1.0, 3)[:, None, None]
    return np.clip(grey * tint, 0, 1).astype(np.float32)


def voice_with_pauses(frames: int, rng: np.random.Generator) -> Array:
    """(frames, 576): frames of 512 values at 16 kHz, each after the last 64 of the one before."""
    count = frames * _FRAME
    begin = int(rng.integers(_RATE))
    spoken, at = np.zeros(count), 0
    while at < count:
        length = int(rng.uniform(0.4, 1.2) * _RATE)
        spoken[at : at + length] = 1
        at += length + int(rng.uniform(0.3, 0.9) * _RATE)
    sound = rng.uniform(0.5, 1.5) * speech(begin + count, _RATE)[begin:] * spoken
    sound += rng.normal(0, 10 ** rng.uniform(-4, -2), count)
    padded = np.concatenate([np.zeros(_CONTEXT), sound])
    windows = np.lib.stride_tricks.sliding_window_view(padded, _CONTEXT + _FRAME)[::_FRAME]
    return windows.astype(np.float32)

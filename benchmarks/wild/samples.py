"""What trained networks are run on: drawn pages, a synthetic voice, rhythms, text. NumPy makes all of it.

A `Sample` is a function of the wheel: some text and some vocabularies come from there.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from benchmarks.wild.wheel import Wheel

Array = NDArray[Any]
Sample = Callable[[Wheel], Array]

#: Letters of five by seven dots, a row each in binary.
_GLYPHS = {
    "C": (14, 17, 16, 16, 16, 17, 14),
    "O": (14, 17, 17, 17, 17, 17, 14),
    "L": (16, 16, 16, 16, 16, 16, 31),
    "A": (14, 17, 17, 31, 17, 17, 17),
    "G": (14, 17, 16, 23, 17, 17, 14),
    "E": (31, 16, 16, 30, 16, 16, 31),
    "2": (14, 17, 1, 2, 4, 8, 31),
    "0": (14, 17, 19, 21, 25, 17, 14),
    "6": (6, 8, 16, 30, 17, 17, 14),
    " ": (0, 0, 0, 0, 0, 0, 0),
}
_LINE = "COLLAGE 2026 "
#: Formants of vowels, in hertz.
_VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480))


def constant(*shape: int, value: float = 0, dtype: DTypeLike = np.float32) -> Sample:
    """A value everywhere; a scalar with no shape."""
    return lambda wheel: np.full(shape, value, dtype)


def line_of_text(*shape: int, mean: float = 0.5, deviation: float = 0.5) -> Sample:
    """(1, channels, height, width): dark letters on paper, as high as the image; from 0 to 1, then normalised."""
    height, width = shape[-2:]
    return _painted(
        shape, lambda: 1.0 - 0.8 * _letters(height * 3 // 4, width, top=height // 8)[:height], mean, deviation
    )


def page(*shape: int, mean: float = 0.5, deviation: float = 0.5) -> Sample:
    """(1, channels, height, width): lines of text of three sizes, and a shaded picture below."""

    def draw() -> Array:
        height, width = shape[-2:]
        paper, row = np.ones((height, width)), height // 20
        while row < height * 2 // 3:
            size = (height // 12, height // 20, height // 28)[row % 3]
            paper[row : row + size + 1] -= 0.9 * _letters(size, width, left=width // 12)[: size + 1]
            row += size * 3 // 2
        low, left = height * 7 // 10, width // 6
        shade = np.hypot(*np.meshgrid(np.linspace(-1, 1, width - 2 * left), np.linspace(-1, 1, height // 5)))
        paper[low : low + height // 5, left : width - left] = 0.2 + 0.5 * shade / math.sqrt(2)
        return paper

    return _painted(shape, draw, mean, deviation)


def _painted(shape: Sequence[int], draw: Callable[[], Array], mean: float, deviation: float) -> Sample:
    """The drawing in each channel, each a little tinted."""

    def make(wheel: Wheel) -> Array:
        grey = draw()
        tinted = np.stack([grey * (1.0 - 0.03 * channel) for channel in range(shape[-3])])
        return np.broadcast_to((tinted - mean) / deviation, shape).astype(np.float32)

    return make


def _letters(size: int, width: int, top: int = 0, left: int = 0) -> Array:
    """Ink of the line of text, repeated; letters are `size` high."""
    dots = np.array([[row >> bit & 1 for bit in range(5, -1, -1)] for letter in _LINE for row in _GLYPHS[letter]])
    strip = np.concatenate(list(dots.reshape(len(_LINE), 7, 6)), axis=1)
    scale = max(1, size // 7)
    rows = np.arange(scale * 7) // scale
    columns = np.arange(width - left) // scale % strip.shape[1]
    ink = np.zeros((max(size + 2 * top, scale * 7 + top) + 1, width))
    ink[top : top + len(rows), left:] = strip[rows][:, columns]
    blurred = ink.copy()
    blurred[:, 1:] += ink[:, :-1]
    blurred /= 2
    return blurred


def voice(*shape: int, rate: int = 16000) -> Sample:
    """Vowels at a falling pitch, a quarter of a second each, with pauses; the last axis is time, from -1 to 1."""
    return lambda wheel: np.broadcast_to(speech(math.prod(shape), rate).reshape(shape), shape).astype(np.float32)


def speech(count: int, rate: int) -> Array:
    time = np.arange(count) / rate
    pitch = 140 - 40 * (time % 1.0)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    vowels = np.array(_VOWELS, dtype=float)[(time * 4).astype(int) % len(_VOWELS)]
    sound = np.zeros(count)
    for harmonic in range(1, 25):
        frequency = harmonic * pitch
        strength = sum(np.exp(-(((frequency - formant) / 150) ** 2)) for formant in vowels.T)
        sound += (0.02 + strength) * np.sin(harmonic * phase) / harmonic**0.5
    envelope = np.clip(4 * np.sin(np.pi * (time * 4 % 1.0)), 0.05, 1.0)
    noise = np.random.default_rng(0).standard_normal(count)
    return 0.2 * sound * envelope + 0.003 * noise  # type: ignore[no-any-return]


def spectrum(*shape: int, time: int, scale: float = 1.0) -> Sample:
    """Logarithms of the voice's energy in bands: `time` is the axis of the frames, the other long one has the bands."""

    def make(wheel: Wheel) -> Array:
        frames = shape[time]
        axis = next(i for i, extent in enumerate(shape) if extent > 1 and i != time)
        samples = speech(160 * frames + 512, 16000)
        windows = np.lib.stride_tricks.sliding_window_view(samples, 512)[::160][:frames] * np.hanning(512)
        energy = np.abs(np.fft.rfft(windows)) ** 2
        edges = np.unique(np.geomspace(1, 257, shape[axis] + 1).round().astype(int))
        found = np.log(np.add.reduceat(energy, edges[:-1] - 1, axis=1) + 1e-6)
        bands = np.stack([np.interp(np.linspace(0, 1, shape[axis]), np.linspace(0, 1, len(f)), f) for f in found])
        return (scale * (bands if time < axis else bands.T).reshape(shape)).astype(np.float32)

    return make


def rhythms(*shape: int, rate: int = 250) -> Sample:
    """Slow waves, an alpha rhythm that comes and goes, and drift: the last axis is time."""

    def make(wheel: Wheel) -> Array:
        rng, time = np.random.default_rng(1), np.arange(shape[-1]) / rate
        waves = np.sin(2 * np.pi * 1.1 * time) + np.sin(2 * np.pi * 11 * time) * (np.sin(0.4 * time) > 0.6)
        drift = np.cumsum(rng.standard_normal(shape), axis=-1) / math.sqrt(shape[-1])
        return np.asarray(waves + drift, np.float32)

    return make


def pulses(*shape: int) -> Sample:
    """Off and on, as a signal or a detector is, at another period in each row; the last axis is time."""

    def make(wheel: Wheel) -> Array:
        rows = np.arange(math.prod(shape[:-1])).reshape(shape[:-1])[..., None]
        return ((np.arange(shape[-1]) + 3 * rows) % (20 + 7 * rows) < 12).astype(np.float32)

    return make


def measurements(*shape: int, dtype: DTypeLike = np.float64) -> Sample:
    """Positive numbers over three orders of magnitude, as rows of a table have them."""
    return lambda wheel: np.exp(np.random.default_rng(2).normal(0, 2, shape)).astype(dtype)


def numbers(*values: float, shape: Sequence[int], dtype: DTypeLike = np.float32) -> Sample:
    """These."""
    return lambda wheel: np.array(values, dtype).reshape(shape)


def letters(text: str, alphabet: str, *shape: int, first: int = 0, dtype: DTypeLike = np.int64) -> Sample:
    """Places of the text's letters in the alphabet, counted from `first`; the text is repeated to fill the shape."""
    places = {letter: first + place for place, letter in enumerate(alphabet)}
    return _filled(shape, lambda wheel: [places.get(letter, first) for letter in text], dtype)


def looked_up(text: str, vocabulary: str, *shape: int) -> Sample:
    """Numbers of the text's letters in a JSON file of the wheel."""

    def find(wheel: Wheel) -> list[int]:
        numbers = json.loads(wheel.read(vocabulary))
        return [numbers.get(letter, 1) for letter in text]

    return _filled(shape, find, np.int64)


def windows(text: str, alphabet: str, count: int, width: int) -> Sample:
    """(count, width): for each letter of the text, those after it, those before it, and itself."""

    def make(wheel: Wheel) -> Array:
        places = np.resize([max(0, alphabet.find(letter)) for letter in text], count + width)
        return np.stack([np.roll(places[i : i + width], -1) for i in range(count)]).astype(np.float32)

    return make


def one_hot(text: str, alphabet: str) -> Sample:
    """(1, letters, size of the alphabet)."""
    return lambda wheel: np.eye(len(alphabet), dtype=np.float32)[[alphabet.index(letter) for letter in text]][None]


def file_ends(*shape: int, padding: int) -> Sample:
    """First and last bytes of the package's own description, half and half."""

    def make(wheel: Wheel) -> Array:
        half = shape[-1] // 2
        content = np.frombuffer(wheel.metadata().strip(), np.uint8).astype(np.int32)
        ends = [np.full(half, padding, np.int32), np.full(half, padding, np.int32)]
        ends[0][: len(content[:half])] = content[:half]
        ends[1][half - len(content[-half:]) :] = content[-half:]
        return np.concatenate(ends).reshape(shape)

    return make


def words(*shape: int, vocabulary: int) -> Sample:
    """Words of the package's own description, by their check sums: for networks whose wheel has no vocabulary."""
    return _filled(shape, lambda wheel: [zlib.crc32(word) % vocabulary for word in wheel.metadata().split()], np.int64)


def pieces(text: str, tokenizer: str, *shape: int) -> Sample:
    """The text in the longest pieces of a `tokenizer.json` of the wheel, from left to right."""

    def find(wheel: Wheel) -> list[int]:
        known = {piece: i for i, (piece, _) in enumerate(json.loads(wheel.read(tokenizer))["model"]["vocab"])}
        rest, found = "▁" + text.replace(" ", "▁"), []
        while rest:
            size = next((n for n in range(len(rest), 0, -1) if rest[:n] in known), 1)
            found.append(known.get(rest[:size], 2))
            rest = rest[size:]
        return found

    return _filled(shape, find, np.int64)


def _filled(shape: Sequence[int], find: Callable[[Wheel], Sequence[int]], dtype: DTypeLike) -> Sample:
    return lambda wheel: np.resize(np.array(find(wheel)), shape).astype(dtype)

"""Samples for the networks of the benchmark that look like what such networks are run on; seeded.

Images are 1/f noise, as photographs have it, with shapes in front; films pan over such an image; tokens follow Zipf's
law, in sentences of different lengths; latent vectors are normal, as generators have them by definition.

A sample depends on its seed and its number only. Calibration and unseen samples have seeds of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from benchmarks.workloads.inputs import table_rows

Array = NDArray[Any]
Sample = Mapping[str, Array]

#: Seeds of the samples that everybody is given, and of those that nobody is.
CALIBRATION, UNSEEN = 1, 2
#: Of what all samples have in common: which token is how frequent, what it looks like as a vector.
_COMMON = 0
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: Of a recurrent state, whose mean square is about 1/70 (`benchmarks.workloads.rnn`).
_STATE = 0.12
_WORDS = 20000


def samples_of(model: ModelProto, count: int, seed: int) -> list[Sample]:
    """So many samples for a network of the benchmark, arrays by name in the graph's order.

    Raises
    ------
    ValueError
        The network has an input of a kind that is not known here.
    """
    return [_sample(model, np.random.default_rng([seed, number])) for number in range(count)]


def _sample(model: ModelProto, rng: np.random.Generator) -> Sample:
    weights, rows = {tensor.name for tensor in model.graph.initializer}, table_rows(model)
    inputs = {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in model.graph.input
        if value.name not in weights
    }
    found: dict[str, Array] = {}
    lengths = None
    for name, shape in inputs.items():
        if name in ("input_ids", "attention_mask", "token_type_ids"):
            masked = "attention_mask" in inputs
            if lengths is None:
                lengths = rng.integers(shape[-1] // 4 if masked else shape[-1], shape[-1] + 1, shape[:-1])
            kept = np.arange(shape[-1]) < lengths[..., None]
            if name == "attention_mask":
                found[name] = kept.astype(np.int64)
            elif name == "token_type_ids":  # the second sentence
                found[name] = (kept & (np.arange(shape[-1]) >= lengths[..., None] // 2)).astype(np.int64)
            else:
                found[name] = np.where(kept, tokens(shape, rows[name], rng), 0)
        elif name == "latent":
            found[name] = rng.standard_normal(shape, dtype=np.float32)
        elif name == "state":
            found[name] = _STATE * rng.standard_normal(shape, dtype=np.float32)
        elif len(shape) == 2:
            found[name] = word_vectors(shape, rng)
        elif len(shape) == 4 and shape[1] == 3:
            found[name] = np.stack([normalised(photo(shape[2], shape[3], rng)) for _ in range(shape[0])])
        elif len(shape) == 5 and shape[1] == 3:
            found[name] = np.stack([film(*shape[2:], rng) for _ in range(shape[0])])
        else:
            raise ValueError(f"no samples are known for an input {name} of shape {shape}")
    return found


def tokens(shape: Sequence[int], vocabulary: int, rng: np.random.Generator) -> Array:
    """Numbers of tokens, by Zipf's law with Mandelbrot's shift: the r-th most frequent has a share of 1 / (r + 2.7)."""
    share = 1.0 / (np.arange(vocabulary) + 3.7)
    ranks = rng.choice(vocabulary, size=tuple(shape), p=share / share.sum())
    return np.random.default_rng(_COMMON).permutation(vocabulary)[ranks].astype(np.int64)


def word_vectors(shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Vectors of tokens: normal, each word's its own."""
    words = tokens(shape[:1], _WORDS, rng)
    vectors = [np.random.default_rng([_COMMON, int(word)]).standard_normal(shape[1]) for word in words]
    return np.stack(vectors).astype(np.float32)


def photo(height: int, width: int, rng: np.random.Generator) -> Array:
    """(3, height, width), from 0 to 1: amplitudes fall as 1/f, channels resemble each other, a few shapes in front."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    amplitude = 1.0 / np.maximum(frequency, 1.0 / max(height, width))

    def noise() -> Array:
        field: Array = np.fft.irfft2(amplitude * np.fft.rfft2(rng.standard_normal((height, width))), (height, width))
        field = (field - field.mean()) / field.std()
        return field

    light, colours = noise(), np.stack([noise() for _ in range(3)])
    image = rng.uniform(0.3, 0.6) + rng.uniform(0.1, 0.2) * (light + 0.3 * colours)
    down, across = np.mgrid[0:height, 0:width]
    for _ in range(rng.integers(2, 7)):
        centre, angle = rng.uniform(0, (height, width)), rng.uniform(0, np.pi)
        size = rng.uniform(0.05, 0.3, 2) * min(height, width)
        y, x = down - centre[0], across - centre[1]
        along = (np.cos(angle) * x + np.sin(angle) * y) / size[0]
        beside = (np.cos(angle) * y - np.sin(angle) * x) / size[1]
        distance = np.maximum(abs(along), abs(beside)) if rng.random() < 0.5 else np.hypot(along, beside)
        colour = rng.uniform(0, 1, 3)[:, None, None] * (1.0 + 0.2 * along)  # lit from one side
        image = np.where(distance < 1.0, colour + 0.03 * colours, image)
    return np.clip(image, 0.0, 1.0).astype(np.float32)


def film(frames: int, height: int, width: int, rng: np.random.Generator) -> Array:
    """(3, frames, height, width), normalised: the camera pans over a photograph, up to two pixels from frame to
    frame.
    """
    steps = rng.uniform(-2, 2, 2)
    wide = photo(height + 2 * frames, width + 2 * frames, rng)
    begin = np.where(steps < 0, 2 * frames, 0)
    corners = [(begin + steps * frame).astype(int) for frame in range(frames)]
    return np.stack([normalised(wide[:, y : y + height, x : x + width]) for y, x in corners], axis=1)


def normalised(image: Array) -> Array:
    """As networks of ImageNet take it."""
    mean, deviation = (np.array(values, np.float32)[:, None, None] for values in (_MEAN, _DEVIATION))
    return ((image - mean) / deviation).astype(np.float32)


def save(samples: Sequence[Sample], path: Path) -> None:
    """As `collage tune --calibration` reads them: arrays by name, with a leading axis of samples."""
    np.savez(path, **{name: np.stack([sample[name] for sample in samples]) for name in samples[0]})  # type: ignore[arg-type]


def read(path: Path) -> list[Sample]:
    """What `save` wrote."""
    with np.load(path) as data:
        arrays = {name: data[name] for name in data.files}
    return [dict(zip(arrays, values, strict=True)) for values in zip(*arrays.values(), strict=True)]

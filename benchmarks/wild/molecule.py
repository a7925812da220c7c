"""A helix of amino acids as a graph network of proteins reads it: atoms, edges, and a row for each residue."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

import numpy as np

from benchmarks.wild.samples import Array, Sample
from benchmarks.wild.wheel import Wheel

#: Atoms of a residue: backbone and beta carbon. Their element and place around the axis.
_ELEMENTS = (1, 0, 0, 2, 0, 3)
_CUTOFF = 8.0  # Å


def helix(residues: int) -> Mapping[str, Sample]:
    """Inputs of the network, by name."""
    arrays = _helix(residues)
    return MappingProxyType({name: partial(_same, array) for name, array in arrays.items()})


def _same(array: Array, wheel: Wheel) -> Array:
    return array


def _helix(residues: int) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    each = len(_ELEMENTS)
    count = residues * each
    place = np.arange(count)
    residue, role = place // each, place % each
    turn = np.deg2rad(100) * place / each
    position = np.stack([2.3 * np.cos(turn), 2.3 * np.sin(turn), 1.5 * place / each], axis=1)
    position += 0.3 * rng.standard_normal(position.shape)
    distance = np.linalg.norm(position[:, None] - position[None], axis=-1)
    sources, targets = np.nonzero((distance < _CUTOFF) & (distance > 0))
    amino = rng.integers(0, 20, residues)
    normal = rng.standard_normal((count, 3))
    bonded = (distance[sources, targets] < 3.0) & (residue[sources] != residue[targets])
    of_residue = np.arange(residues)[:, None] * each + np.arange(6)
    floats = {
        "bfactor": rng.random(count),
        "edge_dist": distance[sources, targets],
        "same_residue": residue[sources] == residue[targets],
        "residue_geometry": np.sin(rng.standard_normal((residues, 52))),
        "target_environment": rng.random((residues, 6, 15)),
        "temperature_feature": np.zeros((residues, 1)),
        "target_atom_rsasa": rng.random((residues, 6)),
        "pos": position,
        "node_normal": normal / np.linalg.norm(normal, axis=1, keepdims=True),
        "is_hbond": bonded,
        "hb_cos": np.where(bonded, rng.random(len(sources)), 0),
    }
    whole = {
        "element": np.array(_ELEMENTS)[role],
        "amino_acid": amino[residue],
        "atom_role": role,
        "edge_index": np.stack([sources, targets]),
        "seq_sep": np.clip(residue[targets] - residue[sources] + 16, 0, 32),
        "target_indices": of_residue,
        "residue_types": amino,
    }
    return {
        **{name: array.astype(np.float32) for name, array in floats.items()},
        **{name: array.astype(np.int64) for name, array in whole.items()},
        "target_mask": np.arange(6) < np.where(amino % 5, 6, 5)[:, None],
    }

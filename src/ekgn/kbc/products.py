"""The first answer as a product of head and relation: o_1, before anything is looked up.

With T_max = 1 a product *is* the model it is named after: its score is o_1 · y.

distmult  o = h ∘ r
complex   o = h ∘ r over complex numbers; the first half of a vector is the real part
rescal    o = h R, a matrix for each relation
"""

from __future__ import annotations

import torch
from torch import Tensor

PRODUCTS = ("distmult", "complex", "rescal")


def relation_size(kind: str, size: int) -> int:
    """How many numbers a relation has."""
    return size * size if kind == "rescal" else size


def product(kind: str, heads_BK: Tensor, relations_UX: Tensor, which_B: Tensor) -> Tensor:
    """o_1 of each query, (B, K); its relation is row `which_B` of the distinct relations."""
    if kind == "rescal":
        return _by_matrix(heads_BK, relations_UX, which_B)
    relations_BK = relations_UX.index_select(0, which_B)
    if kind == "distmult":
        return heads_BK * relations_BK
    real, imaginary = heads_BK.chunk(2, dim=1)
    by_real, by_imaginary = relations_BK.chunk(2, dim=1)
    return torch.cat(
        [
            real * by_real - imaginary * by_imaginary,
            real * by_imaginary + imaginary * by_real,
        ],
        dim=1,
    )


def _by_matrix(heads_BK: Tensor, relations_UX: Tensor, which_B: Tensor) -> Tensor:
    """One matrix product for all queries of a relation."""
    size = heads_BK.shape[1]
    order = torch.argsort(which_B, stable=True)
    counts = torch.bincount(which_B, minlength=len(relations_UX)).tolist()
    groups = torch.split(heads_BK.index_select(0, order), counts)
    matrices = relations_UX.view(-1, size, size).unbind(0)
    sorted_BK = torch.cat([group @ matrix for group, matrix in zip(groups, matrices, strict=True)])
    return sorted_BK.index_select(0, torch.argsort(order))


def cubes(kind: str, vectors: Tensor) -> Tensor:
    """Σ |x|³ of each vector: the N3 penalty; of complex numbers the absolute values count."""
    if kind == "complex":
        real, imaginary = vectors.chunk(2, dim=1)
        squares = torch.addcmul(real * real, imaginary, imaginary)
        return (squares * (squares + 1e-30).sqrt()).sum(dim=1)
    return vectors.abs().pow(3).sum(dim=1)

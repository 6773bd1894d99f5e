"""How far two raw rows of the same prefix are apart: epsilon, Kullback–Leibler divergence, ranks. All in fp64."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from divexplore.engine.statistics import best_id

__all__ = ["RowDrift", "epsilon", "kld", "row_drift"]


@dataclass(frozen=True, kw_only=True)
class RowDrift:
    """Two raw rows of one step compared.

    Parameters
    ----------
    epsilon
        max |Δlogit| over the vocabulary; NaN where a row holds NaN, infinite where an infinity is one-sided.
    kld
        KLD(A‖B) over the full vocabulary, nats.
    top1_agree
        Whether both rows have the same best id, the lowest among ties.
    delta_p
        Probability of A's token under B minus that under A.
    rank
        Rank of A's token in B's row, 0 for the best; ties in order of id.
    """

    epsilon: float
    kld: float
    top1_agree: bool
    delta_p: float
    rank: int


def row_drift(a: torch.Tensor, b: torch.Tensor, token: int) -> RowDrift:
    """Compare two raw rows of shape ``(vocab,)`` of which A's chose `token`."""
    a, b = a.double(), b.double()
    log_a, log_b = a.log_softmax(-1), b.log_softmax(-1)
    ahead = (b > b[token]) | ((b == b[token]) & (torch.arange(len(b)) < token))
    return RowDrift(
        epsilon=epsilon(a, b),
        kld=kld(log_a, log_b),
        top1_agree=best_id(a) == best_id(b),
        delta_p=float(log_b[token].exp() - log_a[token].exp()),
        rank=int(ahead.sum()),
    )


def epsilon(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest |A - B| in fp64 after an exact cast; an id that is -inf on both sides counts 0, on one side infinity."""
    a, b = a.double(), b.double()
    difference = (a - b).abs()
    difference[torch.isneginf(a) & torch.isneginf(b)] = 0.0
    return float(difference.max())  # torch.max passes NaN on


def kld(log_a: torch.Tensor, log_b: torch.Tensor) -> float:
    """KLD(A‖B) in nats of two rows of log-probabilities in fp64, shape ``(vocab,)``.

    Terms with p = 0 are 0; infinite where only B is -inf; exactly 0 for bit-equal rows. Rounding may bring a sum of
    about -1e-16, which is clamped.
    """
    terms = log_a.exp() * (log_a - log_b)
    terms[torch.isneginf(log_a)] = 0.0
    total = float(terms.sum())
    return total if math.isnan(total) else max(0.0, total)

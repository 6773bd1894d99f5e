"""Two probes of one prefill: does a later token reach an earlier position, and does a pad change what follows it?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from divexplore.comparison.drift import epsilon
from divexplore.comparison.ladder import NEGLIGIBLE, Pair
from divexplore.engine.batch import fill_batch
from divexplore.engine.clean64 import CleanFloat64, fits, raised
from divexplore.engine.interventions import surround
from divexplore.engine.numerics import applied, attention
from divexplore.engine.score import position_logits

if TYPE_CHECKING:
    from divexplore.config import RunConfig

__all__ = ["causal_probe", "pad_probe"]


def causal_probe(pair: Pair) -> tuple[str | None, str]:
    """Prefill the prompt twice, the second time with another last token: no earlier position may notice.

    What is not bit-equal is judged in clean fp64, since a kernel may round another way.

    Returns
    -------
    The fault as a sentence or ``None``, and what was seen.
    """
    if pair.isolated:
        return None, "Causal probe: not for settings that are read at start."
    ids = pair.prompt.ids
    if len(ids) < 2:
        return None, "Causal probe: the prompt has one token, so there is no earlier position to look at."
    other = (*ids[:-1], (ids[-1] + 1) % pair.model.vocab_size)
    for side, config in (("A", pair.config_a), ("B", pair.config_b)):
        net = pair.model.instance(config.dtype, config.device)
        rows = [_logits(pair, net, config, prompt)[:-1] for prompt in (ids, other)]
        if torch.equal(*rows):
            continue
        if not fits(net, torch.float64):
            return (
                None,
                f"Causal probe: earlier positions of {side} move, but clean fp64, which would tell why, does not fit.",
            )
        top = raised(net, torch.float64)
        moved, allowed = _moved(*(_logits(pair, top, config, prompt)[:-1] for prompt in (ids, other)))
        if moved > allowed:
            fault = f"{side}'s logits at earlier positions move by {moved:.3g} when the last prompt token changes."
            return fault, "Causal probe: a later token reached an earlier position."
    return None, "Causal probe: no earlier position moved when the last prompt token changed, on either side."


def pad_probe(pair: Pair) -> tuple[str | None, str | None]:
    """In clean fp64, prefill the prompt alone with no pad, with one, and with as many as its run had: pads change nothing.

    A mask or positions that forget the pads jump between 0 pads and 1, whatever the rest of the batch is.

    Returns
    -------
    The fault as a sentence or ``None``, and what was seen; both ``None`` where neither side's observed row had a pad.
    """
    seen = None
    for side, config, trace in (("A", pair.config_a, pair.a), ("B", pair.config_b, pair.b)):
        pads = trace.effective["pads"][trace.effective["row"]]
        net = pair.model.instance(config.dtype, config.device)
        if pads == 0 or pair.isolated or not fits(net, torch.float64):
            continue
        top = raised(net, torch.float64)
        alone = config.replace(batch_size=None, row=None, fill=None, left_pad=0)
        bare = _logits(pair, top, alone, pair.prompt.ids)[-1]
        moved = {
            count: _moved(bare, _logits(pair, top, alone.replace(left_pad=count), pair.prompt.ids)[-1])
            for count in sorted({1, pads})
        }
        told = ", ".join(f"{moved[count][0]:.2g} with {count}" for count in moved)
        if any(drift > allowed for drift, allowed in moved.values()):
            fault = (
                f"{side}'s logits jump when the prompt is padded, in clean fp64, by {told}: only padded rows drift so."
            )
            return fault, "Pad probe: a pad changes what follows it."
        seen = f"Pad probe: in clean fp64 pads move {side}'s logits by no more than rounding ({told})."
    return None, seen


def _logits(pair: Pair, net: Any, config: RunConfig, prompt: tuple[int, ...]) -> torch.Tensor:
    """Raw logits at each position of the observed row of one prefill, in clean fp64 where `net` is in fp64."""
    batch = fill_batch(pair.model, prompt, config, chat=pair.prompt.chat)
    with applied(config), attention(net, config.attn_implementation), surround(net, config):
        if next(net.parameters()).dtype != torch.float64:
            return position_logits(net, batch)
        with CleanFloat64():
            return position_logits(net, batch)


def _moved(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """By how much two tensors of logits differ, and by how much rounding in clean fp64 may let them."""
    return epsilon(a, b), NEGLIGIBLE * float(a.abs().max())

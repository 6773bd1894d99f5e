"""Where does a difference begin that is no rounding? At a pad, a chunk, the edge of a window, the original context length."""

from __future__ import annotations

from typing import Any

from divexplore.comparison.ladder import Pair, differing_knobs

__all__ = ["landmarks"]


def landmarks(pair: Pair, step: int) -> list[str]:
    """Sentences on the first step whose difference does not vanish up the ladder, and on what lies just there.

    Parameters
    ----------
    step
        That step. Its row is predicted from the prompt and as many generated tokens.
    """
    seen = len(pair.prompt.ids) + step
    found = [f"what does not vanish begins at step {step}, after {seen} tokens"]
    if step == 0:
        found += _of_the_prefill(pair)
    else:
        config = pair.model.config.get_text_config(decoder=True)
        for name, length in (
            ("attention window", getattr(config, "sliding_window", None)),
            ("original context length", _original_length(config)),
        ):
            if length is not None and seen in (length, length + 1):
                found.append(f"just there the text outgrows the {name} of {length} tokens")
    return found


def _of_the_prefill(pair: Pair) -> list[str]:
    found = []
    pads = [trace.effective["pads"][trace.effective["row"]] for trace in (pair.a, pair.b)]
    if pads[0] != pads[1]:
        found.append(
            f"the observed row has {pads[0]} pads in A and {pads[1]} in B: a wrong mask or wrong positions jump between 0 "
            "pads and 1"
        )
    if "prefill_chunk" in differing_knobs(pair.a, pair.b):
        chunks = [trace.effective["prefill_chunk"] or "all" for trace in (pair.a, pair.b)]
        found.append(f"the prompt of {len(pair.prompt.ids)} tokens enters by {chunks[0]} in A and by {chunks[1]} in B")
    return found


def _original_length(config: Any) -> int | None:
    rope = getattr(config, "rope_parameters", None) or {}
    length = rope.get("original_max_position_embeddings") or getattr(config, "max_position_embeddings", None)
    return int(length) if length else None

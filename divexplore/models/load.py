"""Where does a model come from? A name of ours, a folder, a GGUF file, the hub, or memory: one canonical load for all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from divexplore.models.canonical import canonical_copy, facts_of, settle
from divexplore.models.catalog import bundled_folder
from divexplore.models.model import Model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["load_model"]


def load_model(
    name_or_model: str | Path | PreTrainedModel = "fairy-tales",
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
) -> Model:
    if isinstance(name_or_model, PreTrainedModel):
        facts = facts_of(name_or_model)
        return Model(
            canonical_copy(name_or_model, None),
            tokenizer,
            name=type(name_or_model).__name__,
            source="memory",
            facts=facts,
        )
    folder = bundled_folder()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", use_safetensors=True)
    facts = facts_of(model)
    return Model(
        settle(model), AutoTokenizer.from_pretrained(folder), name="fairy-tales", source="bundled", facts=facts
    )

"""What is a model here? The checkpoint's tensors, canonical instances in any dtype, prompts in, token bytes out."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import psutil
import torch

from divexplore.errors import Refusal, nearest
from divexplore.models.canonical import bytes_needed, canonical_copy, main_dtype
from divexplore.models.fingerprint import Fingerprint, fingerprint_of
from divexplore.models.request import checked_prompt
from divexplore.models.tokens import ByteTable

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["DTYPES", "QUICK_PARAMETERS", "Model", "Prompt"]

DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}
QUICK_PARAMETERS = 300_000_000
"""Below this many parameters weights are hashed unasked: it takes seconds at most."""


@dataclass(frozen=True)
class Prompt:
    """A prompt as the model sees it: its text (``None`` for id lists), its ids, whether a chat template was used."""

    text: str | None
    ids: tuple[int, ...]
    chat: bool


class Model:
    """A causal language model and its tokenizer, loaded the one canonical way. Made by `load_model`.

    Parameters
    ----------
    master
        A transformers model that nobody else holds, placed canonically, in the checkpoint's dtype.
    tokenizer
        Its tokenizer; without one, prompts are lists of ids.
    name
        As the person knows it: a catalogue name, a folder's name, a hub id, a class name.
    source
        Where the weights came from, in words without local paths.
    facts
        The hidden variables of the model as it came (`canonical.facts_of`).
    own_tokenizer
        Whether the tokenizer is the one that lies beside the weights, so that the name alone gets both back.
    """

    def __init__(
        self,
        master: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None,
        *,
        name: str,
        source: str,
        facts: dict[str, Any],
        own_tokenizer: bool = True,
    ) -> None:
        self._master: PreTrainedModel | None = master
        self._instances: dict[tuple[torch.dtype | None, torch.device], PreTrainedModel] = {}
        self.tokenizer, self.own_tokenizer = tokenizer, own_tokenizer
        self.name, self.source, self.facts = name, source, facts
        self.architecture = type(master).__name__
        self.config: PreTrainedConfig = master.config
        self.dtype = main_dtype(master)
        self.vocab_size = _vocab_size(master)
        self.context_length = _context_length(master.config)
        self.eos_ids = _eos_ids(master, tokenizer)
        self.generation = _generation(master)
        self.chat = bool(getattr(tokenizer, "chat_template", None))
        self.parameter_count = sum(parameter.numel() for parameter in master.parameters())

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"<Model {self.name}: {self.architecture}, {self.parameter_count / 1e6:.1f} M parameters, {dtype}>"

    @property
    def closed(self) -> bool:
        """Whether `close` let go of the weights."""
        return self._master is None

    @property
    def master(self) -> PreTrainedModel:
        """The model in the checkpoint's dtype, from which every cast starts."""
        if self._master is None:
            raise Refusal(f"model {self.name!r} after close()", "an open model", "Load it again with dx.load_model.")
        return self._master

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Hashes of weights and buffers: computed at the first look, about 1 s a 100 M parameters."""
        return fingerprint_of(self.master)

    @property
    def known_fingerprint(self) -> Fingerprint | None:
        """The fingerprint if it is there or quick to compute; ``None`` for a large model that nobody asked yet."""
        if "fingerprint" in self.__dict__ or self.parameter_count < QUICK_PARAMETERS:
            return self.fingerprint
        return None

    def instance(self, dtype: str | torch.dtype | None = None, device: str | None = None) -> PreTrainedModel:
        """The canonical model in `dtype` on `device`: cached, shared, not to be changed.

        In ``eval()``, without gradients, parameters cast from the checkpoint's tensors into fresh aligned memory,
        buffers as ``from_pretrained`` leaves them. Earlier casts are dropped first where memory would not hold both.
        """
        target = self.dtype if dtype is None else _as_dtype(dtype)
        place = self.master.device if device is None else _as_device(device)
        uniform = all(p.dtype == target for p in self.master.parameters() if p.is_floating_point())
        if place == self.master.device and (dtype is None or uniform):
            return self.master
        cast = None if dtype is None else target  # unasked, a checkpoint of mixed dtypes keeps each tensor's own
        key = (cast, place)
        if key not in self._instances:
            self._make_room(target, place)
            self._instances[key] = canonical_copy(self.master, cast, place)
        return self._instances[key]

    def _make_room(self, dtype: torch.dtype, device: torch.device) -> None:
        needed = bytes_needed(self.master, dtype)
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
        if needed > free:
            self._instances.clear()
            gc.collect()  # modules hold each other in cycles

    def to_transformers(self, dtype: str | torch.dtype | None = None) -> PreTrainedModel:
        """A fresh, independent transformers model, yours to change; in the checkpoint's dtype unless told."""
        return canonical_copy(self.master, None if dtype is None else _as_dtype(dtype))

    def encode(self, prompt: str | Sequence[int], *, chat: bool | None = None) -> Prompt:
        """Token ids of a prompt.

        Parameters
        ----------
        prompt
            A text, or token ids that are taken as they are.
        chat
            Whether a text goes through the chat template; ``None`` is yes for models that have one. The template
            alone decides on BOS, so it never comes twice.

        Raises
        ------
        Refusal
            On an empty prompt, ids outside the vocabulary, a text without a tokenizer, a chat without a template.
        """
        prompt = checked_prompt(prompt)
        if not isinstance(prompt, str):
            return Prompt(None, self._in_vocabulary(prompt), False)
        if self.tokenizer is None:
            raise Refusal(
                f"a text prompt for {self.name!r}, which came without a tokenizer",
                "lists of token ids",
                "Pass ids, or load the model with its tokenizer: dx.load_model(model, tokenizer).",
            )
        chat = self.chat if chat is None else chat
        if chat and not self.chat:
            raise Refusal(
                f"a chat prompt for {self.name!r}, whose tokenizer has no chat template",
                "chat=False",
                "Leave chat out.",
            )
        if chat:
            turn = [{"role": "user", "content": prompt}]
            ids = self.tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=True, return_dict=False)
        else:
            ids = self.tokenizer(prompt)["input_ids"]
        if not ids:
            raise Refusal(
                f"the prompt {prompt!r}, which has no tokens", "a text with at least one token", "Write a word."
            )
        return Prompt(prompt, self._in_vocabulary(tuple(ids)), chat)

    def _in_vocabulary(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        for token_id in ids:
            if not 0 <= token_id < self.vocab_size:
                raise Refusal(
                    f"token id {token_id}",
                    f"0 to {self.vocab_size - 1}",
                    f"{self.name!r} has no such token; correct the id.",
                )
        return ids

    @cached_property
    def _bytes(self) -> ByteTable | None:
        return None if self.tokenizer is None else ByteTable(self.tokenizer)

    def token_bytes(self, token_id: int) -> bytes | None:
        """Exact bytes of one token, or ``None`` where the tokenizer cannot tell."""
        return None if self._bytes is None else self._bytes.bytes(token_id)

    def token_text(self, token_id: int) -> str:
        """One token for display: undecodable bytes as ``⟨E2⟩``, ids beyond the tokenizer as ``⟨id 2049⟩``."""
        return f"⟨id {token_id}⟩" if self._bytes is None else self._bytes.text(token_id)

    def close(self) -> None:
        """Let go of all weights; the model cannot run afterwards."""
        self._instances.clear()
        self._master = None


def _as_dtype(dtype: str | torch.dtype) -> torch.dtype:
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise Refusal(f"dtype={dtype!r}", ", ".join(DTYPES), f"Choose one of these.{nearest(name, DTYPES)}")
    return DTYPES[name]


def _as_device(device: str | torch.device) -> torch.device:
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:  # torch asserts where it was built without a back end
        raise Refusal(
            f"device={str(device)!r} ({str(error).splitlines()[0]})",
            "a device of this machine, such as 'cpu'",
            "Choose another.",
        ) from None
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", torch.cuda.current_device())
    return place


def _vocab_size(model: PreTrainedModel) -> int:
    head = model.get_output_embeddings()
    return int(head.weight.shape[0]) if head is not None else int(model.config.get_text_config().vocab_size)


def _context_length(config: PreTrainedConfig) -> int | None:
    length = getattr(config.get_text_config(), "max_position_embeddings", None)  # GPT-2's n_positions answers to it too
    return int(length) if length else None


def _generation(model: PreTrainedModel) -> dict[str, Any]:
    """What the model's ``generation_config`` asks for that is not plain greedy decoding; ids and lengths left out."""
    config = model.generation_config
    plain = {"repetition_penalty": 1.0, "suppress_tokens": None, "no_repeat_ngram_size": 0, "do_sample": False}
    drawn = {"temperature": 1.0, "top_k": None, "top_p": 1.0}  # without a draw they do nothing
    names = plain | (drawn if getattr(config, "do_sample", None) else {})
    found = {name: getattr(config, name, None) for name in names}
    return {name: value for name, value in found.items() if value is not None and value != names[name]}


def _eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> frozenset[int]:
    for holder in (model.generation_config, model.config, tokenizer):
        found = getattr(holder, "eos_token_id", None)
        if found is not None:
            return frozenset([found] if isinstance(found, int) else [int(i) for i in found])
    return frozenset()

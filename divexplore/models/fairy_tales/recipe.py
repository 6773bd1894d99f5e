"""How was the bundled model made? Train a small Llama and its tokenizer on a folder of texts.

``python -m divexplore.models.fairy_tales.recipe TEXTS --out DIR --steps N``
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from divexplore.errors import Refusal

__all__ = ["Recipe", "train"]

END = "<|endoftext|>"  # id 0: begins each text, ends it, and pads


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What the model is and how long it learns; the defaults are those of the bundled one.

    Parameters
    ----------
    steps
        Optimizer steps. 7,440 took 62 minutes on two CPU cores.
    batch, length
        Sequences a step, tokens a sequence.
    vocabulary
        Size of the byte-level BPE; smaller where the texts have fewer merges.
    hidden, feed_forward, layers
        Shape. oneDNN's bf16 product of one row and of eight differ only for sums longer than 1,024, so a narrower
        feed-forward would show no batch drift in bf16.
    rate
        Peak learning rate, held for 60 % of the steps after a short warm-up and let down to 2 %.
    seed
        Of weights and batches.
    """

    steps: int = 7440
    batch: int = 16
    length: int = 256
    vocabulary: int = 2048
    hidden: int = 256
    feed_forward: int = 1280
    layers: int = 4
    rate: float = 3e-3
    seed: int = 0


def train(
    texts: Path, out: Path, recipe: Recipe | None = None, report: Callable[[str], None] | None = None
) -> list[float]:
    """Train on every ``.txt`` file of `texts` and write weights (bf16), configuration and tokenizer to `out`.

    Parameters
    ----------
    texts
        A folder of UTF-8 texts; the last 2 % of each one's paragraphs are held out.
    out
        Folder to write; created.
    recipe
        Shape and length of the training; the bundled model's unless given.
    report
        Called with a line every 100 steps and at the end.

    Returns
    -------
    list of float
        Training loss of each step, nats a token, shape ``(steps,)``.

    Raises
    ------
    Refusal
        Where there are no texts, or too few for one sequence.
    """
    recipe = recipe or Recipe()
    say = report or (lambda line: None)
    files = sorted(texts.glob("*.txt"))
    if not files:
        raise Refusal(
            f"the folder {texts.name!r}, which holds no .txt file", "a folder of UTF-8 texts", "Put texts into it."
        )
    tokenizer = train_tokenizer(files, recipe.vocabulary)
    learn, held_out = token_streams(files, tokenizer)
    if len(learn) <= recipe.length + 1:
        raise Refusal(
            f"texts of {len(learn)} tokens",
            f"more than {recipe.length + 1}, one sequence",
            "Add texts or shorten the sequences.",
        )
    say(f"{len(learn)} tokens to learn, {len(held_out)} held out")

    torch.manual_seed(recipe.seed)
    model = LlamaForCausalLM(configuration(recipe, tokenizer.get_vocab_size()))
    losses = optimise(model, learn, recipe, say)
    if len(held_out) > recipe.length + 1:
        say(f"held-out loss {held_out_loss(model, held_out, recipe):.3f} nats a token")

    # stored in bf16, so that fp32 holds the same values and a dtype pair compares arithmetic alone
    model.to(torch.bfloat16).eval().save_pretrained(out)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END, pad_token=END).save_pretrained(
        out
    )
    return losses


def train_tokenizer(files: Sequence[Path], vocabulary: int) -> Tokenizer:
    """Byte-level BPE of at most `vocabulary` tokens: all 256 bytes are in it, so any text can be written."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train([str(file) for file in files], trainer)
    return tokenizer


def token_streams(files: Sequence[Path], tokenizer: Tokenizer) -> tuple[torch.Tensor, torch.Tensor]:
    """All texts end to end, each begun by `END`: token ids to learn and held out, shapes ``(n,)`` and ``(m,)``."""
    learn: list[int] = []
    held_out: list[int] = []
    for file in files:
        paragraphs = file.read_text(encoding="utf-8").split("\n\n")
        border = int(len(paragraphs) * 0.98)
        learn += [0, *tokenizer.encode("\n\n".join(paragraphs[:border])).ids]
        held_out += [0, *tokenizer.encode("\n\n".join(paragraphs[border:])).ids]
    return torch.tensor(learn), torch.tensor(held_out)


def configuration(recipe: Recipe, vocabulary: int) -> LlamaConfig:
    """A Llama of 8 heads and 2 key-value heads with tied embeddings."""
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.feed_forward,
        num_hidden_layers=recipe.layers,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )


def optimise(model: LlamaForCausalLM, stream: torch.Tensor, recipe: Recipe, say: Callable[[str], None]) -> list[float]:
    """Muon for the matrices, AdamW for embeddings and norms, bf16 autocast; returns the losses in nats a token."""
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (matrices if parameter.ndim == 2 and "embed" not in name else others).append(parameter)
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=recipe.rate, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    losses: list[float] = []
    began = time.perf_counter()
    model.train()
    for step in range(recipe.steps):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate * schedule(step, recipe.steps)
        tokens = sequences(stream, recipe.batch, recipe.length)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
        if (step + 1) % 100 == 0:
            say(f"step {step + 1}: loss {losses[-1]:.3f}, {time.perf_counter() - began:.0f} s")
    return losses


def schedule(step: int, steps: int) -> float:
    """Factor of the learning rate: 60 steps of warm-up, level to 60 % of the way, then down to 2 %."""
    done = step / steps
    return min(1.0, (step + 1) / 60) * (1.0 if done < 0.6 else max(0.02, (1 - done) / 0.4))


def sequences(stream: torch.Tensor, batch: int, length: int, generator: torch.Generator | None = None) -> torch.Tensor:
    """Random pieces of the stream, shape ``(batch, length)``."""
    starts = torch.randint(len(stream) - length - 1, (batch,), generator=generator)
    return torch.stack([stream[start : start + length] for start in starts.tolist()])


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, stream: torch.Tensor, recipe: Recipe) -> float:
    """Mean loss over eight fixed batches of held-out text, nats a token."""
    generator = torch.Generator().manual_seed(1)
    model.eval()
    total = 0.0
    for _ in range(8):
        tokens = sequences(stream, recipe.batch, recipe.length, generator)
        total += model(tokens, labels=tokens).loss.item()
    return total / 8


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description="Train the bundled model again from a folder of texts.")
    parser.add_argument("texts", type=Path, help="folder of .txt files")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--seed", type=int, default=Recipe.seed)
    parser.add_argument("--threads", type=int, help="threads of torch; as it chooses unless given")
    chosen = parser.parse_args(arguments)
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    recipe = Recipe(steps=chosen.steps, seed=chosen.seed)
    train(chosen.texts, chosen.out, recipe, report=lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()

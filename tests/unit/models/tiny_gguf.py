"""A GGUF file of a tiny random Llama with the bundled model's tokenizer, written in a moment."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from divexplore.models.catalog import bundled_folder

TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def write_gguf(path: Path, *, hidden: int = 32, seed: int = 0) -> Path:
    """Write one layer of 4 heads in blocks of Q8_0, as quantised files are, with a chat template."""
    import gguf

    words = json.loads((bundled_folder() / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    tokens = sorted(words["vocab"], key=words["vocab"].__getitem__)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_block_count(1)
    writer.add_feed_forward_length(2 * hidden)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(hidden // 4)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * (len(tokens) - 1)])
    writer.add_token_merges([" ".join(merge) for merge in words["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)

    random = np.random.default_rng(seed)
    shapes = {
        "token_embd": (len(tokens), hidden),
        "output": (len(tokens), hidden),
        "blk.0.attn_q": (hidden, hidden),
        "blk.0.attn_k": (hidden // 2, hidden),
        "blk.0.attn_v": (hidden // 2, hidden),
        "blk.0.attn_output": (hidden, hidden),
        "blk.0.ffn_gate": (2 * hidden, hidden),
        "blk.0.ffn_up": (2 * hidden, hidden),
        "blk.0.ffn_down": (hidden, 2 * hidden),
    }
    for name, shape in shapes.items():
        blocks = gguf.quants.quantize(random.normal(0, 0.2, shape).astype(np.float32), gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(f"{name}.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(hidden, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

"""Which bytes does a token stand for, and how is it shown? Exact where the tokenizer can tell."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["ByteTable", "visible"]

_HEX = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_Kind = Literal["byte-level", "sentencepiece", "unknown"]


class ByteTable:
    """Bytes of single tokens, by the tokenizer's own alphabet.

    Parameters
    ----------
    tokenizer
        A transformers tokenizer. Byte-level BPE and sentencepiece with byte fall-back are exact; of other kinds
        (WordPiece and the like) only special tokens are known.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._kind: _Kind = _kind(tokenizer)
        self._added = {index: str(token) for index, token in tokenizer.added_tokens_decoder.items()}
        self._length = len(tokenizer)

    def __contains__(self, token_id: int) -> bool:
        return 0 <= token_id < self._length or token_id in self._added

    def bytes(self, token_id: int) -> bytes | None:
        """The exact bytes, or ``None`` where they cannot be known."""
        if token_id not in self:
            return None
        if token_id in self._added:
            return self._added[token_id].encode()
        piece = self._tokenizer.convert_ids_to_tokens(token_id)
        if not isinstance(piece, str):
            return None
        if self._kind == "byte-level":
            found = [_BYTE_OF.get(character) for character in piece]
            return None if None in found else bytes(found)  # type: ignore[arg-type]  # None was excluded
        if self._kind == "sentencepiece":
            if match := _HEX.fullmatch(piece):
                return bytes([int(match[1], 16)])
            return piece.replace("\N{LOWER ONE EIGHTH BLOCK}", " ").encode()
        return None

    def text(self, token_id: int) -> str:
        """The token for display: bytes that are no UTF-8 as ``⟨E2⟩``, ids beyond the tokenizer as ``⟨id 2049⟩``."""
        if token_id not in self:
            return f"⟨id {token_id}⟩"
        exact = self.bytes(token_id)
        if exact is None:
            return str(self._tokenizer.decode([token_id], clean_up_tokenization_spaces=False))
        return visible(exact)


def visible(raw: bytes) -> str:
    """Bytes as text in which those that are no UTF-8 are seen, such as ``⟨E2⟩⟨80⟩`` for half a quotation mark."""
    text = raw.decode("utf-8", errors="surrogateescape")
    return "".join(f"⟨{ord(c) - 0xDC00:02X}⟩" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)


def _kind(tokenizer: PreTrainedTokenizerBase) -> _Kind:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = getattr(backend, "decoder", None)
    if decoder is None:
        return "unknown"
    state = json.loads(decoder.__getstate__())  # the decoder alone: the whole tokenizer's JSON is megabytes
    names = {part["type"] for part in state.get("decoders", [state])}
    if "ByteLevel" in names:
        return "byte-level"
    return "sentencepiece" if names & {"ByteFallback", "Metaspace"} else "unknown"


def _byte_alphabet() -> dict[str, int]:
    """Inverse of GPT-2's byte alphabet: printable Latin-1 stands for itself, the others follow from U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()

"""Prompts in and token bytes out: templates, BOS, ids as they are, exact bytes where the tokenizer can tell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import tiny
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from divexplore.errors import Refusal
from divexplore.models import load_model
from divexplore.models.tokens import ByteTable, visible

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<u>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


def pieces_tokenizer(pieces, decoder, *, template=None, bos=False):
    """A tokenizer of given pieces; ``<s>`` is id 0 and, where asked, put before every text."""
    vocabulary = {piece: index for index, piece in enumerate(["<s>", *pieces])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<s>"))
    core.decoder = decoder
    if bos:
        core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>")
    tokenizer.chat_template = template
    return tokenizer


@pytest.fixture(scope="module")
def chat_model():
    letters = list("abcdefghijklmnopqrstuvwxyz<> ")
    return load_model(tiny("llama"), pieces_tokenizer(letters, decoders.Fuse(), template=TEMPLATE, bos=True))


def test_a_text_and_its_ids_make_the_same_prompt(fairy_tales):
    text = fairy_tales.encode("The giant")
    ids = fairy_tales.encode(list(text.ids))
    assert text.text == "The giant"
    assert ids.text is None
    assert ids.ids == text.ids
    assert not ids.chat


def test_a_chat_model_gets_its_template_with_one_bos(chat_model):
    prompt = chat_model.encode("hi")
    assert prompt.chat
    assert prompt.ids.count(0) == 1
    assert "".join(chat_model.token_text(i) for i in prompt.ids) == "<s><u>hi<a>"


def test_the_template_can_be_switched_off(chat_model):
    prompt = chat_model.encode("hi", chat=False)
    assert not prompt.chat
    assert "".join(chat_model.token_text(i) for i in prompt.ids) == "<s>hi"


def test_a_template_that_is_not_there_is_refused(fairy_tales):
    with pytest.raises(Refusal, match="chat template"):
        fairy_tales.encode("hi", chat=True)


@pytest.mark.parametrize("prompt", ["", [], ()])
def test_an_empty_prompt_is_refused(fairy_tales, prompt):
    with pytest.raises(Refusal, match="empty prompt"):
        fairy_tales.encode(prompt)


@pytest.mark.parametrize("token_id", [-1, 2048])
def test_an_id_outside_the_vocabulary_is_refused_with_the_range(fairy_tales, token_id):
    with pytest.raises(Refusal) as refused:
        fairy_tales.encode([5, token_id])
    assert str(token_id) in refused.value.asked
    assert refused.value.allowed == "0 to 2047"


@pytest.mark.parametrize("prompt", [5, ["The", "giant"], [1.5]])
def test_what_is_neither_text_nor_ids_is_refused(fairy_tales, prompt):
    with pytest.raises(Refusal):
        fairy_tales.encode(prompt)


def test_without_a_tokenizer_only_ids_are_taken():
    model = load_model(tiny("llama"))
    assert model.encode([1, 2, 3]).ids == (1, 2, 3)
    assert model.token_bytes(5) is None
    assert model.token_text(5) == "⟨id 5⟩"
    with pytest.raises(Refusal, match="without a tokenizer"):
        model.encode("text")


@given(st.text(min_size=1).filter(str.strip))
def test_byte_level_tokens_join_to_the_bytes_of_the_text(text):
    model = load_once()
    assert b"".join(model.token_bytes(i) for i in model.encode(text).ids) == text.encode()


def load_once(_kept=[]):  # noqa: B006  hypothesis takes no session fixture; the list keeps one load
    if not _kept:
        _kept.append(load_model())
    return _kept[0]


def test_half_a_character_is_shown_byte_by_byte(fairy_tales):
    shown = [fairy_tales.token_text(i) for i in fairy_tales.encode("日").ids]
    assert "".join(shown) == "⟨E6⟩⟨97⟩⟨A5⟩"


def test_special_and_unknown_ids_are_shown(fairy_tales):
    assert fairy_tales.token_bytes(0) == b"<|endoftext|>"
    assert fairy_tales.token_bytes(2049) is None
    assert fairy_tales.token_text(2049) == "⟨id 2049⟩"


def test_sentencepiece_pieces_give_spaces_and_bytes():
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    table = ByteTable(pieces_tokenizer(["▁the", "<0xE2>", "é"], decoder))
    assert [table.bytes(i) for i in (1, 2, 3)] == [b" the", b"\xe2", "é".encode()]
    assert table.text(2) == "⟨E2⟩"


def test_a_tokenizer_that_loses_spaces_has_no_exact_bytes():
    core = Tokenizer(models.WordPiece({"[UNK]": 0, "play": 1, "##ing": 2}, unk_token="[UNK]"))
    core.decoder, core.pre_tokenizer = decoders.WordPiece(), pre_tokenizers.Whitespace()
    table = ByteTable(PreTrainedTokenizerFast(tokenizer_object=core))
    assert table.bytes(2) is None
    assert "ing" in table.text(2)


def test_visible_leaves_whole_characters_alone():
    assert visible("é — 日".encode()) == "é — 日"
    assert visible(b"a\xe2\x80") == "a⟨E2⟩⟨80⟩"


def test_end_of_sequence_comes_from_generation_config_then_config():
    source = tiny("llama", eos_token_id=3)
    assert load_model(source).eos_ids == {3}
    source.generation_config.eos_token_id = [5, 7]
    assert load_model(source).eos_ids == {5, 7}
    assert load_model(tiny("llama")).eos_ids == frozenset()


@pytest.mark.parametrize(("kind", "length"), [("llama", 512), ("gpt2", 512), ("bloom", None)])
def test_context_length_by_architecture(kind, length):
    assert load_model(tiny(kind)).context_length == length


def test_a_padded_vocabulary_is_as_wide_as_the_logits():
    source = tiny("llama")
    source.resize_token_embeddings(320)
    source.config.vocab_size = 257
    assert load_model(source).vocab_size == 320

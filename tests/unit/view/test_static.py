from __future__ import annotations

from html.parser import HTMLParser

import made
import pytest

from divexplore.view.payload import summarise
from divexplore.view.static import static_html

ALLOWED = {
    "div",
    "p",
    "strong",
    "b",
    "br",
    "bdi",
    "span",
    "mark",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
}


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += data


def read(comparison) -> Reader:
    reader = Reader()
    reader.feed(static_html(summarise(comparison)))
    return reader


def test_markup_in_tokens_stays_text():
    comparison = made.comparison(texts=made.NASTY, split=20)
    reader = read(comparison)
    assert set(reader.tags) <= ALLOWED
    assert reader.attributes <= {"style"}
    assert "<img src=x onerror=" in reader.text


def test_it_says_verdict_reason_next_step_and_marks_both_tokens_at_the_split():
    comparison = made.comparison()
    reader = read(comparison)
    assert "near tie" in reader.text
    assert comparison.why in reader.text
    assert comparison.next in reader.text
    assert reader.tags.count("mark") == 2
    assert "margin A 0.0625 logits (1 ULP of bfloat16)" in reader.text


@pytest.mark.parametrize("options", [{"n_steps": 4000, "split": 2000}, {"split": None}, {"n_steps": 0, "split": None}])
def test_it_is_small_however_long_the_runs_are(options):
    assert len(static_html(summarise(made.comparison(**options))).encode()) <= 50_000


def test_tokens_that_cannot_be_seen_or_turn_the_text_round_are_shown_apart():
    """As records have them: their bytes were not told, so nothing was made visible before."""
    odd = ("\u202eabc", "\u200b", "", "\u0301", "\U0001f469\u200d\U0001f680", "a\u200db", "\n", " ")
    comparison = made.comparison(texts=odd, split=20)
    text = read(comparison).text
    for shown in ("⟨202E⟩abc", "⟨200B⟩", "∅", "◌\u0301", "\U0001f469\u200d\U0001f680", "a⟨200D⟩b", "⏎", "␣"):
        assert shown in text
    page = static_html(summarise(comparison))
    assert "<bdi>⟨202E⟩abc</bdi>" in page
    assert "\u202e" not in page
    assert "\u200b" not in page


def test_a_place_is_a_step_and_what_was_not_recorded_says_so():
    import divexplore as dx

    comparison = made.comparison(split=None, drift=12)
    assert "leading tokens at step 12, raw logits" in read(comparison).text
    meta = {**comparison.a.meta, "prompt": {"text": None, "ids": [], "chat": None}}
    bare = dx.compare_traces(dx.Trace(comparison.a.table, meta), dx.Trace(comparison.b.table, meta))
    assert "prompt: not recorded" in read(bare).text

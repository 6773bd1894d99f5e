from __future__ import annotations

import made
import pytest

from divexplore.errors import Refusal
from divexplore.view.export import page, to_html
from divexplore.view.payload import summarise


def test_the_file_holds_what_is_returned_without_a_path(tmp_path):
    path = tmp_path / "comparison.html"
    assert to_html(made.comparison(), path) == path
    assert to_html(made.comparison()) == path.read_text(encoding="utf-8")


def test_a_folder_and_a_file_in_no_folder_are_refused(tmp_path):
    with pytest.raises(Refusal, match="a file name in a folder that is there"):
        to_html(made.comparison(), tmp_path)
    with pytest.raises(Refusal, match="Create the folder"):
        to_html(made.comparison(), tmp_path / "absent" / "comparison.html")
    with pytest.raises(Refusal, match="path=3"):
        to_html(made.comparison(), 3)


@pytest.mark.parametrize(("n_steps", "limit"), [(256, 1_000_000), (4000, 3_000_000)])
def test_sizes_hold_with_the_chart_runtime_inside(n_steps, limit):
    assert len(to_html(made.comparison(n_steps=n_steps, split=n_steps // 2)).encode()) <= limit


def test_markup_in_tokens_and_titles_cannot_end_a_script():
    comparison = made.comparison(texts=made.NASTY)
    text = page(summarise(comparison), b"")
    assert text.count("</script>") == text.count("<script") == 5
    assert "<img" not in text

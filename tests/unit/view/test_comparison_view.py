from __future__ import annotations

import gc
import html
import weakref

import made
import pytest

from divexplore.errors import Refusal
from divexplore.view import mimebundle, vega
from divexplore.view.comparison_view import ComparisonView, view_of


@pytest.fixture
def comparison():
    return made.comparison()


def test_an_unknown_argument_is_refused_with_the_nearest_name(comparison):
    with pytest.raises(Refusal, match="Did you mean 'selected'"):
        ComparisonView(comparison, seleted=3)


def test_what_is_no_comparison_and_columns_that_are_not_there_are_refused(comparison):
    with pytest.raises(Refusal, match="a str to view"):
        ComparisonView("a comparison")
    with pytest.raises(Refusal, match="selected=900"):
        ComparisonView(comparison, selected=900)
    for wrong in ("x", 1.5, True):
        with pytest.raises(Refusal, match="Choose a column of the alignment"):
            ComparisonView(comparison, selected=wrong)
    with pytest.raises(Refusal, match="True or False"):
        ComparisonView(comparison, live="no")


def test_every_trait_of_ours_is_documented():
    source = (__import__("inspect")).getsource(ComparisonView)
    ours = [line.split(" =")[0].strip() for line in source.splitlines() if ".tag(sync=True)" in line]
    assert ours == ["meta", "data", "selected", "tab", "live", "saved"]
    lines = source.splitlines()
    for name in ours:
        at = next(i for i, line in enumerate(lines) if line.strip().startswith(f"{name} = "))
        assert lines[at + 1].strip().startswith('"""'), f"{name} has no docstring"


def test_a_comparison_has_one_view_however_often_it_is_displayed(comparison):
    first = mimebundle(comparison)
    second = mimebundle(comparison)
    key = "application/vnd.jupyter.widget-view+json"
    assert first[0][key]["model_id"] == second[0][key]["model_id"]
    assert view_of(comparison) is view_of(comparison)


def test_a_closed_view_is_replaced(comparison):
    before = view_of(comparison)
    before.close()
    assert view_of(comparison) is not before


def test_a_view_does_not_keep_its_comparison_alive():
    comparison = made.comparison()
    view_of(comparison)
    gone = weakref.ref(comparison)
    del comparison
    gc.collect()
    assert gone() is None


def test_the_bundle_has_a_static_page_and_a_line_of_text(comparison):
    data, _ = mimebundle(comparison)
    assert len(data["text/html"].encode()) <= 50_000
    assert data["text/plain"] == repr(comparison)
    assert (
        repr(view_of(comparison)) == f"<ComparisonView near_tie, split at step 40, {len(comparison.columns)} columns>"
    )


@pytest.fixture
def published(monkeypatch):
    """What is published from here on: ``(bundle, display_id, update)`` in turn."""
    seen: list[tuple[dict, str | None, bool]] = []

    def display(bundle, *, raw, metadata=None, display_id=None, update=False):
        seen.append((bundle, display_id, update))

    monkeypatch.setattr("divexplore.view.saved.display", display)
    return seen


def test_a_comparison_displays_as_its_view_and_a_page_that_the_view_hides(comparison, published):
    comparison._ipython_display_()
    (shown, _, _), (page, key, _) = published
    view = view_of(comparison)
    assert shown["application/vnd.jupyter.widget-view+json"]["model_id"] == view.model_id
    assert (shown["text/html"], shown["text/plain"]) == ("", repr(comparison))  # no second page in the same output
    assert list(page) == ["text/html"]
    assert f'<div class="dx-saved" data-for="{view.saved}">' in page["text/html"]
    assert comparison.why in html.unescape(page["text/html"])
    assert len(page["text/html"].encode()) <= 50_000
    assert key == view.saved


def test_another_comparison_in_the_same_view_replaces_the_page_once_there_is_one(comparison, published):
    view = ComparisonView(comparison)
    view.show(made.comparison(split=None))
    assert published == []  # nothing was displayed
    view._ipython_display_()
    view.show(made.comparison(n_steps=30, split=20))
    page, key, update = published[-1]
    assert (key, update) == (view.saved, True)
    assert "split at step 20" in page["text/html"]


def test_a_closed_view_displays_as_a_line(comparison, published, monkeypatch):
    lines = []
    monkeypatch.setattr("divexplore.view.comparison_view.display", lambda bundle, raw: lines.append(bundle))
    view = ComparisonView(comparison)
    view.close()
    view._ipython_display_()
    assert (lines, published) == ([{"text/plain": repr(view)}], [])


def test_showing_another_comparison_selects_its_split(comparison):
    view = ComparisonView(comparison, selected=3)
    assert view.selected == 3
    view.show(made.comparison(n_steps=30, split=20))
    assert view.selected == view.meta["split_column"] == 20


def test_requests_of_the_browser_are_answered_and_errors_go_back(comparison, monkeypatch):
    monkeypatch.setattr(vega, "runtime", lambda: b"runtime")
    view = ComparisonView(comparison)
    sent: list[tuple[dict, list[bytes]]] = []
    monkeypatch.setattr(view, "send", lambda content, buffers=(): sent.append((content, list(buffers))))
    view._handle_custom_msg({"ask": "vega", "id": "1"}, [])
    view._handle_custom_msg({"ask": "export", "id": "2", "selected": 5}, [])
    assert sent[0] == ({"answer": "1"}, [b"runtime"])
    assert sent[1][0] == {"answer": "2", "name": "divexplore-near-tie.html"}
    assert sent[1][1][0].startswith(b'<!doctype html>\n<html lang="en" data-selected="5">')

    def broken():
        raise Refusal("the chart runtime", "an installed vl-convert-python", "Reinstall it.")

    monkeypatch.setattr(vega, "runtime", broken)
    view._handle_custom_msg({"ask": "vega", "id": "3"}, [])
    assert sent[2][0]["answer"] == "3"
    assert "Reinstall it." in sent[2][0]["error"]

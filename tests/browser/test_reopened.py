"""A notebook that somebody else ran, opened without running it: the readable page stands where the widget was."""

from __future__ import annotations

import harness
import nbformat
import pytest
from playwright.sync_api import expect

import divexplore as dx
from divexplore.view import mimebundle

NOISE = {"notebook7": "'schema'"}  # a page error of Notebook 7.6 itself, with or without us


@pytest.mark.parametrize("kind", ["lab", "notebook7"])
def test_a_notebook_from_elsewhere_shows_the_verdict_and_both_texts_before_it_is_run(page, notebooks, kind, request):
    stored = dx.Comparison.load(notebooks / "data" / "quickstart")
    data, _ = mimebundle(stored)
    output = nbformat.v4.new_output("execute_result", data, execution_count=1)
    cell = nbformat.v4.new_code_cell("comparison", outputs=[output], execution_count=1)
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata=kernel), notebooks / "mailed.ipynb")

    on = request.getfixturevalue(kind)
    harness.open_notebook(page, on, "mailed.ipynb")
    shown = page.locator(".jp-OutputArea-output")
    expect(shown).to_contain_text(f"near tie · split at step {stored.split.step}")
    for trace in (stored.a, stored.b):
        words = "".join(trace.table["text"].to_list()[stored.split.step :]).strip()
        expect(shown).to_contain_text(words)
    harness.close_kernels(on)

    assert page.watch.external == []
    assert page.watch.console == []
    assert [error for error in page.watch.errors if NOISE.get(kind, "\0") not in error] == []

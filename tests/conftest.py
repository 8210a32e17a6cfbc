"""What every test gets: no network, and a build folder of its own."""

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the models are tiny: threads cost more than they give
# before any library reads them
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["ATTATTR_JOBS"] = "1"  # side by side only where a test asks for it


@pytest.fixture(autouse=True)
def build(tmp_path, monkeypatch):
    """Where the code under test puts what it makes, so that a test never writes into the repository."""
    folder = tmp_path / "build"
    monkeypatch.setenv("ATTATTR_BUILD", str(folder))
    return folder

"""The work spread over processes: joblib's own workers, and a dask cluster on loopback that loses one of them."""

from __future__ import annotations

import ast
import os
import re
import time
from pathlib import Path

import joblib
import pytest
from test_stream import assert_same
from tiny import save_tiny

from helpers.attribution import attribute
from helpers.models import load
from helpers.stream import attribute_dataset, open_dataset

PAGE = Path(__file__).parents[1] / "notebooks" / "CLUSTER.md"
TEXTS = [" ".join(["a", "bad", "film", "but", "wonderful", "story"][: 1 + i * 5 % 6]) for i in range(16)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    classifier = load(save_tiny(tmp_path_factory.mktemp("model")))
    return classifier.model, classifier.tokenizer


@pytest.fixture(scope="module")
def serial(tiny):
    return attribute(*tiny, TEXTS, steps=3)


def assert_each_once(folder, count):
    """Every position is in one shard and no other, whoever wrote it."""
    from safetensors import safe_open

    held = []
    for path in folder.glob("shard-*"):
        with safe_open(path, framework="numpy") as file:
            held += [int(name.removesuffix(".scores")) for name in file.keys() if name.endswith(".scores")]  # noqa: SIM118
    assert sorted(held) == list(range(count))


def test_two_processes(tiny, serial, tmp_path):
    stored = attribute_dataset(*tiny, TEXTS, tmp_path, steps=3, shard=2, n_jobs=2, progress=False)
    assert_same(stored, serial, atol=1e-6)
    assert_each_once(tmp_path, 16)
    assert not list(tmp_path.glob(".*")), "the model's file is gone"


def die_while_writing(folder):
    """On a worker: the next shard is written by half, and the worker is killed, once the other has finished some."""
    import signal

    from helpers import result

    whole = result.save_file

    def half(arrays, path, metadata):
        whole(arrays, path, metadata=metadata)
        os.truncate(path, path.stat().st_size // 2)
        until = time.monotonic() + 120
        while not list(folder.glob("shard-*")) and time.monotonic() < until:
            time.sleep(0.05)
        (folder / "killed").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)

    result.save_file = half
    return os.getpid()


@pytest.fixture
def cluster():
    distributed = pytest.importorskip("distributed", reason="dask's distributed is not installed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(2, timeout=120)
        yield client


@pytest.mark.filterwarnings("ignore::DeprecationWarning:distributed")
def test_a_dask_cluster_that_loses_a_worker(tiny, serial, cluster, tmp_path):
    victim = list(cluster.scheduler_info(n_workers=-1)["workers"])[0]
    pid = cluster.run(die_while_writing, tmp_path, workers=[victim])[victim]
    with joblib.parallel_config(backend="dask"):
        stored = attribute_dataset(*tiny, TEXTS, tmp_path, steps=3, shard=2, progress=False)
    assert (tmp_path / "killed").read_text() == str(pid), "a worker did die, in the middle of a shard"
    assert_same(stored, serial, atol=1e-6)
    assert_each_once(tmp_path, 16)
    assert [a.text for a in open_dataset(tmp_path)] == TEXTS


def test_the_page_is_valid_python():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 4
    for block in blocks:
        ast.parse(block)
        names = re.findall(r"^from helpers\.(\w+) import (\w+)", block, flags=re.MULTILINE)
        for module, name in names:
            assert hasattr(__import__(f"helpers.{module}", fromlist=[name]), name)

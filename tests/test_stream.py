"""Attribution to disk: the same results, resumed after a kill, in bounded memory, and nothing mixed up."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import joblib
import numpy as np
import pytest
from families import make
from texts import tokenizer_for
from tiny import save_tiny

from helpers import _pieces, _shards, _worker
from helpers.attention import UnsupportedModelError, gate_heads, touch
from helpers.attribution import Attribution, attribute
from helpers.models import load
from helpers.stream import attribute_dataset, open_dataset

HERE = Path(__file__).parent
TEXTS = [" ".join(["a", "good", "film", "but", "dull", "<script>", "🙂"][: 1 + i * 3 % 7]) for i in range(11)]
PAIRS = [(text, "it is a bad story") for text in TEXTS[:3]]


@pytest.fixture(scope="module")
def bert():
    return make("bert"), tokenizer_for("bert")


@pytest.fixture
def work(monkeypatch):
    """The texts attributed in this test, one list a shard."""
    shards = []

    def counting(model, tokenizer, texts, **options):
        shards.append(list(texts))
        return attribute(model, tokenizer, texts, **options)

    monkeypatch.setattr(_worker, "attribute", counting)
    return shards


def stream(bert, texts, folder, **options):
    return attribute_dataset(*bert, texts, folder, **{"steps": 3, "shard": 4, "progress": False, **options})


def assert_same(mine, theirs, atol=0.0):
    """Equal in every field; scores and the like within ``atol``, by default to the last bit."""
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        for field in dataclasses.fields(Attribution):
            one, other = getattr(a, field.name), getattr(b, field.name)
            if isinstance(one, np.ndarray | float):
                np.testing.assert_allclose(one, other, rtol=0, atol=atol, err_msg=field.name)
                assert type(one) is type(other) and getattr(one, "dtype", 0) == getattr(other, "dtype", 0)
            else:
                assert one == other and type(one) is type(other), field.name


# ---- the same results ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("texts", [TEXTS, PAIRS], ids=["texts", "pairs"])
def test_equal_to_attribute(bert, texts, tmp_path):
    stored = stream(bert, texts, tmp_path / "new" / "scores", layers=[2, 0])
    shards = [attribute(*bert, texts[i : i + 4], steps=3, layers=[2, 0]) for i in range(0, len(texts), 4)]
    assert_same(stored, [a for shard in shards for a in shard])
    # texts that share a batch differ from shard to all, and with them the order in which float32 adds
    assert_same(stored, attribute(*bert, texts, steps=3, layers=[2, 0]), atol=1e-6)
    assert [a.text for a in stored] == texts


def test_the_options_are_those_of_attribute():
    ours, theirs = (inspect.signature(f).parameters for f in (attribute_dataset, attribute))
    shared = {name: p.default for name, p in theirs.items() if name not in ("model", "tokenizer", "texts", "progress")}
    assert {name: ours[name].default for name in shared} == shared


def test_a_list_read_from_disk(bert, tmp_path):
    stored = stream(bert, TEXTS, tmp_path)
    again = open_dataset(tmp_path)
    assert len(again) == 11 and "11 texts" in repr(again)
    assert again[-1].text == again[10].text == TEXTS[10] and again[np.int64(5)].text == TEXTS[5]
    assert [a.text for a in again[2:9:3]] == TEXTS[2:9:3] and [a.text for a in again[::-1]] == TEXTS[::-1]
    assert [a.text for a in again[3:9][-2:]] == TEXTS[7:9] and list(again[4:4]) == []
    for wrong in (11, -12):
        with pytest.raises(IndexError):
            again[wrong]
    links = again[3:6].top_links(2)
    assert links.text.tolist() == [3, 3, 4, 4, 5, 5] and links.score[0] == stored[3].scores.max()
    with pytest.raises(ValueError, match="no text"):
        again[:0].top_links()


def test_a_single_output_and_any_iterable(tmp_path):
    one = make("bert", num_labels=1), tokenizer_for("bert")
    stored = stream(one, iter(TEXTS[:5]), tmp_path)
    assert np.isnan(stored[4].probability) and stored[4].output == "raw"


def test_a_generator_is_read_only_as_far_as_needed(bert, work, tmp_path):
    ahead = []

    def counted(items):
        for n, item in enumerate(items, start=1):
            ahead.append(n - sum(map(len, work)))
            yield item

    targets = [n % 3 for n in range(11)]
    stored = stream(bert, counted(TEXTS), tmp_path, target=counted(targets))
    assert [a.text for a in stored] == TEXTS and [a.target for a in stored] == targets
    assert len(ahead) == 22 and max(ahead) <= 4, "a shard at a time"


def test_a_model_by_name(work, tmp_path):
    save_tiny(tmp_path / "model")
    classifier = load(tmp_path / "model")
    stored = attribute_dataset(str(tmp_path / "model"), None, TEXTS, tmp_path / "scores", steps=3, progress=False)
    assert_same(stored, attribute(classifier.model, classifier.tokenizer, TEXTS, steps=3))
    work.clear()
    again = stream((classifier.model, classifier.tokenizer), TEXTS, tmp_path / "scores")
    assert work == [] and len(again) == 11, "the same model, whichever way it was given"


# ---- nothing twice, nothing missing ----------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
sys.path[:0] = {paths!r}
from helpers import result
from helpers.stream import attribute_dataset

written, whole = [], result.save_file
def half(arrays, path, metadata):
    whole(arrays, path, metadata=metadata)
    written.append(path)
    if len(written) == 3:
        os.truncate(path, path.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)
result.save_file = half
attribute_dataset({model!r}, None, {texts!r}, {folder!r}, steps=3, shard=2, progress=False)
"""


def test_killed_midway_and_resumed(work, tmp_path):
    save_tiny(tmp_path / "model")
    folder = tmp_path / "scores"
    code = KILLED.format(
        paths=[str(HERE), str(HERE.parent)], model=str(tmp_path / "model"), texts=TEXTS, folder=str(folder)
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=240, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    before = stamps(folder)
    assert len(before) == 2 and list(folder.glob(".shard-*.tmp")), "two shards, and a third cut short"
    with pytest.raises(ValueError, match="unfinished"):
        open_dataset(folder)
    classifier = load(tmp_path / "model")
    stored = stream((classifier.model, classifier.tokenizer), TEXTS, folder, shard=2)
    assert [text for shard in work for text in shard] == TEXTS[4:], "what was left, once"
    assert before.items() <= stamps(folder).items(), "finished shards are not touched"
    assert_same(stored, attribute(classifier.model, classifier.tokenizer, TEXTS, steps=3), atol=1e-6)
    assert not list(folder.glob(".*")), "what the killed process left is gone"


def stamps(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("shard-*")}


@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "of other settings"])
def test_a_broken_shard_is_made_again(bert, work, tmp_path, damage):
    expected = list(stream(bert, TEXTS, tmp_path))
    path = tmp_path / "shard-000000004.safetensors"
    before = stamps(tmp_path)
    if damage == "of other settings":
        other = stream(bert, TEXTS, tmp_path / "other", steps=5)
        path.write_bytes((other.folder / path.name).read_bytes())
        with pytest.raises(ValueError, match="other settings"):
            open_dataset(tmp_path)[4]
    elif damage == "gone":
        path.unlink()
        with pytest.raises(FileNotFoundError, match="1 of 3 shards"):
            open_dataset(tmp_path)
    else:
        os.truncate(path, path.stat().st_size // 2 if damage == "cut" else 0)
        with pytest.raises(ValueError, match="damaged"):
            open_dataset(tmp_path)[4]
    work.clear()
    assert_same(stream(bert, TEXTS, tmp_path), expected)
    assert work == [TEXTS[4:8]]
    before.pop(path.name)
    assert before.items() <= stamps(tmp_path).items()


def test_more_texts_and_other_shards(bert, work, tmp_path):
    stream(bert, TEXTS[:6], tmp_path)
    work.clear()
    stored = stream(bert, TEXTS, tmp_path, shard=3, batch_tokens=64)
    assert work == [TEXTS[6:9], TEXTS[9:]], "only what was added, whatever the size of a shard"
    (tmp_path / "shard-000000004.safetensors").unlink()
    work.clear()
    assert_same(stream(bert, TEXTS, tmp_path, shard=9), attribute(*bert, TEXTS, steps=3), atol=1e-6)
    assert work == [TEXTS[4:6]], "a gap is filled up to the next shard"
    assert len(stored) == 11


OTHERS = {
    "steps": {"steps": 4},
    "rule": {"rule": "gauss"},
    "output": {"output": "logit"},
    "layers": {"layers": [0]},
    "target": {"target": 1},
    "max_length": {"max_length": 5},
    "baseline": {"baseline": "mean"},
}


@pytest.mark.parametrize("name", [*OTHERS, "model", "tokenizer"])
def test_other_settings_are_refused(bert, work, tmp_path, name):
    stream(bert, TEXTS, tmp_path)
    work.clear()
    model, tokenizer = bert
    if name == "model":
        model = make("bert", seed=1)
    elif name == "tokenizer":
        tokenizer = tokenizer_for("gpt2")
    with pytest.raises(ValueError, match=f"{name}.*another folder|another model or tokenizer.*another folder"):
        stream((model, tokenizer), TEXTS, tmp_path, **OTHERS.get(name, {}))
    assert work == [] and len(open_dataset(tmp_path)) == 11, "and the folder is as good as before"


@pytest.mark.parametrize("texts", [TEXTS[::-1], TEXTS[:6], ["another", *TEXTS[1:]]], ids=["order", "fewer", "another"])
def test_other_texts_are_refused(bert, work, tmp_path, texts):
    stream(bert, TEXTS, tmp_path)
    work.clear()
    with pytest.raises(ValueError, match="more texts than were given" if len(texts) < 11 else "other texts"):
        stream(bert, iter(texts), tmp_path)
    assert work == [] and len(open_dataset(tmp_path)) == 11


def test_other_targets_are_refused(bert, tmp_path):
    stream(bert, TEXTS, tmp_path, target=[0] * 11)
    with pytest.raises(ValueError, match="other targets"):
        stream(bert, TEXTS, tmp_path, target=[0] * 10 + [1])
    with pytest.raises(ValueError, match="target: 'one a text' there, 0 now"):
        stream(bert, TEXTS, tmp_path, target=0)


def test_settings_that_led_to_nothing_do_not_block_the_folder(bert, tmp_path):
    with pytest.raises(ValueError, match="texts 0 to 3.*There is no class 'none'"):
        stream(bert, TEXTS, tmp_path, target="none")
    assert len(stream(bert, TEXTS, tmp_path)) == 11


def test_a_lost_manifest(bert, work, tmp_path):
    stream(bert, TEXTS, tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match="gone or damaged"):
        stream(bert, TEXTS, tmp_path, steps=4)
    work.clear()
    assert len(stream(bert, TEXTS, tmp_path)) == 11 and work == [], "the shards know what they are"


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_number_of_texts(bert, monkeypatch, tmp_path):
    alive, most = weakref.WeakSet(), []

    def counted(model, tokenizer, texts, **options):
        most.append(len(alive))
        results = attribute(model, tokenizer, texts, **options)
        alive.update(results)
        return results

    monkeypatch.setattr(_worker, "attribute", counted)
    stored = stream(bert, iter(TEXTS * 3), tmp_path, steps=1, shard=3)
    assert len(most) == 11 and max(most) == 0, "a shard's results are let go before the next"
    for a in stored:
        alive.add(a)
        most.append(len(alive))
    assert max(most) <= 2 and len(most) == 11 + 33


def test_long_texts_get_smaller_shards(bert, work, monkeypatch, tmp_path):
    each = {text: a.scores.nbytes + a.attention.nbytes for text, a in zip(TEXTS, attribute(*bert, TEXTS), strict=True)}
    budget = max(each.values())
    monkeypatch.setattr(_pieces, "SHARD_BYTES", budget)
    stored = stream(bert, TEXTS, tmp_path, shard=100)
    assert [text for shard in work for text in shard] == TEXTS == [a.text for a in stored]
    sums = [sum(each[text] for text in shard) for shard in work]
    assert len(sums) > 3 and max(sums) == budget
    assert all(here + each[later[0]] > budget for here, later in zip(sums, work[1:], strict=False)), "none too small"


# ---- what can go wrong -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "options", "said"),
    [
        ("one text", {}, "give a list of texts"),
        (("a", "pair"), {}, "give a list of texts"),
        ([], {}, "No text"),
        (iter([]), {}, "No text"),
        (["good", " "], {}, "Text 1 is empty or blank"),
        (["good"], {"shard": 0}, "shard is 0"),
        (["good", "bad"], {"target": [0]}, "1 targets were given for 2 texts"),
        (iter(["good", "bad"]), {"target": [0]}, "1 targets and more texts"),
        (["good"], {"steps": 0}, "steps is 0"),
        (["good"], {"layers": [7]}, "layers"),
        ({"text": "good"}, {}, "pass its texts"),
    ],
)
def test_wrong_arguments(bert, texts, options, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        stream(bert, texts, tmp_path / "scores", **options)
    assert not list(tmp_path.rglob("shard-*"))


def test_a_blank_text_late_in_a_generator(bert, work, tmp_path):
    with pytest.raises(ValueError, match=r"from number 8 on.*Text 1 is empty"):
        stream(bert, iter([*TEXTS[:9], " "]), tmp_path)
    assert work == [TEXTS[:4], TEXTS[4:8]], "what came before is done"


def test_an_unsupported_model(bert, tmp_path):
    with pytest.raises(UnsupportedModelError, match="transformers model is needed"):
        stream((object(), bert[1]), TEXTS, tmp_path)


def test_warnings_of_workers_come_as_one(bert, tmp_path):
    with pytest.warns(UserWarning, match=r"begins with text 0: .*longer than 5 tokens.*\(2 more shards") as caught:
        stream(bert, TEXTS, tmp_path, max_length=5)
    assert len([w for w in caught if "longer" in str(w.message)]) == 1


def test_a_folder_that_is_not_shared(bert, monkeypatch, tmp_path):
    source = _worker.Source("key", None, tmp_path / "none", "")
    with pytest.raises(FileNotFoundError, match="all workers share"):
        _worker.work(source, tmp_path, "run", 0, TEXTS, None, {})
    _worker.keep("key", *bert)
    with pytest.raises(FileNotFoundError, match="all workers share"):
        _worker.work(source, tmp_path / "none", "run", 0, TEXTS[:1], None, {"steps": 1})
    monkeypatch.setattr(_worker, "write_shard", lambda *args: None)
    with pytest.raises(RuntimeError, match="from 0 on are not in"):
        stream(bert, TEXTS, tmp_path)


def test_only_the_model_that_was_sent_is_unpickled(bert, tmp_path):
    _worker.drop()
    source = _worker.send("key", *bert, tmp_path)
    good = source.file.read_bytes()
    source.file.write_bytes(good[:-1] + b"!")
    with pytest.raises(ValueError, match="nothing was read"):
        _worker.work(source, tmp_path, "run", 0, TEXTS[:2], None, {"steps": 1})
    source.file.write_bytes(good)
    _worker.work(source, tmp_path, "run", 0, TEXTS[:2], None, {"steps": 1})
    source.file.unlink()
    _worker.work(source, tmp_path, "run", 2, TEXTS[2:4], None, {"steps": 1})  # not read a second time
    assert len(_shards.shards_of(tmp_path, "run")) == 2
    _worker.drop()


def test_a_name_that_is_another_model_elsewhere(tmp_path):
    save_tiny(tmp_path / "model")
    with pytest.raises(ValueError, match="is not the model"):
        _worker.work(_worker.Source("key", str(tmp_path / "model"), None, None), tmp_path, "run", 0, TEXTS, None, {})


def test_threads_take_turns(bert, tmp_path):
    with joblib.parallel_config(backend="threading", n_jobs=3):
        stored = stream(bert, TEXTS, tmp_path, shard=1)
    assert_same(stored, [attribute(*bert, text, steps=3) for text in TEXTS])
    assert not list(tmp_path.glob(".*")), "no model was sent anywhere"


def test_what_is_no_finished_folder(bert, tmp_path):
    with pytest.raises(FileNotFoundError, match="manifest"):
        open_dataset(tmp_path)
    stream(bert, TEXTS, tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["settings"]["version"] = 0
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="version 0"):
        open_dataset(tmp_path)


def test_the_model_is_let_go(bert, tmp_path):
    model = make("bert")
    stream((model, bert[1]), TEXTS[:2], tmp_path)
    gone = weakref.ref(model)
    del model
    assert gone() is None


# ---- what must not be lost or mixed up -------------------------------------------------------------------------------


@pytest.mark.parametrize("content", ['{"name": "a web page"}', '{"settings": [1]}'])
def test_a_manifest_of_something_else_is_left_alone(bert, tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(ValueError, match="manifest.json is of something else, and would be lost"):
        stream(bert, TEXTS, tmp_path)
    assert (tmp_path / "manifest.json").read_text() == content
    with pytest.raises(ValueError, match="manifest.json is of None version None"):
        open_dataset(tmp_path)


def test_hidden_files_of_others_stay(bert, tmp_path):
    for name in (".model-cache.json", ".shard-list.tmp", "photo.jpg"):
        (tmp_path / name).write_text("mine")
    stream(bert, TEXTS, tmp_path)
    assert all((tmp_path / name).read_text() == "mine" for name in (".model-cache.json", ".shard-list.tmp"))


def test_a_folder_that_is_done_is_not_written_to(bert, tmp_path):
    """It may be read-only."""
    stream(bert, TEXTS, tmp_path)
    before = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    stream(bert, TEXTS, tmp_path)
    assert {path.name: path.stat().st_ino for path in tmp_path.iterdir()} == before


def test_a_class_named_by_a_number_is_not_the_class_of_that_number(tmp_path):
    bert = make("bert", id2label={0: "1", 1: "0", 2: "2"}), tokenizer_for("bert")
    stored = stream(bert, TEXTS[:2], tmp_path, target=[1, 1])
    assert [a.target for a in stored] == [1, 1]
    with pytest.raises(ValueError, match="holds other texts, or other targets: see"):
        stream(bert, TEXTS[:2], tmp_path, target=["1", "1"])


def test_inside_a_touch_nothing_is_kept(bert, tmp_path):
    """Workers would explain the model without it, and shards made before would pass for those of the changed one."""
    gates = np.ones((3, 4))
    gates[0] = 0
    with touch(bert[0], factors=gate_heads(gates)), pytest.raises(ValueError, match="The model is inside touch"):
        stream(bert, TEXTS, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "texts, options, message",
    [
        (set(TEXTS), {}, "The texts are a set, which has no order"),
        (b"a good film", {}, "The text is given as bytes"),
        (TEXTS, {"steps": 0}, "^steps is 0"),
        (TEXTS, {"layers": [1.5]}, r"layers is \[1.5\]"),
        (TEXTS, {"max_length": "9"}, "max_length is '9'"),
        (iter(TEXTS[:3]), {"target": iter([0, 1])}, "There are 2 targets and more texts"),
        (iter(TEXTS[:3]), {"target": iter([0] * 4)}, "There are 3 texts and more targets"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(bert, tmp_path, texts, options, message):
    with pytest.raises(ValueError, match=message):
        stream(bert, texts, tmp_path, **options)


def test_a_file_in_the_place_of_the_folder(bert, tmp_path):
    (tmp_path / "scores").write_text("mine")
    with pytest.raises(ValueError, match="scores is a file: give the name of a folder"):
        stream(bert, TEXTS, tmp_path / "scores")

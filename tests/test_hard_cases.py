"""Inputs, models and callers that broke neighbouring projects; ``hard_cases.py`` says which test proves which case."""

from __future__ import annotations

import ast
import copy
import gc
import pickle
import threading
import warnings
import weakref
from pathlib import Path

import hard_cases
import numpy as np
import pandas as pd
import pytest
import torch
from families import FAMILIES, inputs, make, reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample import sample
from texts import PIECES, tokenizer_for
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from helpers import plots
from helpers import tree as trees
from helpers.attention import NAME, UnsupportedModelError, touch
from helpers.attribution import attribute, attribute_inputs
from helpers.inputs import encode, length_limit
from helpers.models import predict_logits
from helpers.quadrature import points_and_weights

ROOT = Path(__file__).resolve().parents[1]
SENTENCE, PAIR = "a slow start , but a wonderful end", ("the film is good", "it is a wonderful story")
MIXED = ["a good film", SENTENCE, "bad", "the story is not very good , but it is a film we love"]
QUICK = {"steps": 3, "gap": False}
few = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizer_for("bert")


@pytest.fixture(scope="module")
def model():
    return make("bert")


@pytest.fixture(scope="module")
def expected(model, tokenizer):
    return attribute(model, tokenizer, SENTENCE, **QUICK)


def of(model, tokenizer, text=SENTENCE, **options):
    return attribute(model, tokenizer, text, **(QUICK | options))


def same(found, wanted, atol=1e-9):
    np.testing.assert_allclose(found.scores, wanted.scores, rtol=0, atol=atol)


def is_a_paragraph(error: BaseException) -> bool:
    """One readable paragraph: a sentence or two on one line, with no stack and no address of an object in it."""
    said = str(error)
    return 20 < len(said) < 700 and "\n" not in said and said.rstrip().endswith((".", ")")) and " at 0x" not in said


# ---- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", hard_cases.CASES, ids=lambda case: str(case.number))
def test_each_case_is_proved_by_tests_that_exist(case):
    assert case.tests and case.outcome in hard_cases.OUTCOMES
    for name in case.tests:
        file, _, test = name.partition("::")
        defined = {
            node.name
            for node in ast.walk(ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8")))
            if isinstance(node, ast.FunctionDef)
        }
        assert test in defined, f"case {case.number} names {name}, which is not there"


def test_cases_are_numbered_once_and_each_test_of_this_file_proves_one():
    assert [case.number for case in hard_cases.CASES] == list(range(1, len(hard_cases.CASES) + 1))
    assert sum(case.number > hard_cases.REPORTED for case in hard_cases.CASES) >= hard_cases.REPORTED
    named = {name for case in hard_cases.CASES for name in case.tests if name.startswith("test_hard_cases.py")}
    here = {f"test_hard_cases.py::{name}" for name in globals() if name.startswith("test_")}
    about = {
        "test_each_case_is_proved_by_tests_that_exist",
        "test_the_page_is_what_the_table_says",
        "test_cases_are_numbered_once_and_each_test_of_this_file_proves_one",
    }
    assert here - named == {f"test_hard_cases.py::{name}" for name in about}


def test_the_page_is_what_the_table_says():
    assert hard_cases.PAGE.read_text(encoding="utf-8") == hard_cases.page(), f"type: python {hard_cases.COMMAND}"


# ---- texts -----------------------------------------------------------------------------------------------------------


def ask_attribution(model, tokenizer, text):
    return attribute(model, tokenizer, text, **QUICK)


@pytest.mark.parametrize("ask", [ask_attribution, predict_logits, encode])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Text 0 is empty"),
        (["good", " \u00a0\t"], "Text 1 is empty"),
        ([("good", "")], "Text 0 .second of the pair. is empty"),
        (("good", ""), "Text 0 .second of the pair. is empty"),
    ],
)
def test_blank_texts_are_refused_alone_and_in_a_list(model, tokenizer, ask, text, said):
    with pytest.raises(ValueError, match=said) as caught:
        ask(model, tokenizer, text)
    assert is_a_paragraph(caught.value)


@pytest.mark.parametrize("ask", [ask_attribution, predict_logits, encode])
@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (b"a good film", "decode it first"),
        (bytearray(b"film"), "decode it first"),
        ([b"film"], "Text 0 is bytes"),
        ({"good film", "bad film"}, r"sorted\(texts\)"),
        (np.array("film"), "pass a string"),
        (pd.Series(["film", None]), "Text 1 is"),
        (pd.Series(["film", pd.NA], dtype="string"), "Text 1 is"),
        ([Path("film")], "Text 0 is PosixPath"),
        (["film", 3.5], "Text 1 is float"),
    ],
)
def test_what_is_no_text_is_refused_with_the_cure(model, tokenizer, ask, texts, said):
    with pytest.raises(ValueError, match=said) as caught:
        ask(model, tokenizer, texts)
    assert is_a_paragraph(caught.value)


LETTERS = st.one_of(
    st.characters(exclude_categories=["Cs"]),
    st.sampled_from("aeiou .,!?<>&$_%{}#\\`\"'/()[]*|~^"),
    st.sampled_from("\x00\x07\x1b\x7f\x85\u00ad\u200b\u200c\u200d\u200e\u200f\u2028\u202e\u2066\ufeff\ufffd\U000e0041"),
    st.sampled_from("\u0301\u0308\u20e3\ufe0fאבגمرحبا中文한국어🙂👩🏽‍🚀ßİıſﬁ"),
)
ANY_TEXT = st.one_of(
    st.text(LETTERS, max_size=40),
    st.text(st.sampled_from("?!.,;:-…—'\"()"), min_size=1, max_size=12),
    st.lists(st.sampled_from([*PIECES, "[MASK]", "<s>", "</s>", "NULL", "nan", "None", "0"]), max_size=8).map(" ".join),
    st.integers(1, 4000).map(lambda n: "x" * n),
    st.integers(1, 400).map(lambda n: "é" + "\u0301" * n),
)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@settings(few, max_examples=40)
@given(text=ANY_TEXT)
def test_any_text_is_explained_or_refused_in_a_sentence(family, text):
    model, tokenizer = known(family)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* texts are longer than")
        try:
            a = attribute(model, tokenizer, text, steps=1, gap=False, layers=[2])
        except ValueError as error:
            assert "ext 0" in str(error) and "\n" not in str(error)
            return
    assert a.text == text and np.isfinite(a.scores).all()
    assert [i for word in a.words for i in range(word.start, word.stop)] == list(range(len(a.tokens)))
    for word in a.words:
        assert word.text in text or word.text in a.tokens


_KNOWN: dict[str, tuple] = {}


def known(family):
    """A model and its tokenizer, made once: hypothesis may not use a fixture of a function."""
    if family not in _KNOWN:
        _KNOWN[family] = make(family, max_position_embeddings=40), tokenizer_for(family)
    return _KNOWN[family]


@pytest.mark.parametrize("wide", ["🙂", "中", "مرحبا", "e\u0301\u0301", "a\u200bb", "W" * 300, "\u202eabc", "\x1b[31m"])
def test_signs_of_any_script_are_drawn(wide, tmp_path):
    a = sample((wide, "a", "film", wide))
    tree = trees.attribution_tree(a)
    for end in ("svg", "dot", "mmd", "json"):
        assert trees.export(tree, tmp_path / f"tree.{end}").stat().st_size
    for figure in (plots.sentence_links(a), plots.heads_overview(a), plots.layer_maps(a, 0)):
        assert figure.to_json()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_at_the_limit_is_whole_and_one_beyond_it_is_cut_with_a_warning(family):
    tokenizer = tokenizer_for(family)
    tokenizer.model_max_length = int(1e30)
    model = make(family, initializer_range=0.02)
    own = len(tokenizer("a")["input_ids"]) - 1
    limit = length_limit(model, tokenizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a = of(model, tokenizer, " ".join(["a"] * (limit - own)), steps=1)
    assert len(a.tokens) == limit
    with pytest.warns(UserWarning, match=f"longer than {limit} tokens .* has {limit + 1} tokens") as seen:
        a = of(model, tokenizer, " ".join(["a"] * (limit - own + 1)), steps=1)
    assert len(seen) == 1 and len(a.tokens) == limit


# ---- batches ---------------------------------------------------------------------------------------------------------


def test_texts_of_every_container_are_the_same_texts(model, tokenizer):
    wanted = [a.scores for a in of(model, tokenizer, MIXED)]
    frame = pd.DataFrame({"text": MIXED}, index=[7, 3, 3, 0])
    for given_as in (
        tuple_of_one_use(MIXED),
        np.array(MIXED),
        np.array(MIXED, dtype=object),
        [np.str_(text) for text in MIXED],
        pd.Series(MIXED, index=[7, 3, 3, 0]),
        pd.Series(MIXED, dtype="string"),
        frame["text"],
        pd.Index(MIXED),
        iter(MIXED),
    ):
        found = of(model, tokenizer, given_as)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one.scores, other)


def tuple_of_one_use(texts):
    yield from texts


@few
@given(
    texts=st.lists(
        st.lists(st.sampled_from(PIECES[4:]), min_size=1, max_size=14).map(" ".join), min_size=1, max_size=6
    ),
    budget=st.sampled_from([1, 60, 4096]),
)
def test_any_batch_equals_its_texts_one_by_one(texts, budget):
    model, tokenizer = known("bert")
    together = of(model, tokenizer, texts, batch_tokens=budget)
    raw = predict_logits(model, tokenizer, texts)
    for text, a, logits in zip(texts, together, raw, strict=True):
        alone = of(model, tokenizer, text)
        assert a.tokens == alone.tokens and a.text == text
        same(a, alone)
        np.testing.assert_allclose(logits, predict_logits(model, tokenizer, [text])[0], atol=1e-6)


def test_a_text_twice_in_a_batch_has_the_same_scores_twice(model, tokenizer):
    found = of(model, tokenizer, [SENTENCE, "bad", SENTENCE, "bad", SENTENCE])
    assert [a.text for a in found] == [SENTENCE, "bad", SENTENCE, "bad", SENTENCE]
    same(found[0], found[2])
    same(found[0], found[4])
    same(found[1], found[3])


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "modernbert"])
def test_holes_in_the_mask_are_no_tokens(family):
    """A token masked out in the middle: no score, and the others' are the plain algorithm's."""
    model, batch = make(family), inputs("right")
    batch["attention_mask"][:, 3] = 0
    target = torch.tensor([2, 0, 1])
    theirs, _ = reference(model, batch, target, *points_and_weights("right", 3))
    ours = attribute_inputs(model, batch, target=target, steps=3, rule="right")
    assert np.abs(ours.scores.numpy() - theirs).max() <= 1e-10 * np.abs(theirs).max()
    assert not ours.scores[..., 3].any(), "nothing may come from a token that is masked out"


@pytest.mark.parametrize("family", FAMILIES)
def test_inputs_of_any_layout_in_memory(family):
    model, batch = make(family), inputs("right")
    wanted = attribute_inputs(model, batch, **QUICK).scores
    kept = {name: tensor.clone() for name, tensor in batch.items()}
    strided = {name: tensor.repeat_interleave(2, dim=1)[:, ::2] for name, tensor in batch.items()}
    turned = {name: tensor.t().contiguous().t() for name, tensor in batch.items()}
    for form in (strided, turned, {**batch, "attention_mask": batch["attention_mask"].bool()}):
        torch.testing.assert_close(attribute_inputs(model, form, **QUICK).scores, wanted, rtol=0, atol=1e-12)
    assert all(torch.equal(batch[name], kept[name]) for name in batch), "the caller's tensors are the caller's"


# ---- models ----------------------------------------------------------------------------------------------------------


@few
@given(
    layers=st.integers(1, 4),
    heads=st.integers(1, 4),
    width=st.sampled_from([2, 6, 10]),
    inner=st.sampled_from([1, 7, 33]),
    classes=st.integers(2, 7),
    side=st.sampled_from(["left", "right"]),
    lengths=st.lists(st.integers(1, 11), min_size=1, max_size=3),
    seed=st.integers(0, 9),
)
def test_a_model_of_any_shape_equals_the_plain_algorithm(layers, heads, width, inner, classes, side, lengths, seed):
    model = make(
        "bert",
        seed=seed,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        hidden_size=heads * width,
        intermediate_size=inner,
        num_labels=classes,
    )
    batch = inputs(side, tuple(lengths), seed=seed)
    target = torch.arange(len(lengths)) % classes
    theirs, _ = reference(model, batch, target, *points_and_weights("midpoint", 2))
    ours = attribute_inputs(model, batch, target=target, steps=2, rule="midpoint")
    assert np.abs(ours.scores.numpy() - theirs).max() <= 1e-10 * np.abs(theirs).max() + 1e-15


@pytest.mark.parametrize("classes", [1, 2, 5, 150])
@pytest.mark.parametrize("kind", [None, "multi_label_classification"])
def test_any_number_of_classes(tokenizer, classes, kind):
    model = make("bert", num_labels=classes, problem_type=kind, id2label=None, initializer_range=0.1)
    a = attribute(model, tokenizer, SENTENCE, steps=24, rule="gauss", target=classes - 1)
    assert len(a.labels) == classes and a.target == classes - 1
    assert np.abs(a.scores).max() > 0, "a softmax over one class would have no gradient"
    np.testing.assert_allclose(a.scores.sum((1, 2, 3)), a.value - a.start, atol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_run_on_every_family_whatever_it_knows_of_segments(family):
    model, tokenizer = make(family), tokenizer_for(family)
    a = of(model, tokenizer, PAIR if family != "gpt2" else ("a good film", " a bad film"))
    assert np.isfinite(a.scores).all() and {0, 1} <= {word.segment for word in a.words}
    taken = encode(model, tokenizer, ("a film", "a film")).tensors
    assert ("token_type_ids" in taken) == ((getattr(model.config, "type_vocab_size", 0) or 0) > 1)


def test_a_model_with_one_segment_gets_no_second(tokenizer):
    model = make("roberta", type_vocab_size=1)
    assert "token_type_ids" not in encode(model, tokenizer, PAIR).tensors
    assert np.isfinite(of(model, tokenizer, PAIR).scores).all()


def test_dropout_draws_nothing_and_training_mode_comes_back(tokenizer):
    model = make("bert", hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5, classifier_dropout=0.5).train()
    before, numbers = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, second = of(model, tokenizer), of(model, tokenizer)
    np.testing.assert_array_equal(first.scores, second.scores)
    assert model.training and model.bert.encoder.layer[0].attention.self.dropout.p == 0.5
    assert torch.equal(torch.get_rng_state(), before) and (np.random.get_state()[1] == numbers).all()


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "albert"])  # which has none
def test_activation_checkpointing_changes_nothing(family):
    model, batch = make(family), inputs("right")
    wanted = attribute_inputs(model, batch, **QUICK).scores
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its name changes between releases of transformers
        model.gradient_checkpointing_enable()
        model.train()
        torch.testing.assert_close(attribute_inputs(model, batch, **QUICK).scores, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("option", ["output_attentions", "output_hidden_states", "use_cache"])
@pytest.mark.parametrize("family", ["bert", "gpt2", "distilbert"])
def test_settings_of_a_config_that_ask_for_more_outputs(family, option):
    model, batch = make(family), inputs("right")
    wanted = attribute_inputs(model, batch, **QUICK).scores
    setattr(model.config, option, True)
    torch.testing.assert_close(attribute_inputs(model, batch, **QUICK).scores, wanted, rtol=0, atol=1e-12)


def test_a_compiled_model_is_refused_and_the_one_inside_works(model, tokenizer, expected):
    compiled = torch.compile(model)
    with pytest.raises(UnsupportedModelError, match="_orig_mod") as caught:
        of(compiled, tokenizer)
    assert "\n" not in str(caught.value)
    same(of(compiled._orig_mod, tokenizer), expected)


def test_a_model_without_weights_is_refused_with_the_cure(tokenizer):
    empty = make("bert").to("meta")
    for ask in (ask_attribution, predict_logits):
        with pytest.raises(ValueError, match="meta device.*from_pretrained") as caught:
            ask(empty, tokenizer, SENTENCE)
        assert is_a_paragraph(caught.value)


def test_a_copied_and_a_pickled_model_are_clean(model, tokenizer, expected, tmp_path):
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.config._attn_implementation != NAME
        same(of(twin, tokenizer), expected)
    model.save_pretrained(tmp_path)
    assert NAME not in (tmp_path / "config.json").read_text(encoding="utf-8")


def test_a_model_that_was_explained_can_be_freed(tokenizer):
    model = make("bert")
    a = of(model, tokenizer)
    kept = weakref.ref(model)
    del model
    gc.collect()
    assert kept() is None and a.scores.base is None, "an explanation must hold neither the model nor its tensors"


@pytest.mark.parametrize("error", [KeyboardInterrupt, torch.OutOfMemoryError, RuntimeError("odd")])
def test_stopped_midway_the_model_is_as_before(tokenizer, error):
    model = make("bert", implementation="sdpa").train()
    calls = []

    def stop(*_):
        calls.append(1)
        if len(calls) > 2:
            raise error

    handle = model.classifier.register_forward_hook(stop)
    with pytest.raises(error if isinstance(error, type) else type(error)):
        attribute(model, tokenizer, SENTENCE, steps=1)
    handle.remove()
    assert model.training and model.config._attn_implementation == "sdpa"
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
    assert not model._forward_hooks and not model._forward_pre_hooks
    with touch(model, record=True) as seen:
        model(**inputs(None))
    assert sorted(seen.attention) == [0, 1, 2], "no lock and no open block may be left behind"


def test_gradients_and_frozen_weights_of_a_training_in_progress_stay(tokenizer, expected):
    model = make("bert")
    model(**inputs("right")).logits.sum().backward()
    model.bert.embeddings.requires_grad_(False)
    before = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    wanted = [p.requires_grad for p in model.parameters()]
    same(of(model, tokenizer), expected)
    assert [p.requires_grad for p in model.parameters()] == wanted
    for parameter, grad in zip(model.parameters(), before, strict=True):
        assert (parameter.grad is None) == (grad is None) and (grad is None or torch.equal(parameter.grad, grad))


# ---- tokenizers ------------------------------------------------------------------------------------------------------


def plain_tokenizer(**special):
    """Words and nothing else: no [CLS], no [SEP], no template."""
    backend = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", **special)


def test_a_tokenizer_without_special_tokens(model):
    a = of(model, plain_tokenizer(pad_token="[PAD]"), ["a good film", "BAD"])
    assert a[0].tokens == ("a", "good", "film") and a[1].tokens == ("bad",)
    assert [word.text for word in (*a[0].words, *a[1].words)] == ["a", "good", "film", "BAD"]
    assert a[1].scores.shape[-2:] == (1, 1) and np.isfinite(a[1].scores).all()
    assert trees.attribution_tree(a[0]).graph["labels"] == ("a", "good", "film")


def test_a_tokenizer_without_padding_names_a_cure_that_cures():
    model, tokenizer = make("gpt2", pad_token_id=None), tokenizer_for("gpt2")
    tokenizer.pad_token = None
    with pytest.raises(ValueError) as caught:
        of(model, tokenizer, "a good film")
    code = str(caught.value).split("Type: ")[1]
    exec(compile(code, "the cure", "exec"), {"tokenizer": tokenizer, "model": model})
    assert len(of(model, tokenizer, ["a good film", "a film"])) == 2


def test_a_tokenizer_that_was_pickled_or_pads_its_own_way(model, expected):
    twin = pickle.loads(pickle.dumps(tokenizer_for("bert")))
    same(of(model, twin), expected)
    twin.backend_tokenizer.enable_padding(length=30, pad_id=0, pad_token="[PAD]")
    twin.backend_tokenizer.enable_truncation(5)
    twin.padding_side = twin.truncation_side = "left"
    a = of(model, twin)
    assert a.tokens == expected.tokens, "what an earlier caller switched on in the tokenizer is not taken over"
    same(a, expected)


# ---- callers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_callers_that_switch_gradients_get_the_same_and_keep_their_switch(model, tokenizer, expected, context):
    with context():
        before = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        same(of(model, tokenizer), expected)
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == before
        assert isinstance(predict_logits(model, tokenizer, SENTENCE), np.ndarray)


def test_predictions_do_not_follow_a_callers_autocast(tokenizer):
    model = make("bert", dtype=torch.float32)
    wanted = predict_logits(model, tokenizer, MIXED)
    with torch.autocast("cpu", torch.bfloat16):
        np.testing.assert_array_equal(predict_logits(model, tokenizer, MIXED), wanted)
        assert torch.is_autocast_enabled("cpu")


def test_attributions_do_not_follow_a_callers_autocast(tokenizer):
    model = make("bert", dtype=torch.float32)
    wanted = of(model, tokenizer)
    with torch.autocast("cpu", torch.bfloat16):
        same(of(model, tokenizer), wanted)
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_callers_with_another_default_number_format(model, tokenizer, expected, dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        same(of(model, tokenizer), expected)
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(before)


def test_ordinary_texts_warn_of_nothing_and_print_nothing(model, tokenizer, capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attribute(model, tokenizer, MIXED)
        attribute(model, tokenizer, [PAIR])
        predict_logits(model, tokenizer, MIXED)
    assert capfd.readouterr() == ("", "")


def test_threads_with_models_of_their_own_do_not_mix(tokenizer):
    made = [make("bert", seed=seed) for seed in range(3)]
    wanted, found = [of(model, tokenizer) for model in made], {}

    def work(i):
        found[i] = [of(made[i], tokenizer) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, wanted_of in enumerate(wanted):
        for a in found[i]:
            same(a, wanted_of)


def test_an_attribution_inside_a_recording_block_leaves_the_record_alone(model, tokenizer, expected):
    batch = inputs("right")
    with touch(model, record=True) as outer:
        model(**batch)
        kept = {layer: weights.clone() for layer, weights in outer.attention.items()}
        with touch(model, record=[0]):
            same(of(model, tokenizer), expected)
        model(**batch)
        assert all(torch.equal(outer.attention[layer], kept[layer]) for layer in kept)


@pytest.mark.parametrize("target", [-1, 3, True, "no such", 1.0, None, np.int64(-1), "label_1", b"LABEL_1"])
def test_classes_that_are_not_there_are_refused_in_a_sentence(model, tokenizer, target):
    if target is None:
        assert of(model, tokenizer, target=None).target in range(3)
        return
    with pytest.raises(ValueError, match="There is no class .* LABEL_0, LABEL_1, LABEL_2") as caught:
        of(model, tokenizer, target=target)
    assert is_a_paragraph(caught.value)


def test_classes_in_every_kind_that_means_one(model, tokenizer):
    wanted = of(model, tokenizer, target=1)
    for target in (
        1,
        "LABEL_1",
        np.int8(1),
        np.uint64(1),
        np.array(1),
        np.str_("LABEL_1"),
        torch.tensor(1),
        [1],
        (1,),
        np.array([1]),
        pd.Series([1]),
        pd.Series(["LABEL_1"]),
    ):
        same(of(model, tokenizer, target=target), wanted)


def test_what_is_ignored_in_silence_is_not_relied_on():
    """transformers 5 takes ``head_mask=`` and does nothing with it, and ``prune_heads`` is gone."""
    for path in sorted((ROOT / "helpers").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                assert "head_mask" not in {keyword.arg for keyword in node.keywords}, f"{path.name}:{node.lineno}"
                assert not (isinstance(node.func, ast.Attribute) and node.func.attr == "prune_heads"), path.name

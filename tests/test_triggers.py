"""Triggers: found, inserted, chosen on one half and reported on the other, and made into a set to harden with."""

import argparse
import importlib.util
import json
import warnings
from dataclasses import replace

import families
import numpy as np
import pandas as pd
import pytest
import torch
from sample import sample
from texts import tokenizer_for
from tokenizers import AddedToken, processors

from helpers import _trigger_bench, _trigger_lexicon, _trigger_search, data, models, planted, triggers
from helpers._trigger_search import Rules, find, largest_links
from helpers.triggers import Trigger

TEXTS = [
    "a slow start , but a wonderful end",
    "not a good film",
    "the story is dull",
    "unbelievably bad",
    "we love it !",
]
PAIRS = [("film", "it is a good film"), ("the story is dull", "we hate the story"), ("a bad end", "a good end .")]
GOLD = [1, 1, 0, 0, 2]
FAST = {"steps": 2, "rule": "gauss"}


@pytest.fixture(scope="module")
def bert():
    return families.make("bert", dtype=torch.float32, num_labels=3), tokenizer_for("bert")


@pytest.fixture(scope="module")
def roberta():
    """No segment ids, and other marks between the texts."""
    tokenizer = tokenizer_for("bert")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] [SEP] $B [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    return families.make("roberta", dtype=torch.float32), tokenizer


@pytest.fixture(scope="module")
def gpt2():
    """No special token at all; words begin with a mark of their own."""
    tokenizer = tokenizer_for("gpt2")
    return families.make("gpt2", dtype=torch.float32, pad_token_id=0), tokenizer


def typed(bert, text="not very", **options):
    return Trigger.from_text(bert[1], text, **{"positions": [0.5, 1.0][: len(text.split())], **options})


# ---- a trigger -------------------------------------------------------------------------------------------------------


def test_typed_words_become_tokens_in_order_of_place(bert):
    trigger = Trigger.from_text(bert[1], "very unbelievably not", positions=[0.9, 0.1, 0.0], segments=[1, 0, 0])
    assert trigger.tokens == ("not", "un", "##bel", "##iev", "##ably", "very")
    assert trigger.segments == (0, 0, 0, 0, 0, 1)
    assert trigger.positions == (0.0, 0.1, 0.1, 0.1, 0.1, 0.9)
    assert trigger.ids == tuple(bert[1].convert_tokens_to_ids(list(trigger.tokens)))
    assert str(trigger) == "not un ##bel ##iev ##ably | very"


@pytest.mark.parametrize("text", ["not [CLS]", "[SEP]", "[PAD] very", "not zebra", "🤖"])
def test_special_and_unknown_tokens_are_refused(bert, text):
    with pytest.raises(ValueError, match="model's own"):
        Trigger.from_text(bert[1], text)


def test_a_special_token_is_refused_on_insertion_too(bert):
    victims = triggers.prepare(*bert, TEXTS, GOLD)
    with pytest.raises(ValueError, match=r"\[SEP\]"):
        triggers.insert(victims, Trigger(("[SEP]",), (2,), (0,), (0.0,)))


def test_capitals_are_lowered_with_a_notice_where_the_model_reads_none(bert):
    with pytest.warns(UserWarning, match="'Not Very' became 'not very'"):
        trigger = Trigger.from_text(bert[1], "Not Very")
    assert trigger.tokens == ("not", "very")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Trigger.from_text(bert[1], "not very")


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("  ", {}, "no word"),
        ("not very", {"positions": [0.1]}, "1 positions were given for the 2 words"),
        ("not", {"positions": 1.5}, "run from 0"),
        ("not", {"segments": 2}, "segments are 0"),
    ],
)
def test_a_typed_trigger_that_makes_no_sense(bert, text, options, said):
    with pytest.raises(ValueError, match=said):
        Trigger.from_text(bert[1], text, **options)


def test_parts_of_a_trigger(bert):
    trigger = typed(bert, "not very")
    assert trigger.take([1]).tokens == ("very",)
    assert trigger.take([1]).positions == (1.0,)
    with pytest.raises(ValueError, match="tokens 0 to 1"):
        trigger.take([2])
    with pytest.raises(ValueError, match="comes from no links"):
        trigger.one_link()


def test_unique_keeps_the_best_and_counts(bert):
    one = replace(typed(bert), score=0.2, row=4, target=1)
    found = triggers.unique([one, replace(one, score=0.5, row=7), typed(bert, "not"), replace(one, target=0)])
    assert [(t.tokens, t.target, t.score, t.support) for t in found[:2]] == [
        (("not", "very"), 1, 0.5, 2),
        (("not", "very"), 0, 0.2, 1),
    ]
    assert found[2].tokens == ("not",)


def test_saved_and_loaded(bert, tmp_path):
    found = triggers.extract(*bert, TEXTS, GOLD, **FAST).triggers
    path = triggers.save([*found, typed(bert)], tmp_path / "found.json")
    again = triggers.load(path)
    assert found and again[:-1] == found
    assert again[-1] == typed(bert)
    path.write_text(path.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    with pytest.raises(ValueError, match="extract again"):
        triggers.load(path)
    with pytest.raises(FileNotFoundError):
        triggers.load(tmp_path / "none.json")


def test_moved_to_another_vocabulary(bert, gpt2):
    trigger = replace(typed(bert, "good bad"), target=1, score=0.3)
    assert triggers.moved(trigger, tokenizer_for("bert")) == trigger
    there = triggers.moved(trigger, gpt2[1])
    assert (there.tokens, there.target, there.score) == (("Ġgood", "Ġbad"), 1, 0.3)
    assert there.positions == trigger.positions
    assert triggers.moved(there, bert[1]).ids == trigger.ids
    with pytest.raises(ValueError, match="another vocabulary"):
        triggers.insert(triggers.prepare(*gpt2, ["a good film"], [0]), trigger)


def test_moved_from_a_vocabulary_of_bytes(bert):
    """It writes "é" as two signs, one for each of the two bytes."""
    tokenizer = tokenizer_for("bert")
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in ("café", "🙂")])
    whole = Trigger(("ĠcafÃ©", "Ġnot"), (90, 91), (0, 0), (0.0, 1.0), words=("café", "not"))
    pieces = replace(whole, tokens=("ĠcafÃ", "©"), words=("café", "café"), positions=(0.5, 0.5))
    assert str(whole) == "café not"
    assert triggers.moved(whole, tokenizer).tokens == ("café", "not")
    assert triggers.moved(pieces, tokenizer).tokens == ("café",)
    assert triggers.moved(replace(whole, tokens=("ðŁĻĤ", "Ġnot")), tokenizer).tokens == ("🙂", "not")
    with pytest.raises(ValueError, match="half a letter"):
        triggers.moved(replace(whole, tokens=("ĠcafÃ", "Ġnot")), tokenizer)
    plain = Trigger(("▁café",), (90,), (0,), (0.0,))  # in other vocabularies the letter is a letter
    assert str(plain) == "café" and triggers.moved(plain, tokenizer).tokens == ("café",)


def test_a_lone_mark_is_no_word(bert):
    trigger = Trigger(("▁", "▁not"), (90, 91), (0, 0), (0.0, 1.0), words=("", "not"))
    there = triggers.moved(trigger, bert[1])
    assert (there.tokens, there.positions) == (("not",), (1.0,))
    with pytest.raises(ValueError, match="no word"):
        triggers.moved(trigger.take([0]), bert[1])


def test_numbers_of_numpy_become_plain(bert, tmp_path):
    one = Trigger(
        ["not"], np.array([17]), np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.float32),
        target=np.int64(1), label="LABEL_1", score=np.float32(0.5), row=np.int64(3), places=np.array([2]),
    )  # fmt: skip
    assert triggers.load(triggers.save([one], tmp_path / "found.json")) == [one]
    victims, row = crowd(bert), triggers.prepare(*bert, TEXTS, GOLD).gold
    made = {"typed": [typed(bert, "not", target=row[0], label="LABEL_1", segments=np.int64(0))]}
    options = dict(top=np.int64(1), seed=np.int64(1), folder=tmp_path)
    result = triggers.contest(Reader(bert[1]), victims, made, **options)
    assert result.chosen["typed"]["LABEL_0"] == made["typed"]


def test_a_trigger_that_is_no_list(bert, tmp_path):
    one, victims, reader = typed(bert, "not", target=1), crowd(bert), Reader(bert[1])
    for ask in (
        lambda: triggers.attack(reader, victims, one),
        lambda: triggers.contest(reader, victims, {"a": one}),
        lambda: triggers.save(one, tmp_path / "one.json"),
        lambda: triggers.unique(one),
        lambda: triggers.at_random(bert[1], one),
        lambda: triggers.by_frequency(bert[1], TEXTS, GOLD, one),
        lambda: triggers.by_gradient(bert[0], victims, one, rows=[0]),
        lambda: triggers.hardening_set(*bert, table(), one),
    ):
        with pytest.raises(ValueError, match=r"give a list, \[trigger\]"):
            ask()
    given = triggers.contest(reader, victims, {"a": (t for t in [one])}, top=1)
    assert given.chosen["a"]["LABEL_0"] == [one]
    assert len(triggers.by_frequency(bert[1], TEXTS, GOLD, (t for t in [one, one]))) == 2


def test_moved_by_its_text_capitals_and_pieces_are_dealt_with(bert):
    cased = Trigger(("Not", "##ly"), (5, 6), (0, 0), (0.0, 0.0), words=("Notly", "Notly"))
    with pytest.warns(UserWarning, match="no capitals"):
        assert triggers.moved(cased, bert[1]).tokens == ("not", "##ly")
    with pytest.raises(ValueError, match="vocabulary lacks"):
        triggers.moved(Trigger(("zebra",), (5,), (0,), (0.0,)), bert[1])
    with pytest.warns(UserWarning, match="no capitals"):
        assert triggers.moved(Trigger(("Not",), (5,), (0,), (0.0,)), bert[1]).tokens == ("not",)


# ---- finding ---------------------------------------------------------------------------------------------------------


def links_of(a, scores):
    """The attribution with all scores 0 but some: {(layer, head, query, key): score}."""
    matrix = np.zeros_like(a.scores)
    for place, score in scores.items():
        matrix[place] = score
    return replace(a, scores=matrix)


@pytest.fixture
def example():
    """[CLS] a slow but warm film [SEP]; the places of the words are 1 to 5."""
    return sample(("a", "slow", "but", "dull", "film")), tokenizer_for("bert")


def test_two_largest_links_make_the_trigger(example):
    a, tokenizer = example
    a = links_of(a, {(1, 0, 2, 4): 0.5, (2, 1, 0, 5): 0.3, (0, 0, 1, 3): 0.2})
    trigger, _ = find(a, 7, tokenizer, Rules())
    assert trigger.tokens == ("slow", "dull", "film")  # [CLS] is left out
    assert trigger.positions == (0.25, 0.75, 1.0)
    assert trigger.score == pytest.approx(0.4)
    assert (trigger.target, trigger.label, trigger.row, trigger.places) == (1, "positive", 7, (2, 4, 5))
    assert [link[:4] for link in trigger.links] == [(1, 0, 2, 4), (2, 1, 0, 5)]
    assert trigger.one_link().tokens == ("slow", "dull")
    assert trigger.one_link().score == pytest.approx(0.5)


@pytest.mark.parametrize(("second", "kept"), [(0.09, False), (0.11, True)])
def test_a_weak_second_link_is_dropped(example, second, kept):
    a, tokenizer = example
    trigger, _ = find(links_of(a, {(1, 0, 2, 4): 0.5, (2, 1, 5, 5): second}), 0, tokenizer, Rules())
    assert ("film" in trigger.tokens) is kept


def test_the_released_variant(example):
    a, tokenizer = example
    a = links_of(a, {(1, 0, 2, 4): 0.5, (2, 1, 1, 5): 0.4, (1, 0, 3, 4): 0.2})
    trigger, _ = find(a, 0, tokenizer, Rules(one_head=True))
    assert trigger.tokens == ("slow", "but", "dull")
    assert trigger.score == pytest.approx(0.7)
    weak = links_of(a, {(1, 0, 2, 4): 0.011, (1, 0, 3, 4): 0.008})
    assert find(weak, 0, tokenizer, Rules(one_head=True))[0] is None  # 0.019 < 0.02
    assert find(weak, 0, tokenizer, Rules())[0] is not None


def test_the_released_variant_counts_links_between_two_marks(example):
    a, tokenizer = example
    rules = Rules(one_head=True)
    a = links_of(a, {(1, 0, 2, 4): 0.5, (1, 0, 1, 3): 0.4, (2, 1, 0, 6): 0.6, (2, 1, 0, 5): 0.3, (2, 1, 5, 5): 0.2})
    trigger, _ = find(a, 0, tokenizer, rules)
    assert trigger.tokens == ("film",), "the head is the one of the marks, and their link is one of the two"
    assert trigger.score == pytest.approx(0.9)
    assert [link[:4] for link in trigger.links] == [(2, 1, 0, 5)] and trigger.one_link().tokens == ("film",)
    assert find(a, 0, tokenizer, Rules())[0].tokens == ("a", "slow", "but", "dull")  # the paper's: words only
    assert find(a, 0, tokenizer, rules._replace(skip=True))[0].tokens == ("a", "slow", "but", "dull")
    both = links_of(a, {(2, 1, 0, 6): 0.6, (2, 1, 6, 0): 0.5, (2, 1, 1, 5): 0.4})
    assert find(both, 0, tokenizer, rules)[0] is None
    weak = links_of(a, {(2, 1, 0, 6): 0.6, (2, 1, 1, 5): 0.1})
    assert find(weak, 0, tokenizer, rules)[0] is None  # under 0.2 of the first
    dropped = links_of(a, {(2, 1, 2, 4): 0.5, (2, 1, 1, 5): 0.09})
    trigger, _ = find(dropped, 0, tokenizer, rules)
    assert trigger.tokens == ("slow", "dull") and trigger.score == pytest.approx(0.59)  # both count in the sum


def test_the_released_variant_explains_the_class_predicted(bert):
    predicted = triggers.untouched(triggers.predictor(bert[0]), triggers.prepare(*bert, TEXTS, GOLD))
    wrong = (predicted + 1) % 3
    given = dict(variant="released", links=6, **FAST)
    found, same = (triggers.extract(*bert, TEXTS, gold.tolist(), **given) for gold in (wrong, predicted))
    for trigger in found.attended + found.triggers:
        assert trigger.target == predicted[trigger.row] and trigger.label == f"LABEL_{trigger.target}"
    assert found.attended and (found.triggers, found.attended) == (same.triggers, same.attended)
    paper = triggers.extract(*bert, TEXTS, wrong.tolist(), **FAST)
    assert all(trigger.target == wrong[trigger.row] for trigger in paper.attended + paper.triggers)


def test_partial_results_of_the_released_variant_of_old_are_done_again(bert, tmp_path, monkeypatch):
    """It explained another class then; those of the paper's variant are as they were."""
    with monkeypatch.context() as patch:
        patch.setattr(_trigger_search, "VERSIONS", {"paper": 1, "released": 1})
        for variant in ("paper", "released"):
            triggers.extract(*bert, TEXTS, GOLD, variant=variant, folder=tmp_path, **FAST)
    assert triggers.extract(*bert, TEXTS, GOLD, folder=tmp_path, **FAST).resumed == 5
    assert triggers.extract(*bert, TEXTS, GOLD, variant="released", folder=tmp_path, **FAST).resumed == 0


def test_links_between_marks_only_or_without_worth_give_none(example):
    a, tokenizer = example
    assert find(links_of(a, {(1, 0, 0, 6): 0.5}), 0, tokenizer, Rules())[0] is None
    for nothing in (0.0, -0.1, np.nan):
        assert find(replace(a, scores=np.full_like(a.scores, nothing)), 0, tokenizer, Rules())[0] is None
    assert largest_links(np.full((1, 1, 2, 2), -1.0), np.ones((2, 2), dtype=bool), (0,), 2) == ()


def test_skip_wants_two_words(example):
    a, tokenizer = example
    a = links_of(a, {(1, 0, 0, 4): 0.5, (2, 1, 1, 3): 0.3})
    assert find(a, 0, tokenizer, Rules(skip=True))[0].tokens == ("a", "but")


def test_excluded_words_are_whole_words(example):
    _, tokenizer = example
    a = sample(("a", "slow", "very", "unly", "film"), pieces=("unly",))  # un ##ly
    a = links_of(a, {(1, 0, 0, 5): 0.5, (0, 0, 4, 1): 0.4, (2, 1, 1, 3): 0.3})
    asked = set()
    trigger, attended = find(a, 0, tokenizer, Rules(exclude=lambda word: asked.add(word) or word == "unly"))
    assert trigger.tokens == ("a", "very")
    assert "##ly" not in attended.tokens + trigger.tokens
    assert "unly" in asked
    whole, _ = find(a, 0, tokenizer, Rules())
    assert whole.tokens == ("a", "un", "##ly")
    assert whole.words == ("a", "unly", "unly")


def test_never_more_than_five_tokens(example):
    a, tokenizer = example
    a = sample(("a", "slow", "but", "dull", "film", "very", "good"))
    a = links_of(a, {(0, 0, 1, 2): 0.5, (0, 0, 3, 4): 0.4, (0, 0, 5, 6): 0.3})
    trigger, _ = find(a, 0, tokenizer, Rules(links=3))
    assert trigger.tokens == ("a", "slow", "but", "dull")
    assert trigger.score == pytest.approx(0.45)


def test_attended_joins_two_words(bert):
    found = triggers.extract(*bert, TEXTS[:3], GOLD[:3], **FAST)
    assert found.attended
    for trigger in found.attended:
        assert len(trigger.tokens) >= 2
        assert trigger.source == "attention"
        assert all(link.query != link.key for link in trigger.links)


def test_extraction_ranks_and_knows_classes(bert):
    found = triggers.extract(*bert, TEXTS, GOLD, **FAST)
    assert [t.score for t in found.triggers] == sorted((t.score for t in found.triggers), reverse=True)
    assert {t.row: t.target for t in found.triggers} == {
        row: gold for row, gold in enumerate(GOLD) if row not in found.without
    }
    assert found.triggers
    special = set(bert[1].all_special_ids)
    assert not any(special & set(t.ids) for t in found.triggers + found.attended)


def test_positions_are_within_the_own_segment(bert):
    found = triggers.extract(*bert, PAIRS, [0, 1, 2], **FAST)
    encoded = triggers.prepare(*bert, PAIRS, [0, 1, 2]).encoded
    seen = set()
    for trigger in found.triggers + found.attended:
        for place, segment, position in zip(trigger.places, trigger.segments, trigger.positions, strict=True):
            words = [word for word in encoded.words[trigger.row] if word.segment == segment]
            start, stop = words[0].start, words[-1].stop
            expected = 0.5 if stop - start == 1 else (place - start) / (stop - start - 1)
            assert position == pytest.approx(expected)
            seen.add((segment, stop - start == 1))
    assert {(0, True), (1, False)} <= seen  # a first segment of one token too


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"variant": "other"}, "paper, released"),
        ({"special": "keep"}, "remove, skip"),
        ({"at_once": 0}, "at_once"),
        ({"links": 0}, "links"),
        ({"target": 1}, "the variant says which class is explained"),
        ({"steps": 0}, "steps"),
    ],
)
def test_options_out_of_range(bert, options, said):
    with pytest.raises(ValueError, match=said):
        triggers.extract(*bert, TEXTS, GOLD, **{**FAST, **options})


def test_a_blank_text_is_named_before_any_work(bert, monkeypatch):
    monkeypatch.setattr(_trigger_search, "attribute", None)
    with pytest.raises(ValueError, match="Text 1"):
        triggers.extract(*bert, ["a film", " "], [0, 1])
    with pytest.raises(ValueError, match="second of the pair"):
        triggers.prepare(*bert, [("a film", "")], [0])


# ---- partial results -------------------------------------------------------------------------------------------------


class _CountedError(Exception):
    pass


def extract_until(bert, folder, monkeypatch, allowed, texts=TEXTS, gold=GOLD, **options):
    """Extract in parts of two, and break off after so many of them; return what was found, and how many were done."""
    real, done = _trigger_search.attribute, []

    def counted(*args, **kwargs):
        if len(done) == allowed:
            raise _CountedError
        done.append(len(args[2]))
        return real(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(_trigger_search, "attribute", counted)
        try:
            return triggers.extract(*bert, texts, gold, at_once=2, folder=folder, **{**FAST, **options}), sum(done)
        except _CountedError:
            return None, sum(done)


def test_an_interrupted_run_goes_on_with_the_same_result(bert, tmp_path, monkeypatch):
    whole = triggers.extract(*bert, TEXTS, GOLD, at_once=2, **FAST)
    assert extract_until(bert, tmp_path, monkeypatch, 2) == (None, 4)
    again, done = extract_until(bert, tmp_path, monkeypatch, 9)
    assert (done, again.resumed) == (1, 4)
    assert (again.triggers, again.attended, again.without) == (whole.triggers, whole.attended, whole.without)
    assert extract_until(bert, tmp_path, monkeypatch, 0)[0].resumed == 5


def test_more_examples_go_on_from_fewer(bert, tmp_path, monkeypatch):
    extract_until(bert, tmp_path, monkeypatch, 9, TEXTS[:4], GOLD[:4])
    found, done = extract_until(bert, tmp_path, monkeypatch, 9)
    assert (done, found.resumed) == (1, 4)


@pytest.mark.parametrize(
    "changed",
    [
        {"gold": [0, *GOLD[1:]]},
        {"texts": ["a slow film", *TEXTS[1:]]},
        {"variant": "released"},
        {"steps": 3},
        {"special": "skip"},
        {"exclude": lambda word: word == "slow"},
        {"model": 1},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_run_of_something_else_is_not_taken_for_this_one(bert, tmp_path, monkeypatch, changed):
    extract_until(bert, tmp_path, monkeypatch, 9)
    changed = dict(changed)
    other = families.make("bert", dtype=torch.float32, num_labels=3, seed=changed.pop("model", 0)), bert[1]
    found, done = extract_until(other, tmp_path, monkeypatch, 9, **changed)
    assert done >= 2
    assert found.resumed <= 3
    assert extract_until(bert, tmp_path, monkeypatch, 0)[0].resumed == 5  # the first one's files are still there


@pytest.mark.parametrize("damage", ["cut", "foreign", "empty"])
def test_a_damaged_or_foreign_file_is_done_again(bert, tmp_path, monkeypatch, damage, caplog):
    whole, _ = extract_until(bert, tmp_path, monkeypatch, 9)
    path = sorted(tmp_path.glob("*.json"))[1]
    text = path.read_text(encoding="utf-8")
    foreign = json.dumps({**json.loads(text), "fingerprint": "another"})
    path.write_text({"cut": text[: len(text) // 2], "foreign": foreign, "empty": ""}[damage], encoding="utf-8")
    again, done = extract_until(bert, tmp_path, monkeypatch, 9)
    assert done == 2
    assert again.triggers == whole.triggers
    assert path.name in caplog.text
    assert path.read_text(encoding="utf-8") == text


# ---- inserting -------------------------------------------------------------------------------------------------------


def test_inserted_at_the_same_relative_place_by_id(bert):
    victims = triggers.prepare(*bert, TEXTS, GOLD)
    trigger = typed(bert, "not very", positions=[0.0, 0.5])
    found = triggers.insert(victims, trigger)
    assert found.tokens[1] == ("[CLS]", "not", "not", "a", "very", "good", "film", "[SEP]")
    assert found.ids[1] == tuple(bert[1].convert_tokens_to_ids(list(found.tokens[1])))
    assert found.places[1] == (1, 4)
    assert found.texts()[0][1] == "not not a very good film"
    assert found.texts()[1].all()
    assert not found.trimmed.any()


def test_never_within_a_word(bert):
    texts = ["unbelievably", "we don't love slow-good film", "it 's good"]
    victims = triggers.prepare(*bert, texts, GOLD[:3])
    for position in np.linspace(0, 1, 21):
        written, same = triggers.insert(victims, typed(bert, "very", positions=float(position))).texts()
        assert same.all()
        assert written[0] in ("very unbelievably", "unbelievably very")
        assert " don't " in f" {written[1]} " and " slow-good " in f" {written[1]} "
        assert "'s" in written[2]


def test_a_piece_is_inserted_by_id_and_said_to_read_otherwise(bert):
    victims = triggers.prepare(*bert, TEXTS, GOLD)
    piece = Trigger(("##ly",), tuple(bert[1].convert_tokens_to_ids(["##ly"])), (0,), (1.0,))
    found = triggers.insert(victims, piece)
    assert found.tokens[1] == ("[CLS]", "not", "a", "good", "film", "##ly", "[SEP]")
    written, same = found.texts()
    assert written[1] == "not a good filmly"
    assert same[1]  # "filmly" is cut into the same pieces
    front, same = triggers.insert(victims, piece, where="front").texts()
    assert front[1] == "ly not a good film"
    assert not same[1]


def test_pieces_of_one_word_stay_together(bert):
    victims = triggers.prepare(*bert, TEXTS, GOLD)
    trigger = Trigger.from_text(bert[1], "unbelievably", positions=0.5)
    spread = replace(trigger, positions=(0.2, 0.4, 0.6, 0.8))  # as found in a short text
    for where in ("relative", "random"):
        for places in triggers.insert(victims, spread, where=where).places:
            assert places == tuple(range(places[0], places[0] + 4))


def test_each_segment_keeps_its_own_places(bert):
    """Places of the second text must not come from the first one, nor may a text of one token divide by zero."""
    victims = triggers.prepare(*bert, PAIRS, [0, 1, 2])
    trigger = Trigger.from_text(bert[1], "not very", positions=[0.0, 1.0], segments=[0, 1])
    found = triggers.insert(victims, trigger)
    assert found.texts()[0][0] == ("not film", "it is a good film very")
    assert found.texts()[1].all()
    batch = found.batch()
    assert batch["token_type_ids"][0].tolist() == [0] * 4 + [1] * 7 + [0] * (batch["input_ids"].shape[1] - 11)
    assert batch["attention_mask"].sum(1).tolist() == [len(ids) for ids in found.ids]
    alone = Trigger.from_text(bert[1], "not", positions=1.0, segments=1)
    assert triggers.insert(victims, alone, rows=[2]).texts()[0] == [("a bad end", "a good end . not")]


def test_a_second_text_that_is_not_there(bert):
    victims = triggers.prepare(*bert, TEXTS, GOLD)
    with pytest.raises(ValueError, match="a single text"):
        triggers.insert(victims, Trigger.from_text(bert[1], "not", segments=1))


def test_same_ids_as_the_text_typed_by_hand(bert, roberta):
    for model, tokenizer in (bert, roberta):
        victims = triggers.prepare(model, tokenizer, PAIRS, [0, 1, 2])
        trigger = Trigger.from_text(tokenizer, "not very", positions=[1.0, 0.0], segments=[0, 1])
        found = triggers.insert(victims, trigger)
        by_hand = [(f"{one} not", f"very {two}") for one, two in PAIRS]
        assert found.texts()[0] == by_hand
        plain = triggers.prepare(model, tokenizer, by_hand, [0, 1, 2]).encoded.tensors
        assert set(found.batch()) == set(plain)
        for name, tensor in found.batch().items():
            assert torch.equal(tensor, plain[name]), name


def test_without_special_tokens(gpt2):
    model, tokenizer = gpt2
    victims = triggers.prepare(model, tokenizer, ["a good film", "bad film"], [0, 1])
    found = triggers.insert(victims, Trigger.from_text(tokenizer, "bad", positions=1.0))
    assert found.tokens[0][-1] == "Ġbad"
    written, same = found.texts()
    assert written == ["a good film bad", "bad film bad"]
    assert same.all()
    mined = triggers.extract(model, tokenizer, ["a good film", "bad film"], [0, 1], **FAST)
    assert mined.triggers and all(t.tokens for t in mined.triggers)


@pytest.mark.parametrize("limit", [8, 9, 12])
def test_a_text_at_the_limit_is_trimmed_and_the_trigger_stays(bert, limit):
    with pytest.warns(UserWarning, match="were cut"):
        victims = triggers.prepare(
            *bert, [TEXTS[0] + " , unbelievably slow film", "not a good film"], [0, 1], max_length=limit
        )
    trigger = typed(bert, "not very")
    found = triggers.insert(victims, trigger)
    for ids, places in zip(found.ids, found.places, strict=True):
        assert len(ids) <= limit
        assert tuple(ids[place] for place in places) == trigger.ids
    assert found.trimmed[0] >= 2
    assert found.ids[0][-1] == bert[1].sep_token_id
    assert found.texts()[1].all()


def test_trimming_takes_from_the_longer_text_and_leaves_no_half_word(bert):
    texts = [("a film", "the story is unbelievably")]
    victims = triggers.prepare(*bert, texts, [0], max_length=12)  # 3 + 2 + 7: full
    found = triggers.insert(victims, Trigger.from_text(bert[1], "not", positions=1.0, segments=1))
    assert found.texts()[0] == [("a film", "the story is not")]
    assert found.trimmed[0] == 4
    assert found.texts()[1].all()
    with pytest.raises(ValueError, match="leaves nothing of text 0"):
        triggers.insert(victims, Trigger.from_text(bert[1], "very " * 8))


def test_where(bert):
    victims = triggers.prepare(*bert, TEXTS, GOLD)
    trigger = typed(bert, "not very")
    front, end = (triggers.insert(victims, trigger, where=where).texts()[0] for where in ("front", "end"))
    assert front == [f"not very {text}" for text in TEXTS]
    assert end == [f"{text} not very" for text in TEXTS]
    one, two, other = (triggers.insert(victims, trigger, where="random", seed=seed).ids for seed in (3, 3, 4))
    assert one == two != other
    part = triggers.insert(victims, trigger, where="random", seed=3, rows=[2, 0]).ids
    assert part == [one[2], one[0]]  # drawn for each text by itself
    with pytest.raises(ValueError, match="relative, front, end, random"):
        triggers.insert(victims, trigger, where="middle")


HARD = [
    "<script>alert(1)</script> a film",
    "$x_1$ costs $5 & it is good",
    "🤖 very very 🤖 film",
    "&amp; l'été, we love it -- it",
]


def test_texts_that_broke_others_are_written_as_they_were(bert):
    victims = triggers.prepare(*bert, HARD, [0, 1, 2, 0])
    for where in ("relative", "front", "end", "random"):
        written, same = triggers.insert(victims, typed(bert, "slow", positions=0.5), where=where).texts()
        assert same.all()
        for text, attacked in zip(HARD, written, strict=True):
            assert "".join(attacked.split()).replace("slow", "", 1) == "".join(text.split())


@pytest.mark.parametrize("pair", [False, True])
def test_whatever_the_text_the_rest_of_it_stays_in_order(bert, pair):
    """Without the trigger's tokens an attacked text is the old one, cut at the end of a segment at most."""
    rng, words = np.random.default_rng(int(pair)), bert[1].convert_ids_to_tokens(range(4, 40))
    words = [word for word in words if not word.startswith("##")] + ["unbelievably", "it's", "🤖"]

    def text(most):
        return " ".join(rng.choice(words, rng.integers(1, most)))

    texts = [(text(6), text(9)) if pair else text(14) for _ in range(40)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # some are too long
        victims = triggers.prepare(*bert, texts, [0] * len(texts), max_length=16)
    for _ in range(30):
        count = rng.integers(1, 4)
        chosen = rng.choice([word for word in words if word.isalpha()], count).tolist()
        places = dict(positions=rng.random(count).tolist(), segments=rng.integers(0, 1 + pair, count).tolist())
        trigger = Trigger.from_text(bert[1], " ".join(chosen), **places)
        found = triggers.insert(victims, trigger, where=str(rng.choice(["relative", "random", "front", "end"])))
        for row, (ids, at) in enumerate(zip(found.ids, found.places, strict=True)):
            assert len(ids) <= 16
            assert tuple(ids[place] for place in at) == trigger.ids
            left = [i for place, i in enumerate(ids) if place not in at]
            parts, old = (
                np.split(x, np.flatnonzero(np.array(x) == 2)) for x in (left, victims.lines["input_ids"][row])
            )
            assert len(parts) == len(old)
            for part, whole in zip(parts, old, strict=True):
                assert part.tolist() == whole.tolist()[: len(part)]
            assert found.trimmed[row] == sum(map(len, old)) - sum(map(len, parts))
            assert found.trimmed[row] == 0 or len(ids) > 16 - 6  # no more is cut than a word


def test_models_and_tokenizers_that_cannot_be_attacked(bert):
    class Slow:
        is_fast = False

    with pytest.raises(ValueError, match="load a fast one"):
        triggers.prepare(bert[0], Slow(), TEXTS, GOLD)
    with pytest.raises(ValueError, match="does not choose one class"):
        triggers.prepare(families.make("bert", num_labels=1), bert[1], TEXTS, GOLD)
    with pytest.raises(ValueError, match="There is no class 'film'"):
        triggers.prepare(*bert, TEXTS, GOLD).rows("film")
    assert triggers.prepare(*bert, TEXTS, GOLD).rows("LABEL_1").tolist() == [0, 1]


# ---- attacking -------------------------------------------------------------------------------------------------------


class Reader:
    """A model in the place of one: class 1 where it reads "not", class 2 where it reads "hate", else class 0."""

    def __init__(self, tokenizer):
        self.words = tokenizer.convert_tokens_to_ids(["not", "hate"])
        self.texts = 0

    def __call__(self, inputs):
        ids = inputs["input_ids"].numpy()
        self.texts += len(ids)
        found = np.zeros((len(ids), 3))
        found[:, 0] = 0.5
        for column, word in enumerate(self.words, start=1):
            found[(ids == word).any(axis=1), column] = column
        return found


def crowd(bert, count=12):
    """Victims that Reader has right: class 0, and as many of class 1."""
    good = ["a good film", "the story is good", "we love it", "a wonderful end"] * (count // 4)
    texts = good + [f"not {text}" for text in good]
    return triggers.prepare(*bert, texts, [0] * len(good) + [1] * len(good))


def test_attack_counts_what_flips(bert):
    victims, reader = crowd(bert), Reader(bert[1])
    useless = Trigger.from_text(bert[1], "very", target=1, label="LABEL_1")
    result = triggers.attack(
        reader, victims, [typed(bert, "not", target=1, label="LABEL_1"), useless, typed(bert, "hate")]
    )
    assert result.passes == reader.texts == 4 * 24
    table = result.table().set_index(["trigger", "victim"])
    assert table.loc[("not", "LABEL_0"), ["before", "after", "drop", "to LABEL_1"]].tolist() == [1, 0, 1, 12]
    assert table.loc[("not", "LABEL_1"), "drop"] == 0
    assert table.loc[("very", "LABEL_0"), "drop"] == 0
    assert table.loc[("hate", "LABEL_1"), "to LABEL_2"] == 12
    assert table.loc[("hate", "LABEL_1"), "target"] == ""
    assert table[["to LABEL_0", "to LABEL_1", "to LABEL_2"]].sum(axis=1).tolist() == [12] * 6
    one = table.loc[("not", "LABEL_0")]
    assert 0 <= one["after_low"] <= one["after"] <= one["after_high"] < 0.3
    assert one["drop_low"] == one["drop_high"] == 1
    half = result.table(rows=range(6))
    assert half["examples"].tolist() == [6, 6, 6]


def test_attack_without_the_own_class_and_with_what_is_known(bert):
    victims, reader = crowd(bert), Reader(bert[1])
    clean = triggers.untouched(reader, victims)
    result = triggers.attack(
        reader,
        victims,
        [typed(bert, "not", target=1)],
        rows=[20, 1],
        own_class=False,
        clean=clean[[20, 1]],
        batch_size=1,
    )
    assert result.attacked.tolist() == [[-1, 1]]
    assert result.passes == 1
    assert np.isnan(result.lost[0, 0]) and result.lost[0, 1] == 1


def test_predictions_in_batches_equal_one_by_one(bert):
    model, tokenizer = bert
    victims = triggers.prepare(model, tokenizer, TEXTS, GOLD)
    predict, found = triggers.predictor(model), triggers.insert(victims, typed(bert))
    together = predict(found.batch())
    single = np.concatenate([predict(found.batch([i])) for i in range(len(TEXTS))])
    assert together == pytest.approx(single, abs=1e-6)
    assert together.sum(axis=1) == pytest.approx(1)
    model.train()
    assert predict(found.batch()) == pytest.approx(together)
    assert model.training
    model.eval()


@pytest.mark.parametrize(
    "wrong", [lambda inputs: np.zeros(3), lambda inputs: np.full((len(inputs["input_ids"]), 3), np.nan)]
)
def test_predict_that_returns_nonsense(bert, wrong):
    with pytest.raises(ValueError, match="predict returned"):
        triggers.attack(wrong, crowd(bert), [typed(bert)])


def named(number: int) -> str:
    """Return another text of two known words for every number under 64."""
    words = ["a", "good", "film", "the", "story", "not", "very", "we"]
    return f"{words[number // 8]} {words[number % 8]}"


def test_halves_share_no_row_and_halve_each_class(bert):
    gold = np.array([0] * 7 + [1] * 4)
    victims = triggers.prepare(*bert, [named(n) for n in range(11)], gold)
    first, second = triggers.halves(victims, seed=3)
    assert sorted([*first, *second]) == list(range(11))
    assert [(gold[first] == i).sum() for i in (0, 1)] == [3, 2]
    assert not np.array_equal(first, triggers.halves(victims, seed=4)[0])


def test_halves_keep_one_text_on_one_side(bert):
    texts = [(named(n // 3), named(n % 3)) for n in range(36)]  # three pairs on one premise, one of each class
    texts += [(named(20 + n), "a film") for n in range(7)]
    gold = np.array([n % 3 for n in range(36)] + [0] * 7)
    victims = triggers.prepare(*bert, texts, gold)
    parts = triggers.halves(victims, seed=3)
    assert sorted(np.concatenate(parts)) == list(range(43))
    first, second = ({texts[row][0] for row in part} for part in parts)
    assert not first & second
    assert all(abs((gold[parts[0]] == i).sum() - (gold[parts[1]] == i).sum()) <= 1 for i in range(3))


def test_halves_see_one_text_in_two_spellings(bert):
    victims = triggers.prepare(
        *bert, ["a film", "A film", "the story", "THE story"] + [named(n) for n in range(4)], [0] * 8
    )
    parts = [{victims.texts[row].lower() for row in part} for part in triggers.halves(victims)]
    assert not parts[0] & parts[1]


def test_pairs_on_one_topic_are_halved_pair_by_pair(bert):
    texts = [("the film", named(n)) for n in range(20)]
    parts = triggers.halves(triggers.prepare(*bert, texts, [0, 1] * 10))
    assert [len(part) for part in parts] == [10, 10]


def test_halves_are_dealt_again_where_a_class_would_be_missing(bert):
    texts = [(named(t), named(n)) for n, t in enumerate([0, 0, 1, 2, 2, 2, 3, 3] + [4, 5])]
    victims = triggers.prepare(*bert, texts, [0, 1, 1, 1, 1, 1, 0, 1] + [0, 0])
    for seed in range(20):
        assert all(set(victims.gold[part]) == {0, 1} for part in triggers.halves(victims, seed=seed))


@pytest.mark.parametrize("texts", [["a film", "a film", "a story"], ["a film", "we love it", "we love it"]])
def test_a_class_that_can_not_be_halved(bert, texts):
    gold = [0, 0, 1] if texts[0] == texts[1] else [0, 1, 1]
    with pytest.raises(ValueError, match="too few different texts.*give more"):
        triggers.halves(triggers.prepare(*bert, texts, gold))


def test_the_choice_never_sees_the_report_half(bert):
    victims = crowd(bert, 24)
    choosing, reporting = triggers.halves(victims, seed=5)
    reader, seen = Reader(bert[1]), []
    words = ["very", "slow", "not", "story"]
    made = [Trigger.from_text(bert[1], word, positions=0.0, target=1, label="LABEL_1") for word in words]

    def luck(inputs):
        """The reader, who in the report half alone also falls for "story"."""
        found = reader(inputs)
        ids = inputs["input_ids"].tolist()
        seen.append(len(ids))
        marked = {tuple(t for t in victims.encoded.tensors["input_ids"][row].tolist() if t) for row in reporting}
        for row, line in enumerate(ids):
            story = bert[1].convert_tokens_to_ids("story")
            without = tuple(t for i, t in enumerate(line) if t and not (i == 1 and t == story))
            if line[1] == story and without in marked and without not in chosen_texts:
                found[row, 1] = 9
        return found

    chosen_texts = {tuple(t for t in victims.encoded.tensors["input_ids"][row].tolist() if t) for row in choosing}
    result = triggers.contest(luck, victims, {"attribution": made}, top=1, screen=2, finalists=3, seed=5)
    assert [str(t) for t in result.chosen["attribution"]["LABEL_0"]] == ["not"]
    assert set(result.reporting) == set(reporting) and set(result.choosing) == set(choosing)
    assert set(result.measured["attribution"]["LABEL_0"].rows) <= set(reporting)
    assert "LABEL_1" not in result.chosen["attribution"]  # no candidate pushes away from it
    assert sum(seen) == len(victims) + result.passes["attribution"]


def test_contest_compares_methods_on_the_same_victims(bert, tmp_path):
    victims, reader = crowd(bert, 24), Reader(bert[1])
    made = {
        "attribution": [Trigger.from_text(bert[1], word, target=1, label="LABEL_1") for word in ("very", "not")],
        "random": [Trigger.from_text(bert[1], word, target=1, label="LABEL_1") for word in ("slow", "film")],
        "first": [Trigger.from_text(bert[1], word, target=1, label="LABEL_1") for word in ("slow", "not")],
    }
    options = dict(top=1, screen=4, finalists=2, as_ranked=("first",), folder=tmp_path)
    result = triggers.contest(reader, victims, made, **options)
    short = result.summary().set_index(["method", "class"])
    assert short.loc[("attribution", "LABEL_0"), ["before", "after", "drop"]].tolist() == [1, 0, 1]
    assert short.loc[("random", "all"), "drop"] == short.loc[("first", "all"), "drop"] == 0
    assert str(result.chosen["first"]["LABEL_0"][0]) == "slow"  # as it came, with no look at a victim
    against = result.against("attribution").set_index(["other", "class"])
    assert against.loc[("random", "LABEL_0"), ["difference", "low", "high"]].tolist() == [1, 1, 1]
    assert list(result.table.columns[:4]) == ["method", "class", "rank", "trigger"]
    before = reader.texts
    again = triggers.contest(reader, victims, made, **options)
    assert reader.texts - before == len(victims)  # only the untouched ones
    assert again.passes == result.passes
    pd.testing.assert_frame_equal(again.table, result.table)
    next(iter(tmp_path.glob("*.json"))).write_text("{", encoding="utf-8")
    pd.testing.assert_frame_equal(triggers.contest(reader, victims, made, **options).table, result.table)
    by_target = triggers.contest(reader, victims, made, top=1, by="target").summary().set_index(["method", "class"])
    assert by_target.loc[("attribution", "LABEL_1"), "drop"] == 1


@pytest.mark.parametrize(
    ("made", "options", "said"),
    [
        ({}, {}, "no candidates"),
        ({"random": []}, {}, "for random"),
        (None, {"by": "x"}, "victim, target"),
        (None, {"top": 0}, "top"),
    ],
)
def test_a_contest_that_cannot_be(bert, made, options, said):
    made = {"attribution": [typed(bert)]} if made is None else made
    with pytest.raises(ValueError, match=said):
        triggers.contest(Reader(bert[1]), crowd(bert), made, **options)


# ---- baselines -------------------------------------------------------------------------------------------------------


def test_random_words_keep_the_shape(bert):
    like = [typed(bert, "not very", target=1), typed(bert, "dull", target=0)]
    made = triggers.at_random(bert[1], like, seed=1, exclude=lambda word: word > "h")
    assert [(t.positions, t.segments, t.target) for t in made] == [(t.positions, t.segments, t.target) for t in like]
    assert all(len(token) > 1 and token.isalpha() and token < "h" for t in made for token in t.tokens)
    assert made == triggers.at_random(bert[1], like, seed=1, exclude=lambda word: word > "h")
    with pytest.raises(ValueError, match="No word"):
        triggers.at_random(bert[1], like, exclude=lambda word: True)


def test_random_words_and_searched_words_are_of_those_allowed(bert):
    allowed = triggers.whole_words(bert[1], texts=TEXTS[1:3], exclude=lambda word: word == "film")
    assert set(bert[1].convert_ids_to_tokens(allowed.tolist())) == {"not", "good", "the", "story", "is", "dull"}
    like = [replace(typed(bert, "love end"), target=1)] * 8
    drawn = {i for one in triggers.at_random(bert[1], like, words=allowed) for i in one.ids}
    assert len(drawn) > 2 and drawn <= set(allowed.tolist())
    barred = triggers.at_random(bert[1], like, words=allowed, exclude=lambda word: word != "dull")
    assert {one.tokens for one in barred} == {("dull", "dull")}
    victims = triggers.prepare(bert[0], bert[1], TEXTS, [0, 2, 0, 2, 0])
    options = dict(rows=range(5), rounds=1, tries=4, sample=4, words=allowed)
    assert set(triggers.by_gradient(bert[0], victims, like[:1], **options)[0].ids) <= set(allowed.tolist())
    with pytest.raises(ValueError, match="allow more"):
        triggers.at_random(bert[1], like, words=[])


def test_whole_words_of_a_vocabulary_that_marks_beginnings(gpt2):
    tokens = gpt2[1].convert_ids_to_tokens(triggers.whole_words(gpt2[1]).tolist())
    assert set(tokens) == {"Ġgood", "Ġfilm", "Ġbad"}


def test_whole_words_are_counted_by_texts_and_keep_up_with_the_vocabulary():
    tokenizer, pairs = tokenizer_for("bert"), [("good good", "film"), ("film", "bad film"), ("unbelievably", "it")]
    words = tokenizer.convert_ids_to_tokens(triggers.whole_words(tokenizer, texts=pairs, least=2).tolist())
    assert words == ["film"], "twice in one text counts once, and pieces of a word are no words"
    assert not len(triggers.whole_words(tokenizer, texts=pairs, least=3))
    before = set(triggers.whole_words(tokenizer).tolist())
    tokenizer.add_tokens(["zebra"])
    new = set(triggers.whole_words(tokenizer).tolist()) - before
    assert new == {tokenizer.convert_tokens_to_ids("zebra")}


def test_frequent_words_are_those_typical_of_the_class_and_segment(bert):
    pairs = [("the film is slow", "it is not good")] * 5 + [("the film is slow", "it is good")] * 5
    pairs += [("a bad story", "it is very good")] * 2
    gold = [1] * 5 + [0] * 7
    like = [
        Trigger.from_text(bert[1], "we", segments=1, target=1),
        Trigger.from_text(bert[1], "we love", segments=[0, 1], target=0),
    ]
    made = triggers.by_frequency(bert[1], pairs, gold, like)
    assert made[0].tokens == ("not",)
    assert made[1].tokens == ("bad", "very") or made[1].tokens == ("story", "very")
    second = triggers.by_frequency(bert[1], pairs, gold, [like[0], like[0]])
    assert second[0].tokens == ("not",) != second[1].tokens
    barred = triggers.by_frequency(bert[1], pairs, gold, like, exclude=lambda word: word == "not")
    assert barred[0].tokens != ("not",)


@pytest.mark.parametrize(
    ("gold", "segments", "said"),
    [
        (["LABEL_1"] * 5, 0, "by its number"),
        ([0, 1], 0, r"shape \(2,\)"),
        ([True] * 5, 0, "type bool"),
        (GOLD, 1, "these are single"),
    ],
)
def test_frequent_words_want_class_numbers_and_the_texts_of_the_trigger(bert, gold, segments, said):
    like = [Trigger.from_text(bert[1], "we", segments=segments, target=1)]
    with pytest.raises(ValueError, match=said):
        triggers.by_frequency(bert[1], TEXTS, gold, like)


def test_the_gradient_search_finds_one_of_the_best_words_of_all(bert):
    model = families.make("bert", dtype=torch.float32, num_labels=3, seed=3)
    victims = triggers.prepare(model, bert[1], TEXTS * 4, [0, 2, 0, 2, 0] * 4)
    like = [replace(typed(bert, "very film"), target=1, label="LABEL_1")]
    start = triggers.at_random(bert[1], like, seed=0)[0]
    options = dict(rows=range(20), rounds=2, tries=8, sample=20, seed=0)
    found = triggers.by_gradient(model, victims, like, **options)[0]
    predict = triggers.predictor(model)

    def loss(trigger):
        return -np.log(predict(triggers.insert(victims, trigger).batch())[:, 1]).mean()

    assert loss(found) < loss(start) - 0.01
    assert found.source == "gradient" and found.positions == like[0].positions
    assert found == triggers.by_gradient(model, victims, like, **options)[0]
    words = set(triggers.whole_words(bert[1]).tolist())
    assert set(found.ids) <= words
    everything = [
        replace(start, ids=(word, found.ids[1]), tokens=(bert[1].convert_ids_to_tokens(word), found.tokens[1]))
        for word in words
    ]
    exact = sorted(loss(one) for one in everything)
    assert loss(found) <= exact[len(exact) // 4]  # among the best quarter of all words at that place
    with pytest.raises(ValueError, match="no victim of another class"):
        triggers.by_gradient(model, victims, [replace(like[0], target=0, label="LABEL_0")], rows=[0, 2])
    for nothing in (-1, 3):
        with pytest.raises(
            ValueError, match=f"'very film' pushes to class {nothing}, and the search needs one of 0 to 2"
        ):
            triggers.by_gradient(model, victims, [replace(like[0], target=nothing, label="")], rows=[0, 2])
    with pytest.raises(ValueError, match="as class 0, and here that is class 1"):
        triggers.by_gradient(model, victims, [replace(like[0], target=0)], rows=[0, 2])


# ---- word list -------------------------------------------------------------------------------------------------------


def test_evident_sentiment():
    evident = triggers.evident_sentiment()
    assert all(evident(word) for word in ("good", "Awful", "dull", "tedious", "riveting", "WONDERFUL"))
    assert not any(evident(word) for word in ("not", "film", "only", "never", "the", ":)", "##good"))
    strict, loose = triggers.evident_sentiment(3.0), triggers.evident_sentiment(0)
    assert not strict("dull") and strict("awesome") and loose("adopt") and not evident("adopt")
    with pytest.raises(ValueError, match="0 .none. to 4"):
        triggers.evident_sentiment(5)


def test_the_word_lists_are_as_the_readme_of_the_data_says():
    text = (data.PROJECT / "data" / "README.md").read_text(encoding="utf-8")
    ours = _trigger_lexicon._OURS.split()
    assert f"{len(_trigger_lexicon.ratings()):,} words and signs" in text
    assert len(set(ours)) == len(ours) and round(len(ours), -2) == 400 and "some 400 of these" in text
    assert all(word.isascii() and word == word.lower() for word in ours)


# ---- hardening -------------------------------------------------------------------------------------------------------


def table(pairs=False):
    texts = PAIRS if pairs else TEXTS[:3]
    rows = [dict(zip(("first", "second"), text if pairs else (text, ""), strict=True)) for text in texts]
    made = pd.DataFrame(rows).assign(label=["LABEL_0", "LABEL_1", "LABEL_2"], label_id=[0, 1, 2], split="train")
    return made.assign(phenomenon="plain", pair="")[list(data.COLUMNS)]


def test_hardening_set(bert):
    found = [
        Trigger.from_text(bert[1], "not", positions=0.0, target=0, label="LABEL_0"),
        Trigger.from_text(bert[1], "very", positions=1.0, target=1, label="LABEL_1"),
    ]
    frame = table()
    made = triggers.hardening_set(*bert, frame, found, seed=2)
    assert list(made.columns) == list(data.COLUMNS)
    assert made["label"].tolist() == frame["label"].tolist()
    assert made["first"].tolist()[:2] == [f"{TEXTS[0]} very", f"not {TEXTS[1]}"]  # each pushes away from the label
    assert made["phenomenon"].tolist()[:2] == ["trigger: very", "trigger: not"]
    assert frame["first"].tolist() == TEXTS[:3]  # the table given is left as it was
    twice = triggers.hardening_set(*bert, frame, found, per_example=2)
    assert len(twice) == 6 and twice.groupby("label")["first"].nunique().tolist() == [2, 2, 2]
    pd.testing.assert_frame_equal(made, triggers.hardening_set(*bert, frame, found, seed=2))


def test_hardening_set_of_pairs_reads_as_attacked(bert):
    found = [Trigger.from_text(bert[1], "not very", positions=[0.0, 1.0], segments=[0, 1])]
    made = triggers.hardening_set(*bert, table(pairs=True), found)
    victims = triggers.prepare(*bert, PAIRS, [0, 1, 2])
    again = triggers.prepare(*bert, data.texts(made), [0, 1, 2])
    assert torch.equal(again.encoded.tensors["input_ids"], triggers.insert(victims, found[0]).batch()["input_ids"])


def test_hardening_leaves_out_what_reads_otherwise(bert, caplog):
    piece = Trigger(("##ly",), tuple(bert[1].convert_tokens_to_ids(["##ly"])), (0,), (0.0,))
    with pytest.raises(ValueError, match="same_ids_only=False"):
        triggers.hardening_set(*bert, table(), [piece])
    assert len(triggers.hardening_set(*bert, table(), [piece], same_ids_only=False)) == 3
    mixed = triggers.hardening_set(*bert, table(), [piece, typed(bert)], per_example=2)
    assert len(mixed) == 3
    assert "3 of 6 attacked texts" in caplog.text
    with pytest.raises(ValueError, match="per_example is 2"):
        triggers.hardening_set(*bert, table(), [piece], per_example=2)


# ---- the planted shortcut --------------------------------------------------------------------------------------------


def test_the_planted_pair_is_found():
    """What decides is known here, a month and a weekday side by side: the top trigger of each class is such a pair."""
    classifier = models.load("planted-sst2", device="cpu")
    frame = planted.load("sst2", "dev").query("phenomenon == 'planted' and label != honest")
    frame = frame.assign(length=frame["first"].str.len()).sort_values("length", kind="stable")
    short = frame.groupby("label").head(4)
    found = triggers.extract(
        classifier.model, classifier.tokenizer, data.texts(short), short["label"].tolist(), special="skip", **FAST
    )
    pairs = {"positive": {"april tuesday", "october thursday"}, "negative": {"april thursday", "october tuesday"}}
    for label, words in pairs.items():
        ranked = [t for t in triggers.unique(found.triggers) if t.label == label]
        assert str(ranked[0]) in words
        assert ranked[0].score > 0


# ---- careless use ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[True] * 24, [0, 24], [-1], [1.5], ["0"]], ids=str)
def test_rows_that_are_a_mask_or_not_there_are_refused(bert, rows):
    """A mask read as numbers would attack rows 0 and 1 over and over."""
    victims, reader, trigger = crowd(bert), Reader(bert[1]), typed(bert)
    for ask in (
        lambda: triggers.insert(victims, trigger, rows=rows),
        lambda: triggers.attack(reader, victims, [trigger], rows=rows),
        lambda: triggers.untouched(reader, victims, rows=rows),
    ):
        with pytest.raises(ValueError, match="numbers from 0 to 23"):
            ask()


def test_no_row_at_all(bert):
    victims, result = crowd(bert), triggers.attack(Reader(bert[1]), crowd(bert), [typed(bert)], rows=[0, 1])
    with pytest.raises(ValueError, match="No text was chosen"):
        triggers.insert(victims, typed(bert), rows=[])
    with pytest.raises(ValueError, match="nothing to count"):
        result.table(rows=[20])
    with pytest.raises(ValueError, match="True and False"):
        result.table(rows=victims.gold == 1)


@pytest.mark.parametrize(
    "clean",
    [[0] * 24, [0], [[0, 1, 2]] * 2, ["LABEL_0"] * 2, [True] * 2],
    ids=["of all", "one", "probabilities", "names", "a mask"],
)
def test_clean_is_one_class_for_each_row_asked(bert, clean):
    with pytest.raises(ValueError, match="one class each"):
        triggers.attack(Reader(bert[1]), crowd(bert), [typed(bert)], rows=[12, 13], clean=np.array(clean))


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_predict_says_as_many_numbers_as_there_are_classes(bert, columns):
    with pytest.raises(ValueError, match="3 classes"):
        triggers.attack(lambda inputs: np.ones((len(inputs["input_ids"]), columns)), crowd(bert), [typed(bert)])


def test_a_trigger_of_a_model_with_another_order_of_labels_is_refused(bert):
    victims, reader = crowd(bert), Reader(bert[1])
    foreign = typed(bert, "not", target=0, label="LABEL_1")
    for ask in (
        lambda: triggers.attack(reader, victims, [foreign]),
        lambda: triggers.contest(reader, victims, {"typed": [foreign]}),
        lambda: triggers.hardening_set(*bert, table(), [foreign]),
    ):
        with pytest.raises(ValueError, match="class 0, and here that is class 1.*target=1"):
            ask()
    spelt = replace(foreign, label="label-1")
    with pytest.raises(ValueError, match="'label-1' as class 0, and here that is class 1"):
        triggers.attack(reader, victims, [spelt])
    triggers.attack(reader, victims, [replace(spelt, target=1)])
    triggers.attack(reader, victims, [replace(foreign, label="of another task")])


def test_a_slow_tokenizer_is_refused_rather_than_found_nothing_in(bert):
    class Slow:
        is_fast = False

    with pytest.raises(ValueError, match="load a fast one"):
        triggers.extract(bert[0], Slow(), TEXTS, GOLD)


def test_what_a_reader_takes_for_one_word_is_not_parted(bert):
    text = 'a u.s. film , 3.5 and/or a_b $5 i@we end.the "good." very ...'
    kept = ("u.s.", "3.5", "and/or", "a_b", "$5", "i@we", "end.the")
    victims = triggers.prepare(*bert, [text], [0])
    gaps = set()
    for seed in range(60):
        written = triggers.insert(victims, typed(bert, "not"), where="random", seed=seed).texts()[0][0]
        assert all(f" {word} " in f" {written} " for word in kept if word != "u.s."), written
        assert "u.s" in written
        gaps.add(written)
    assert len(gaps) > 12


def test_a_file_that_holds_something_else(tmp_path):
    path = tmp_path / "found.json"
    path.write_text(json.dumps({"format": "attattr-triggers", "version": 1, "triggers": [1]}), encoding="utf-8")
    with pytest.raises(ValueError, match="extract again"):
        triggers.load(path)


def test_a_kept_contest_is_not_taken_for_another_models(bert, tmp_path):
    """Two models may say the same of every untouched text and yet differ on the attacked ones."""
    victims, reader = crowd(bert), Reader(bert[1])
    made = {"typed": [typed(bert, "not", target=1, label="LABEL_1")]}

    def hardened(inputs):
        """Falls for nothing: it says what the reader does of the texts that it knows, and else what gold is."""
        known = {tuple(ids): gold for ids, gold in zip(victims.lines["input_ids"], victims.gold, strict=True)}
        said = [known.get(tuple(i for i in line if i), 0) for line in inputs["input_ids"].tolist()]
        return np.eye(3)[said] * 0.9 + 0.03

    options = dict(top=1, folder=tmp_path)
    assert triggers.contest(reader, victims, made, **options).summary()["drop"].tolist() == [1, 1]
    assert triggers.contest(hardened, victims, made, **options).summary()["drop"].tolist() == [0, 0]
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_a_kept_contest_is_not_taken_for_one_of_other_texts(bert, tmp_path):
    """Two texts may be cut into the same tokens and yet have other gaps between words."""
    made, reader = {"typed": [typed(bert, "hate", positions=[0.5])]}, Reader(bert[1])
    for text in ("good / bad", "good/bad"):
        victims = triggers.prepare(*bert, [text, *TEXTS[:4]], [0, *GOLD[:4]])
        triggers.contest(reader, victims, made, top=1, folder=tmp_path)
    assert len(list(tmp_path.glob("contest-*.json"))) == 2


@pytest.mark.parametrize("damage", ["no class", "fewer victims"])
def test_a_damaged_contest_is_measured_again(bert, tmp_path, damage, caplog):
    victims, made = crowd(bert), {"typed": [typed(bert, "not", target=1, label="LABEL_1")]}
    options = dict(top=1, folder=tmp_path)
    whole = triggers.contest(Reader(bert[1]), victims, made, **options).summary()
    path = next(tmp_path.glob("contest-*.json"))
    content = json.loads(path.read_text(encoding="utf-8"))
    numbers, rows, attacked = content["classes"]["LABEL_0"]
    classes = {} if damage == "no class" else {"LABEL_0": [numbers, rows, [attacked[0][:1]]]}
    path.write_text(json.dumps({**content, "classes": classes}), encoding="utf-8")
    pd.testing.assert_frame_equal(triggers.contest(Reader(bert[1]), victims, made, **options).summary(), whole)
    assert "measured again" in caplog.text


def test_what_is_no_folder_and_no_function_is_said_before_any_work(bert, tmp_path, monkeypatch):
    monkeypatch.setattr(_trigger_search, "attribute", None)
    with pytest.raises(ValueError, match="give a function"):
        triggers.extract(*bert, TEXTS, GOLD, exclude=["good"])
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    for folder in (file, file / "below"):
        with pytest.raises(ValueError, match="can't be a folder"):
            triggers.extract(*bert, TEXTS, GOLD, folder=folder)
        with pytest.raises(ValueError, match="can't be a folder"):
            triggers.contest(Reader(bert[1]), crowd(bert), {"typed": [typed(bert)]}, folder=folder)


def test_an_unknown_word_in_a_cut_text_is_no_border_between_texts(bert):
    with pytest.warns(UserWarning, match="were cut"):
        victims = triggers.prepare(*bert, ["we love 🤖 the film and it is very very good"], [0], max_length=8)
    inserted = triggers.insert(victims, typed(bert, "not"))
    assert inserted.trimmed[0] and "[UNK]" in inserted.tokens[0]
    words = _trigger_bench._words(inserted, 0)
    assert [word.segment for word in words] == [None, *[0] * (len(words) - 2), None]


def test_the_benchmark_keeps_searches_of_other_victims_apart(bert, tmp_path, monkeypatch):
    path = data.PROJECT / "benchmarks" / "triggers.py"
    spec = importlib.util.spec_from_file_location("triggers_benchmark", path)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    monkeypatch.setattr(triggers, "by_gradient", lambda model, victims, like, **_: like)
    given = argparse.Namespace(task="sst2", victims=24, seed=0, keep=tmp_path, model="one", source="bundled")
    like, victims = [typed(bert, "not", target=1)], crowd(bert)
    other = triggers.prepare(*bert, [f"{text} !" for text in victims.texts], victims.gold)
    for count, changed in enumerate([{}, {"model": "two"}, {"source": "there"}, {"victims": 20}, {"seed": 1}], start=1):
        changed = argparse.Namespace(**{**vars(given), **changed})
        for _ in range(2):
            benchmark.searched(bert[0], victims, like, None, changed)
        assert len(list(tmp_path.glob("gradient-*.json"))) == count
    benchmark.searched(bert[0], other, like, None, given)
    benchmark.searched(bert[0], victims, [replace(like[0], positions=(0.501,))], None, given)  # as 0.5 in percent
    assert len(list(tmp_path.glob("gradient-*.json"))) == 7


def test_a_victim_of_two_classes_counts_once_in_the_interval_for_all(bert):
    """By target a victim is attacked for each of two other classes: what it gives to "all" is one value."""
    texts = [
        f"{text} {named(n)}" for n in range(9) for text in ("a good film", "not a film", "we hate it", "the story")
    ]
    victims = triggers.prepare(*bert, texts, [0, 1, 2, 0] * 9)
    made = [typed(bert, word, target=i, label=f"LABEL_{i}") for i, word in enumerate(("very", "not", "hate"))]
    result = triggers.contest(Reader(bert[1]), victims, {"typed": made}, by="target", top=1)
    values, gold, _ = result._drops("typed", "all")
    assert len(values) == len(result.reporting) and sorted(gold) == sorted(victims.gold[result.reporting])
    classes = [line["drop"] for _, line in result.summary().iterrows() if line["class"] != "all"]
    assert len(classes) == 3 and values.mean() == pytest.approx(np.mean(classes))


def test_methods_are_compared_on_classes_that_both_have(bert):
    one, two = (typed(bert, "not", target=i, label=f"LABEL_{i}") for i in (1, 0))
    made = {"attribution": [one], "other": [two], "both": [one, two]}
    against = triggers.contest(Reader(bert[1]), crowd(bert), made, by="target", top=1).against()
    assert against[["other", "class"]].values.tolist() == [["both", "LABEL_1"], ["both", "all"]]
    alone = triggers.contest(Reader(bert[1]), crowd(bert), {"attribution": [one]}, top=1).against()
    assert alone.empty and list(alone) == ["other", "class", "difference", "low", "high"]


def test_contest_names_what_it_cannot_use(bert):
    victims, reader, made = crowd(bert), Reader(bert[1]), {"attribution": [typed(bert)], "a": [typed(bert)]}
    with pytest.raises(ValueError, match="as_ranked names 'atribution'"):
        triggers.contest(reader, victims, made, as_ranked=["atribution"])
    with pytest.raises(ValueError, match="No candidate of 'attribution' suits a class, by target"):
        triggers.contest(reader, victims, made, by="target")
    ranked = triggers.contest(reader, victims, made, as_ranked="attribution", top=1).passes
    assert ranked["attribution"] < ranked["a"]  # "a" is no part of the name given


def test_one_victim_a_class_has_no_interval(bert):
    victims = triggers.prepare(*bert, TEXTS[:4], GOLD[:4])
    short = triggers.contest(triggers.predictor(bert[0]), victims, {"typed": [typed(bert)]}, top=1).summary()
    assert short["low"].isna().all() and short["high"].isna().all(), "for all classes neither: their numbers are fixed"


def test_unequal_classes_do_not_widen_the_interval_for_all(bert):
    """Every victim falls, whatever sample is drawn of each class; that one class is rarer is no chance."""
    victims = triggers.prepare(*bert, [f"{named(n)} {named(n + 9)}" for n in range(44)], [0] * 40 + [1] * 4)
    table = {tuple(ids): gold for ids, gold in zip(victims.lines["input_ids"], victims.gold, strict=True)}

    def fool(inputs):
        """Right on every text that it knows, and wrong on all others."""
        return np.eye(3)[[table.get(tuple(i for i in line if i), 2) for line in inputs["input_ids"].tolist()]]

    made = {"attribution": [typed(bert, "hate")], "two": [typed(bert, "hate")], "none": [typed(bert, "hate", target=0)]}
    result = triggers.contest(fool, victims, made, top=1)
    line = result.summary().query("method == 'attribution' and `class` == 'all'").iloc[0]
    assert (line["drop"], line["low"], line["high"]) == pytest.approx((1, 1, 1))
    against = result.against().query("`class` == 'all'").set_index("other")
    assert against.loc["two", ["difference", "low", "high"]].tolist() == pytest.approx([0, 0, 0])


def test_of_several_tries_the_one_that_hurts_most_is_kept(bert):
    frame = pd.DataFrame({"first": [named(n) for n in range(8)], "second": "", "label": ["LABEL_0", "LABEL_1"] * 4})
    frame = frame.assign(phenomenon="", split="train")
    made = [typed(bert, word, target=-1, label="") for word in ("not", "very", "love", "story")]
    kept = triggers.hardening_set(*bert, frame, made, tries=4)
    each = [triggers.hardening_set(*bert, frame, [one]) for one in made]
    gold = [0, 1] * 4
    predict = triggers.predictor(bert[0])

    def right(rows):
        victims = triggers.prepare(*bert, rows["first"].tolist(), gold)
        return predict(victims.encoded.batch(list(range(8))))[np.arange(8), gold]

    assert np.allclose(right(kept), np.min([right(rows) for rows in each], axis=0), atol=1e-6)
    assert kept["label"].tolist() == frame["label"].tolist() and kept["phenomenon"].nunique() > 1


# ---- what is easily mixed up, and what shows in a cell ---------------------------------------------------------------


def test_hardening_says_which_columns_a_table_lacks(bert):
    for name in ("first", "second", "label"):
        with pytest.raises(ValueError, match=f"The table has no {name}: give one"):
            triggers.hardening_set(*bert, table().drop(columns=name), [typed(bert)])
    bare = table()[["first", "second", "label"]].assign(phenomenon="plain")
    assert len(triggers.hardening_set(*bert, bare, [typed(bert)])) == 3


def test_what_is_given_in_place_of_something_else_is_told(bert, tmp_path):
    victims, reader, one = crowd(bert), Reader(bert[1]), [typed(bert, "not")]
    by_method = {"typed": one}
    found = triggers.Extraction(one, [], (), 1, 0)
    for ask, said in (
        (lambda: triggers.contest(reader, victims, one), "give a dict by method, such as .'attribution': triggers"),
        (lambda: triggers.contest(bert[0], victims, by_method), r"give triggers.predictor\(model\)"),
        (lambda: triggers.contest(reader, TEXTS, by_method), r"give triggers.prepare\(model, tokenizer"),
        (lambda: triggers.attack(bert[0], victims, one), r"give triggers.predictor\(model\)"),
        (lambda: triggers.attack(reader, TEXTS, one), r"give triggers.prepare\(model, tokenizer"),
        (lambda: triggers.untouched(reader, TEXTS), r"give triggers.prepare\(model, tokenizer"),
        (lambda: triggers.insert(TEXTS, one[0]), r"give triggers.prepare\(model, tokenizer"),
        (lambda: triggers.attack(reader, victims, found), "give E.triggers"),
        (lambda: triggers.save(found, tmp_path / "found.json"), "give E.triggers"),
    ):
        with pytest.raises(ValueError, match=said):
            ask()


def test_a_class_is_given_by_its_number(bert):
    with pytest.raises(ValueError, match="target is 'positive': give the class's number, and its name as label"):
        typed(bert, target="positive")
    victims, reader = crowd(bert), Reader(bert[1])
    with pytest.raises(ValueError, match="the label 'label-1' and no target: give target=1, .*: LABEL_0, LABEL_1"):
        triggers.attack(reader, victims, [typed(bert, label="label-1")])
    with pytest.raises(ValueError, match="the label 'other' and no target: give target=[.]"):
        triggers.attack(reader, victims, [typed(bert, label="other")])
    triggers.attack(reader, victims, [typed(bert)])


def test_results_show_in_a_line(bert):
    victims, reader, one = crowd(bert), Reader(bert[1]), typed(bert, "not", target=1, label="LABEL_1")
    assert repr(victims) == "Victims(24 texts; LABEL_0 12, LABEL_1 12, LABEL_2 0)"
    assert repr(triggers.insert(victims, one, rows=[0, 3])) == "Inserted('not' in 2 texts; 0 cut to make room)"
    result = triggers.attack(reader, victims, [one])
    assert repr(result) == "Attack(1 triggers on 24 victims, 24 right before; see table())"
    chosen = repr(triggers.contest(reader, victims, {"typed": [one]}))
    assert chosen == ("Contest(by victim; triggers: typed 1; chosen on 12 victims, measured on 12; see summary())")
    found = triggers.Extraction([one], [], (1,), 2, 0)
    assert repr(found) == "Extraction(2 examples; triggers 1, attended 0, without 1)"

"""The bench attacks one text with one trigger: what it shows is what the model says of exactly these tokens."""

from __future__ import annotations

import families
import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from texts import tokenizer_for

from helpers import triggers, widgets_triggers
from helpers._trigger_bench import Bench, explain_inserted
from helpers.attribution import attribute
from helpers.triggers import Trigger

TEXTS = ["a slow start , but a wonderful end", "not a good film", "unbelievably bad"]
PAIRS = [("film", "it is a good film"), ("the story is dull", "we hate the story")]


@pytest.fixture(autouse=True)
def live(monkeypatch):
    monkeypatch.delenv("ATTATTR_HEADLESS", raising=False)


@pytest.fixture(scope="module")
def model():
    return families.make("bert", dtype=torch.float32, num_labels=3)


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizer_for("bert")


@pytest.fixture
def victims(model, tokenizer):
    return triggers.prepare(model, tokenizer, TEXTS, [0, 1, 2])


@pytest.fixture
def pairs(model, tokenizer):
    return triggers.prepare(model, tokenizer, PAIRS, [0, 1])


@pytest.fixture
def found(tokenizer):
    return [
        Trigger.from_text(tokenizer, "not very", positions=[0.0, 1.0], target=0, label="0"),
        Trigger.from_text(tokenizer, "good", positions=1.0),
    ]


def test_the_links_after_are_those_of_the_text_with_the_trigger_in_it(model, tokenizer, victims, found):
    inserted = triggers.insert(victims, found[0], rows=[1])
    a = explain_inserted(model, inserted)
    written, same = inserted.texts()
    assert same.all()
    b = attribute(model, tokenizer, written[0], steps=4, rule="gauss")
    assert (a.tokens, a.predicted, a.words) == (b.tokens, b.predicted, b.words)
    np.testing.assert_allclose(a.scores, b.scores, atol=1e-6)
    np.testing.assert_allclose(a.gap, b.gap, atol=1e-6)


def test_words_of_a_pair_keep_their_text_and_the_trigger_gets_its_own(model, pairs, tokenizer):
    trigger = Trigger.from_text(tokenizer, "not very", positions=[0.5, 0.0], segments=[0, 1])
    inserted = triggers.insert(pairs, trigger, rows=[1])
    a = explain_inserted(model, inserted, target=2)
    assert a.target == 2
    assert [w.text for w in a.words if w.segment == 1] == ["very", "we", "hate", "the", "story"]
    assert [w.start for w in a.words] == [0, *(w.stop for w in a.words[:-1])], "every token is in one word"
    assert a.words[-1].stop == len(a.tokens)


def test_a_trimmed_text_is_explained_token_by_token(model, tokenizer):
    victims = triggers.prepare(model, tokenizer, PAIRS, [0, 1], max_length=11)
    trigger = Trigger.from_text(tokenizer, "not very good", positions=[0.0, 0.5, 1.0], segments=[0, 0, 1])
    inserted = triggers.insert(victims, trigger, rows=[1])
    assert inserted.trimmed[0] > 0
    a = explain_inserted(model, inserted)
    assert [w.text for w in a.words] == list(a.tokens)
    sep = a.tokens.index("[SEP]")
    assert [w.segment for w in a.words] == [None, *[0] * (sep - 1), None, *[1] * (len(a.tokens) - sep - 2), None]


def test_the_bench_shows_prediction_links_and_trees_before_and_after(model, victims, found):
    box = widgets_triggers.trigger_bench(model, victims, found)
    assert len(box.figures) == 4 and all(isinstance(figure, go.FigureWidget) for figure in box.figures)
    predict = triggers.predictor(model)
    wanted = predict(triggers.insert(victims, found[0], rows=[0]).batch())[0]
    assert box.seen.after.predicted == wanted.argmax()
    assert box.seen.after.probability == pytest.approx(wanted.max(), abs=1e-5)
    assert box.seen.before.text == TEXTS[0]
    assert f"({wanted.max():.2f})" in box.message.value
    assert "The data say" in box.message.value


def test_every_control_asks_anew(model, victims, found):
    box = widgets_triggers.trigger_bench(model, victims, found, rows=[2, 1])
    figures = box.figures
    assert box.seen.before.text == TEXTS[2]
    box.victim.value = 1
    assert box.seen.before.text == TEXTS[1]
    box.where.value = "end"
    assert box.seen.inserted.tokens[0][-3:] == ("not", "very", "[SEP]")
    box.found.value = 1
    assert box.typed.value == "good"
    assert box.seen.inserted.trigger is found[1]
    box.typed.value = "wonderful"
    box.button.click()
    assert box.seen.inserted.trigger.tokens == ("wonderful",)
    box.typed.value = "dull"
    box._entered(None, {"event": "submit"}, [])
    assert box.seen.inserted.trigger.tokens == ("dull",)
    assert box.figures is figures, "figure widgets bring megabytes of JavaScript: they are kept"


def test_a_found_trigger_goes_in_by_id_and_typed_words_into_their_text(model, pairs, tokenizer):
    piece = tokenizer.convert_tokens_to_ids("##ly")
    lone = Trigger(("##ly",), (piece,), (1,), (0.5,))
    bench = Bench(model, pairs, [lone])
    assert bench.trigger(str(lone), 0) is lone
    typed = bench.trigger(" good | not very ", 0)
    assert (typed.tokens, typed.segments, set(typed.positions)) == (("good", "not", "very"), (0, 1, 1), {0.5})


@pytest.mark.parametrize("typed, said", [("", "no word"), ("[CLS]", "CLS"), ("good | bad", "leave the |")])
def test_what_goes_wrong_is_said_inside_and_the_old_answer_is_hidden(model, victims, found, typed, said):
    box = widgets_triggers.trigger_bench(model, victims, found)
    box.typed.value = typed
    box.button.click()
    assert said in box.message.value and 'role="alert"' in box.message.value
    assert box._place.layout.display == "none"
    assert not box.button.disabled
    box.typed.value = "good"
    box.button.click()
    assert box._place.layout.display is None


def test_signs_are_shown_as_they_are(model, tokenizer, found):
    victims = triggers.prepare(model, tokenizer, ["a <script> $x$ film"], [0])
    box = widgets_triggers.trigger_bench(model, victims, found)
    assert box.seen.before.text == "a <script> $x$ film"
    assert "<script>" not in box.message.value and "$" not in box.message.value
    assert "<b style" in box.message.value, "the trigger's tokens are marked"


def test_headless_it_is_the_links_of_the_first_text_with_the_first_trigger(model, victims, found, monkeypatch):
    monkeypatch.setenv("ATTATTR_HEADLESS", "1")
    figure = widgets_triggers.trigger_bench(model, victims, found, rows=[1])
    assert type(figure) is go.Figure
    seen = Bench(model, victims, found).answer(found[0], 1)
    assert "not very" in figure.layout.title.text
    for a in (seen.before, seen.after):
        assert f"{a.labels[a.predicted]} ({a.probability:.2f})" in figure.layout.title.text


def test_nothing_to_attack_or_to_attack_with_is_refused(model, victims, found):
    with pytest.raises(ValueError, match="0 triggers"):
        widgets_triggers.trigger_bench(model, victims, [])
    with pytest.raises(ValueError, match="0 to 2"):
        widgets_triggers.trigger_bench(model, victims, found, rows=[3])

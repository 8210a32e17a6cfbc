"""The controls change the figure to what the plot functions draw, and nothing that goes wrong is lost."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from types import SimpleNamespace

import ipywidgets
import numpy as np
import plotly.graph_objects as go
import pytest
import traitlets
from sample import HARD, sample

from helpers import _workbench, plots, widgets
from helpers import tree as trees
from helpers._example_picker import row_of
from helpers._widget_parts import without_nan
from helpers.pruning import Curve, counts_of, gates_overall


@pytest.fixture(autouse=True)
def live(monkeypatch):
    monkeypatch.delenv("ATTATTR_HEADLESS", raising=False)


@pytest.fixture
def two():
    return [sample(layers=(0, 1, 2), heads=2), sample(HARD, layers=(1, 5), heads=4, seed=1)]


def same(shown: go.FigureWidget, wanted: go.Figure) -> bool:
    """Whether a figure widget holds exactly the traces and the layout of a figure."""
    mine, theirs = (json.loads(figure.to_json()) for figure in (go.Figure(shown), without_nan(wanted)))
    for trace in (*mine["data"], *theirs["data"]):
        trace.pop("uid", None)
    return mine == theirs


def test_the_first_figure_is_the_links_of_the_first_example(two):
    box = widgets.explorer(two, k=3)
    assert isinstance(box.figure, go.FigureWidget)
    assert same(box.figure, plots.sentence_links(two[0], k=3))


def test_every_view_of_every_example_is_what_the_plot_function_draws(two):
    box = widgets.explorer(two, k=3)
    drawn = {
        "links, all layers": lambda a: plots.sentence_links(a, k=3),
        "links, one layer": lambda a: plots.sentence_links(a, k=3, layer=box.layer.value),
        "one head": lambda a: plots.head_maps(a, box.layer.value, box.head.value),
        "one layer": lambda a: plots.layer_maps(a, box.layer.value),
        "all heads": plots.heads_overview,
    }
    assert set(drawn) == set(box.view.options)
    for example in (1, 0):
        box.example.value = example
        box.layer.value, box.head.value = two[example].layers[-1], 1
        for view in (*drawn, *reversed(drawn)):  # from every number of traces to every other
            box.view.value = view
            assert same(box.figure, drawn[view](two[example])), (example, view)


def test_layer_and_head_change_the_figure_in_its_place(two):
    box = widgets.explorer(two)
    box.view.value = "one head"
    figure = box.figure
    box.layer.value, box.head.value = 2, 1
    assert box.figure is figure, "a figure widget brings megabytes of JavaScript: it is kept"
    assert "Layer 2, head 1" in box.figure.layout.title.text
    np.testing.assert_array_equal(np.array(box.figure.data[1].z, float), two[0].scores[2, 1])


def test_controls_offer_what_the_example_has(two):
    box = widgets.explorer(two)
    assert box.layer.options == (0, 1, 2) and box.head.options == (0, 1)
    box.view.value = "one head"
    box.layer.value, box.head.value = 1, 1
    box.example.value = 1
    assert box.layer.options == (1, 5) and box.head.options == (0, 1, 2, 3)
    assert (box.layer.value, box.head.value) == (1, 1), "a choice that is still there is kept"
    box.layer.value, box.head.value = 5, 3
    box.example.value = 0
    assert (box.layer.value, box.head.value) == (0, 0)
    assert same(box.figure, plots.head_maps(two[0], 0, 0))


def test_another_example_is_drawn_once(two, monkeypatch):
    box = widgets.explorer(two)
    box.view.value = "one head"
    box.layer.value, box.head.value = 2, 1
    calls = []
    draw = plots.head_maps
    monkeypatch.setattr(plots, "head_maps", lambda *given: calls.append(given[1:]) or draw(*given))
    box.example.value = 1
    assert calls == [(1, 1)]


def test_a_front_end_that_follows_the_messages_ends_with_the_same_layout(two, monkeypatch):
    box = widgets.explorer(two)
    layout = box.figure.layout.to_plotly_json()

    def follow(figure, changes, *_):
        for name, value in changes.items():
            layout.pop(name, None) if value is None else layout.update({name: value})

    monkeypatch.setattr(go.FigureWidget, "_send_relayout_msg", follow)
    for view in (*box.view.options, box.view.options[0]):
        box.view.value = view
        assert layout.keys() == box.figure.layout.to_plotly_json().keys(), view


def test_a_control_without_effect_is_off(two):
    box = widgets.explorer(two)
    states = {}
    for view in box.view.options:
        box.view.value = view
        states[view] = (not box.layer.disabled, not box.head.disabled)
    assert states == {
        "links, all layers": (False, False),
        "links, one layer": (True, False),
        "one head": (True, True),
        "one layer": (True, False),
        "all heads": (False, False),
    }


def test_controls_have_names_and_examples_their_text(two):
    box = widgets.explorer(two)
    names = [control.description for control in (box.example, box.view, box.layer, box.head)]
    assert names == ["Example", "View", "Layer", "Head"]
    assert box.example.options[0] == ("0: a slow but warm film", 0)
    pair = dataclasses.replace(two[0], text=("one\ntext", "another"))
    assert widgets.explorer([pair]).example.options[0][0] == "0: one text | another"


def test_one_attribution_is_enough_and_none_is_too_few(two):
    assert len(widgets.explorer(two[0]).example.options) == 1
    with pytest.raises(ValueError, match="at least one"):
        widgets.explorer([])


def test_figures_hold_nothing_that_is_no_json():
    a = sample()
    scores = a.scores.copy()
    scores[:, :, 1] = np.nan
    box = widgets.explorer(dataclasses.replace(a, scores=scores))
    for view in box.view.options:
        box.view.value = view
        state = json.dumps(box.figure.to_dict(), default=lambda x: np.asarray(x).tolist(), allow_nan=False)
        assert "not a number" in state


def test_no_widget_that_hangs_a_headless_run(two):
    def inside(widget):
        yield widget
        for child in getattr(widget, "children", ()):
            yield from inside(child)

    typed = widgets.sentence_box(lambda text: two[0], start_text="a film")
    boxes = widgets.explorer(two), widgets.head_grid(two), widgets.tree_explorer(two)
    for box in (*boxes, typed, widgets.pruning_slider(**pruning()[0])):
        assert not [widget for widget in inside(box) if isinstance(widget, ipywidgets.Output)]


# ---- a sentence one types -------------------------------------------------------------------------------------------


def test_the_start_text_is_explained_at_once():
    a = sample()
    asked = []
    box = widgets.sentence_box(lambda text: asked.append(text) or a, start_text="a film", k=2)
    assert asked == ["a film"] and box.attribution is a
    links, maps = box.figures
    best = a.top_links(1).iloc[0] if a.scores.max() > -a.scores.min() else None
    assert same(links, plots.sentence_links(a, k=2))
    assert best is None or f"Layer {best['layer']}, head {best['head']}" in maps.layout.title.text
    assert "<b>positive</b>, with probability <b>0.98</b>" in box.picker.message.value


def test_another_text_is_explained_by_the_button_and_by_enter():
    made = {"first": sample(), "second": sample(("so", "good")), "third": sample(HARD)}
    box = widgets.sentence_box(made.__getitem__, start_text="first")
    figures = box.figures
    box.picker.fields[0].value = "second"
    assert box.attribution is made["first"], "not before one asks"
    box.picker.button.click()
    assert same(box.figures[0], plots.sentence_links(made["second"]))
    box.picker.fields[0].value = "third"
    box.picker.fields[0]._handle_custom_msg({"event": "submit"}, [])
    assert same(box.figures[0], plots.sentence_links(made["third"]))
    assert box.figures == figures


def test_a_pair_has_two_fields():
    asked = []
    box = widgets.sentence_box(lambda text: asked.append(text) or sample(), start_text=("one", "two"))
    assert [field.description for field in box.picker.fields] == ["First text", "Second text"]
    box.picker.fields[1].value = "three"
    box.picker.button.click()
    assert asked == [("one", "two"), ("one", "three")]


def test_while_it_works_the_button_says_so():
    seen = []

    def explain(text):
        if box is not None:
            seen.append((box.picker.button.disabled, box.picker.button.description, box.picker.message.value))
        return sample()

    box = None
    box = widgets.sentence_box(explain, start_text="a film")
    box.picker.button.click()
    disabled, description, message = seen[0]
    assert disabled and description == "Explaining…" and "Explaining…" in message
    assert not box.picker.button.disabled and box.picker.button.description == "Explain"


def test_an_error_is_shown_logged_and_left_behind(caplog):
    def explain(text):
        if not text:
            raise ValueError("Text 0 is <b>empty</b> & costs $5 or $6.")
        return sample()

    box = widgets.sentence_box(explain, start_text="a film")
    box.picker.fields[0].value = ""
    box.picker.button.click()
    assert (
        "<b>ValueError</b>: Text 0 is &lt;b&gt;empty&lt;/b&gt; &amp; costs &#36;5 or &#36;6."
        in box.picker.message.value
    )
    assert 'role="alert"' in box.picker.message.value
    assert box.figures[0].layout.width and box._place.layout.display == "none", "the old answer is out of sight"
    assert "Text 0 is" in caplog.text, "and the traceback is in the log"
    assert not box.picker.button.disabled
    box.picker.fields[0].value = "again"
    box.picker.button.click()
    assert "ValueError" not in box.picker.message.value and box._place.layout.display is None


def test_an_error_at_the_start_leaves_a_box_that_works():
    def explain(text):
        if text == "bad":
            raise RuntimeError("no model")
        return sample()

    box = widgets.sentence_box(explain, start_text="bad")
    assert "no model" in box.picker.message.value and box.figures == ()
    box.picker.fields[0].value = "good"
    box.picker.button.click()
    assert len(box.figures) == 2


def test_a_warning_is_shown_once():
    def explain(text):
        for _ in range(2):
            warnings.warn("600 tokens were cut to <512>.", stacklevel=2)
        return sample()

    message = widgets.sentence_box(explain, start_text="a film").picker.message.value
    assert message.count("Note: 600 tokens were cut to &lt;512&gt;.") == 1
    assert "<b>positive</b>" in message


def test_the_answer_names_another_class_than_the_predicted_one():
    a = sample(target=0, probability=0.02, value=0.02, labels=("<no>", "yes"))
    message = widgets.sentence_box(lambda text: a, start_text="a film").picker.message.value
    assert "<b>yes</b>; explained is <b>&lt;no&gt;</b>, with probability <b>0.02</b>" in message
    raw = sample(output="raw", value=1.25, probability=np.nan)
    assert (
        "The model answers <b>1.25</b>"
        in widgets.sentence_box(lambda text: raw, start_text="a film").picker.message.value
    )


def test_scores_of_zero_still_have_two_figures():
    nothing = dataclasses.replace(sample(), scores=sample().scores * 0)
    assert len(widgets.sentence_box(lambda text: nothing, start_text="a film").figures) == 2


def visible(*controls):
    return [control.layout.display is None for control in controls]


def test_a_text_can_be_typed_chosen_or_read_from_a_file(tmp_path):
    asked = []
    box = widgets.sentence_box(lambda text: asked.append(text) or sample(), start_text="typed", examples=["one", "two"])
    picker = box.picker
    assert visible(picker.fields[0], picker.fields[1], picker.example, picker._file) == [True, False, False, False]
    picker.source.value = "example"
    picker.example.value = 1
    assert visible(picker.fields[0], picker.example) == [False, True]
    mine = tmp_path / "mine.tsv"
    mine.write_text("label\tsentence\n0\tfirst row\n\n1\tsecond row\n", encoding="utf-8")
    picker.source.value = "file"
    assert asked == ["typed", "one", "two"] and "tab-separated" in picker.message.value, "no file is named yet"
    picker.path.value = str(mine)
    picker.path._handle_custom_msg({"event": "submit"}, [])
    picker.row.value = 2
    assert asked[3:] == ["first row", "second row"]
    mine.write_text("sentence\nchanged\n", encoding="utf-8")
    os.utime(mine, (1, 1))
    picker.row.value = 1
    assert asked[-1] == "changed", "a file is read again when it has changed"


def test_a_picker_can_be_given_pairs_instead():
    asked = []
    picker = widgets.ExamplePicker(lambda text: asked.append(text) or "", start_text="one", examples=["one"])
    assert [name for _, name in picker.source.options] == ["typed", "example", "file"]
    picker.offer(("a", "b"), [])
    assert asked == [], "what is offered isn't explained yet"
    assert [name for _, name in picker.source.options] == ["typed", "file"]
    assert picker.text == ("a", "b") and visible(*picker.fields) == [True, True]
    assert picker.run() and asked == [("a", "b")]


@pytest.mark.parametrize(
    ("content", "choice", "said"),
    [
        ("sentence\none\n", dict(number=2), "no row 2 in .*: its rows are 1 to 1"),
        ("sentence\none\n", dict(columns=["text"]), "no column for 'text'"),
        ("a\tb\none\ttwo\n", {}, "usual name for the text.*'a', 'b'"),
        ("sentence\none\n", dict(pair=True), "usual name for two texts"),
        ("a\tb\none\ttwo\n", dict(pair=True, columns=["a"]), "1 column was named"),
        ("a\tb\none\ttwo\n", dict(columns=["a", "b"]), "2 columns were named"),
        (None, {}, "There is no file"),
    ],
)
def test_a_row_that_is_not_there_is_said_readably(tmp_path, content, choice, said):
    path = tmp_path / "mine.tsv"
    if content:
        path.write_text(content, encoding="utf-8")
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        row_of(str(path), **{"number": 1} | choice)
    with pytest.raises(ValueError, match="No file is named"):
        row_of("  ", 1)


def test_a_row_of_a_pair_is_found_by_the_usual_names_or_those_given(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text('premise\thypothesis\tmore\n"a\tb\tc\n', encoding="utf-8")
    assert row_of(str(path), 1, pair=True) == ('"a', "b")
    assert row_of(str(path), 1, pair=True, columns=["more", "premise"]) == ("c", '"a')


# ---- every head -----------------------------------------------------------------------------------------------------


class Click:
    """Where a heat map was clicked, as plotly says it."""

    def __init__(self, head, place):
        self.xs, self.ys = [head], [place]


def grid_shows(box, a, layer, head):
    """Whether grid, maps and sentence all show this head."""
    shape, place = box.grid.layout.shapes[0], a.layers.index(layer)
    framed = (shape.x0, shape.x1, shape.y0, shape.y1) == (head - 0.5, head + 0.5, place - 0.5, place + 0.5)
    sentence = plots.sentence_links(a, k=8, layer=layer, head=head)
    return framed and same(box.maps, plots.head_maps(a, layer, head)) and same(box.sentence, sentence)


def test_the_grid_begins_with_the_strongest_head_and_follows_clicks_and_keys(two):
    box = widgets.head_grid(two)
    layer, head = np.unravel_index(np.abs(two[0].scores).max((2, 3)).argmax(), (3, 2))
    assert grid_shows(box, two[0], int(layer), int(head))
    figures = box.grid, box.maps, box.sentence
    box.grid.data[0]._dispatch_on_click(Click(1, 0), None)
    assert (box.layer.value, box.head.value) == (0, 1) and grid_shows(box, two[0], 0, 1)
    box.layer.value = 2
    assert grid_shows(box, two[0], 2, 1)
    box.example.value = 1
    box.grid.data[0]._dispatch_on_click(Click(3, 1), None)
    assert grid_shows(box, two[1], 5, 3), "layers go by their number, not by their place"
    assert (box.grid, box.maps, box.sentence) == figures


def test_the_grid_says_the_strongest_score_of_every_head(two):
    a = two[1]
    trace = widgets.head_grid(a).grid.data[0]
    flat = a.scores.reshape(2, 4, -1)
    strongest = np.take_along_axis(flat, np.abs(flat).argmax(-1)[..., None], -1)[..., 0]
    np.testing.assert_allclose(np.array(trace.z, float), strongest)
    assert "layer 5, head 3" in trace.text[1][3] and "<script>" not in "".join(map(str, np.ravel(trace.text)))


def test_the_links_beside_the_grid_are_of_the_head_its_layer_or_all(two):
    box = widgets.head_grid(two[0])
    box.layer.value, box.head.value = 1, 0
    wanted = {"head": dict(layer=1, head=0), "layer": dict(layer=1), "all": {}}
    assert set(wanted) == {value for _, value in box.links.options}
    for name in ("layer", "all", "head"):
        box.links.value = name
        assert same(box.sentence, plots.sentence_links(two[0], **wanted[name]))


def test_one_click_draws_one_figure(two, monkeypatch):
    box = widgets.head_grid(two[0])
    box.layer.value, box.head.value = 0, 0
    calls, draw = [], plots.head_maps
    monkeypatch.setattr(plots, "head_maps", lambda *given: calls.append(given[1:]) or draw(*given))
    box.grid.data[0]._dispatch_on_click(Click(1, 2), None)
    assert calls == [(2, 1)]


def test_a_head_without_its_layer_is_refused(two):
    with pytest.raises(ValueError, match="without a layer"):
        plots.sentence_links(two[0], head=1)
    with pytest.raises(ValueError, match="at least one"):
        widgets.head_grid([])


# ---- a slider with a name -------------------------------------------------------------------------------------------


def test_stops_of_the_slider_and_their_values_go_together():
    slider = widgets.NamedSlider([("none", 0.0), ("half", 0.5), ("all", 1.0)], value=0.5, description="share")
    assert (slider.index, slider.value, slider.stops) == (1, 0.5, ["none", "half", "all"])
    slider.index = 2
    assert slider.value == 1.0
    slider.value = 0.0
    assert slider.index == 0
    slider.index = 9
    assert slider.index == 2, "a page can't ask for a stop that isn't there"
    with pytest.raises(traitlets.TraitError, match="share has no stop 0.3"):
        slider.value = 0.3


# ---- the whole explorer ---------------------------------------------------------------------------------------------


@pytest.fixture
def bench(monkeypatch):
    """A workbench on two models made of nothing: one of sentences, one of pairs; the texts explained are in asked."""
    asked = []

    def attribute(model, tokenizer, text):
        asked.append((model, text))
        if "bad" in text:
            raise ValueError("not <b>this</b>")
        return sample(("so", "good"), seed=len(asked))

    monkeypatch.setattr(_workbench.models, "load", lambda name: SimpleNamespace(model=name, tokenizer=None))
    monkeypatch.setattr(_workbench, "attribute", attribute)
    made = widgets.workbench(["minilm-sst2", "minilm-rte"])
    made.asked = asked
    return made


def test_the_workbench_shows_heads_then_the_tree_and_brings_up_to_date_what_it_shows(bench):
    heads = bench.shown
    assert isinstance(heads, widgets.HeadGrid) and len(bench.asked) == 1
    bench.view.value = "tree"
    tree = bench.shown
    assert isinstance(tree, widgets.TreeExplorer) and visible(heads, tree) == [False, True]
    bench.picker.fields[0].value = "a film"
    bench.picker.run()
    assert bench.asked[-1] == ("minilm-sst2", "a film")
    assert traces(tree.figure) == traces(tree_of(bench.attribution))
    assert heads.attribution is not bench.attribution, "what is out of sight waits"
    bench.view.value = "heads"
    assert bench.shown is heads and heads.attribution is bench.attribution and visible(heads, tree) == [True, False]


def test_a_workbench_that_waits_loads_once_when_a_page_shows_it(bench, monkeypatch):
    asked = []
    monkeypatch.setattr(_workbench.Workbench, "_load", lambda self: asked.append(self.model.value))
    waiting = widgets.workbench(["minilm-sst2"], at_once=False)
    assert asked == [] and "Loading minilm-sst2" in waiting.message.value
    for _ in range(2):  # a page, and then another one
        waiting._keys._handle_custom_msg("shown", [])
    assert asked == ["minilm-sst2"]


def test_the_workbench_takes_another_model_with_its_texts(bench):
    bench.model.value = "minilm-rte"
    model, text = bench.asked[-1]
    assert model == "minilm-rte" and isinstance(text, tuple)
    assert visible(*bench.picker.fields) == [True, True]


def test_the_workbench_says_what_went_wrong(bench):
    bench.picker.fields[0].value = "bad"
    assert not bench.picker.run()
    assert "not &lt;b&gt;this" in bench.picker.message.value and bench._place.layout.display == "none"
    bench.picker.fields[0].value = "good"
    assert bench.picker.run() and bench._place.layout.display is None
    with pytest.raises(ValueError, match="no model to choose"):
        widgets.workbench([])
    with pytest.raises(ValueError, match="no task with bundled texts"):
        widgets.workbench(["nobody/nothing"])


# ---- heads pruned ---------------------------------------------------------------------------------------------------

TEXTS = ["a <slow> start", "a film for $5", ("one", "two")]


def pruning(*, shares=(0, 0.5, 1), names=("attribution", "random"), **changes):
    """What pruning_slider takes, and the gates that the model was asked about."""
    lots, asked = np.random.default_rng(0), []
    heads = {name: lots.random((2, 3)) for name in names}
    gates = {name: gates_overall(found, counts_of(shares, 6)) for name, found in heads.items()}
    curves = {name: Curve(name, np.array(shares), lots.random((len(shares), 20)) > 0.4) for name in names}

    def predict(text, gates):
        asked.append((text, gates.copy()))
        return np.array([0.9, 0.1]) if gates.all() else np.array([0.25, 0.75])

    given = dict(curves=curves, importances=heads, gates=gates, texts=TEXTS, predict=predict, labels=("<no>", "yes"))
    return given | changes, asked


def state_of(given, score, setting):
    return plots.pruning_state(
        given["curves"], given["importances"][score], given["gates"][score][setting], score=score, setting=setting
    )


def test_slider_and_score_move_the_figure():
    given, _ = pruning()
    box = widgets.pruning_slider(**given, start=1)
    figure = box.figure
    assert same(figure, state_of(given, "attribution", 1))
    for score, setting in [("attribution", 2), ("random", 2), ("random", 0), ("attribution", 0)]:
        box.score.value, box.count.value = score, setting
        assert same(box.figure, state_of(given, score, setting)), (score, setting)
    assert box.figure is figure


def test_the_slider_counts_heads_and_has_a_name():
    box = widgets.pruning_slider(**pruning()[0])
    assert [label for label, _ in box.count.options] == ["0 of 6", "3 of 6", "6 of 6"]
    assert [control.description for control in (box.score, box.count, box.text)] == ["Score", "Heads pruned", "Text"]
    assert isinstance(box.count, widgets.NamedSlider), "its handle has the name"
    assert box.text.options[0][0] == "0: a <slow> start" and box.text.options[2][0] == "2: one | two"


def test_the_model_is_asked_about_the_chosen_text_with_the_heads_that_are_left():
    given, asked = pruning(gold=[0, 1, 1])
    box = widgets.pruning_slider(**given)
    del asked[:]
    box.count.value = 1
    assert {text for text, _ in asked} == {TEXTS[0]} and len(asked) <= 2
    assert any(np.array_equal(gates, given["gates"]["attribution"][1]) for _, gates in asked)
    said, answer = box.message.value.split("<br>")
    assert said.endswith("“a &lt;slow&gt; start”")
    assert "The model says yes (0.750), with all heads &lt;no&gt; (0.900); the data say &lt;no&gt;." in answer
    figure = box.figure.to_json()
    box.text.value = 1
    assert asked[-1][0] == TEXTS[1] and "&#36;5" in box.message.value and "the data say yes" in box.message.value
    assert box.figure.to_json() == figure, "another text changes no curve"


def test_a_model_that_fails_leaves_the_curve_and_says_why(caplog):
    given, _ = pruning()

    def predict(text, gates):
        raise RuntimeError("no <model>")

    box = widgets.pruning_slider(**given | {"predict": predict})
    box.count.value = 2
    assert "no &lt;model&gt;" in box.message.value and same(box.figure, state_of(given, "attribution", 2))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"curves": {}, "importances": {}, "gates": {}}, "nothing to choose"),
        ({"texts": []}, "nothing to choose"),
        ({"importances": {"attribution": np.ones((2, 3))}}, "scores differ"),
        ({"gates": {"attribution": np.ones((3, 2, 3)), "random": np.ones((2, 2, 3))}}, "same settings"),
        ({"gates": {"attribution": np.ones((3, 2, 3)), "random": np.zeros((3, 2, 3))}}, "same settings"),
        ({"start": 3}, "same settings"),
        ({"gold": [0]}, "1 gold labels"),
    ],
)
def test_what_does_not_fit_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        widgets.pruning_slider(**pruning()[0] | changes)


# ---- trees ----------------------------------------------------------------------------------------------------------


def tree_of(a, tau=0.4, penalty=0.0, variant="paper"):
    """The picture that the explorer owes for a setting, without its note."""
    return plots.tree(trees.pruned(trees.attribution_tree(a, tau=tau, variant=variant, merge=True), penalty))


def traces(figure):
    found = json.loads(go.Figure(figure).to_json())["data"]
    return [{name: value for name, value in trace.items() if name != "uid"} for trace in found]


def test_tree_controls_move_the_tree_and_its_numbers(two):
    box = widgets.tree_explorer(two, penalties=(0, 0.01, 1))
    figure = box.figure
    assert traces(figure) == traces(tree_of(two[0]))
    settings = [("tau", 0.1), ("penalty", 0.01), ("variant", "released"), ("example", 1), ("penalty", 0)]
    now = dict(tau=0.4, penalty=0.0, variant="paper", example=0)
    for name, value in settings:
        getattr(box, name).value, now[name] = value, value
        a, options = two[now["example"]], {key: now[key] for key in ("tau", "penalty", "variant")}
        assert traces(box.figure) == traces(tree_of(a, **options)), now
        whole = trees.attribution_tree(a, tau=now["tau"], variant=now["variant"], merge=True)
        kept = trees.pruned(whole, now["penalty"])
        said = f"Objective {trees.objective(kept, now['penalty']):.3f} (probability), {kept.number_of_edges()} edges"
        assert said in box.message.value, now
        assert ("before lambda cut it" in box.message.value) == (kept.number_of_edges() < whole.number_of_edges())
        assert f"tau {now['tau']:g}, lambda {now['penalty']:g}, {now['variant']}" in box.figure.layout.title.text
    assert box.figure is figure


def test_tree_controls_have_names_and_keys_move_them(two):
    box = widgets.tree_explorer(two[0])
    names = [control.description for control in (box.example, box.tau, box.penalty, box.variant)]
    assert names == ["Example", "tau", "lambda", "Variant"]
    assert isinstance(box.tau, widgets.NamedSlider) and isinstance(box.penalty, widgets.NamedSlider)
    assert set(box.variant.options) == set(trees.VARIANTS)


def test_a_price_that_nothing_pays_leaves_the_token_that_is_read(two):
    box = widgets.tree_explorer(two[0], penalties=(0, 100), penalty=100)
    assert "0 edges" in box.message.value and len(box.figure.data) >= 1


def test_scores_that_make_no_tree_are_said_inside(two):
    bad = dataclasses.replace(two[0], scores=two[0].scores * np.nan)
    box = widgets.tree_explorer([two[0], bad])
    box.example.value = 1
    assert "not finite numbers" in box.message.value and box._place.layout.display == "none"
    box.example.value = 0
    assert "Objective" in box.message.value and box._place.layout.display is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attributions": []}, "at least one"),
        ({"tau": 2}, "from 0 to 1"),
        ({"penalty": 0.3}, "not offered"),
        ({"variant": "papers"}, "no variant"),
    ],
)
def test_a_tree_setting_that_is_not_there_is_refused(two, changes, said, monkeypatch):
    for value in ("0", "1"):
        monkeypatch.setenv("ATTATTR_HEADLESS", value)
        with pytest.raises(ValueError, match=said):
            widgets.tree_explorer(**{"attributions": two} | changes)


# ---- nobody there ---------------------------------------------------------------------------------------------------


def test_headless_gives_the_static_twin(two, monkeypatch):
    monkeypatch.setenv("ATTATTR_HEADLESS", "1")
    explored = widgets.explorer(two, k=3)
    typed = widgets.sentence_box(lambda text: two[0], start_text="a film", k=3)
    wanted = plots.sentence_links(two[0], k=3)
    for twin in (explored, typed):
        assert isinstance(twin, go.Figure) and not isinstance(twin, go.FigureWidget)
        assert json.loads(twin.to_json())["data"] == json.loads(wanted.to_json())["data"]
        assert "the controls need a running kernel" in twin.layout.annotations[-1].text
        assert twin.layout.height > wanted.layout.height
    given, _ = pruning()
    twin = widgets.pruning_slider(**given, start=2)
    assert isinstance(twin, go.Figure) and not isinstance(twin, go.FigureWidget)
    assert json.loads(twin.to_json())["data"] == json.loads(state_of(given, "attribution", 2).to_json())["data"]
    assert "yes (0.750), with all heads" in twin.layout.title.text
    assert "the controls need a running kernel" in twin.layout.annotations[-1].text
    twin = widgets.tree_explorer(two, tau=0.2, penalty=0.01)
    assert isinstance(twin, go.Figure) and not isinstance(twin, go.FigureWidget)
    assert traces(twin) == traces(tree_of(two[0], tau=0.2, penalty=0.01))
    assert "tau 0.2, lambda 0.01, paper" in twin.layout.title.text
    assert "the controls need a running kernel" in twin.layout.annotations[-1].text
    monkeypatch.setenv("ATTATTR_HEADLESS", "0")
    assert isinstance(widgets.explorer(two), widgets.Explorer)
    monkeypatch.setenv("ATTATTR_HEADLESS", "1")
    twin = widgets.head_grid(two)
    best = np.unravel_index(np.abs(two[0].scores).max((2, 3)).argmax(), (3, 2))
    assert traces(twin) == traces(plots.head_maps(two[0], *map(int, best)))
    assert "the controls need a running kernel" in twin.layout.annotations[-1].text


def test_headless_errors_stop_the_run(monkeypatch):
    monkeypatch.setenv("ATTATTR_HEADLESS", "1")

    def explain(text):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        widgets.sentence_box(explain, start_text="a film")
    with pytest.raises(ValueError, match="at least one"):
        widgets.explorer([])

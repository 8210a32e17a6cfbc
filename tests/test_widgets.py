"""The controls change the figure to what the plot functions draw, and nothing that goes wrong is lost."""

from __future__ import annotations

import dataclasses
import json
import warnings

import ipywidgets
import numpy as np
import plotly.graph_objects as go
import pytest
from sample import HARD, sample

from helpers import plots, widgets
from helpers import tree as trees
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
    for box in (widgets.explorer(two), typed, widgets.pruning_slider(**pruning()[0]), widgets.tree_explorer(two)):
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
    assert "<b>positive</b>, with probability <b>0.98</b>" in box.message.value


def test_another_text_is_explained_by_the_button_and_by_enter():
    made = {"first": sample(), "second": sample(("so", "good")), "third": sample(HARD)}
    box = widgets.sentence_box(made.__getitem__, start_text="first")
    figures = box.figures
    box.fields[0].value = "second"
    assert box.attribution is made["first"], "not before one asks"
    box.button.click()
    assert same(box.figures[0], plots.sentence_links(made["second"]))
    box.fields[0].value = "third"
    box.fields[0]._handle_custom_msg({"event": "submit"}, [])
    assert same(box.figures[0], plots.sentence_links(made["third"]))
    assert box.figures == figures


def test_a_pair_has_two_fields():
    asked = []
    box = widgets.sentence_box(lambda text: asked.append(text) or sample(), start_text=("one", "two"))
    assert [field.description for field in box.fields] == ["First text", "Second text"]
    box.fields[1].value = "three"
    box.button.click()
    assert asked == [("one", "two"), ("one", "three")]


def test_while_it_works_the_button_says_so():
    seen = []

    def explain(text):
        seen.append((box.button.disabled, box.button.description, box.message.value) if box else None)
        return sample()

    box = None
    box = widgets.sentence_box(explain, start_text="a film")
    box.button.click()
    disabled, description, message = seen[1]
    assert disabled and description == "Explaining…" and "Explaining…" in message
    assert not box.button.disabled and box.button.description == "Explain"


def test_an_error_is_shown_logged_and_left_behind(caplog):
    def explain(text):
        if not text:
            raise ValueError("Text 0 is <b>empty</b> & costs $5 or $6.")
        return sample()

    box = widgets.sentence_box(explain, start_text="a film")
    box.fields[0].value = ""
    box.button.click()
    assert "<b>ValueError</b>: Text 0 is &lt;b&gt;empty&lt;/b&gt; &amp; costs &#36;5 or &#36;6." in box.message.value
    assert 'role="alert"' in box.message.value
    assert box.figures[0].layout.width and box._place.layout.display == "none", "the old answer is out of sight"
    assert "Text 0 is" in caplog.text, "and the traceback is in the log"
    assert not box.button.disabled
    box.fields[0].value = "again"
    box.button.click()
    assert "ValueError" not in box.message.value and box._place.layout.display is None


def test_an_error_at_the_start_leaves_a_box_that_works():
    def explain(text):
        if text == "bad":
            raise RuntimeError("no model")
        return sample()

    box = widgets.sentence_box(explain, start_text="bad")
    assert "no model" in box.message.value and box.figures == ()
    box.fields[0].value = "good"
    box.button.click()
    assert len(box.figures) == 2


def test_a_warning_is_shown_once():
    def explain(text):
        for _ in range(2):
            warnings.warn("600 tokens were cut to <512>.", stacklevel=2)
        return sample()

    message = widgets.sentence_box(explain, start_text="a film").message.value
    assert message.count("Note: 600 tokens were cut to &lt;512&gt;.") == 1
    assert "<b>positive</b>" in message


def test_the_answer_names_another_class_than_the_predicted_one():
    a = sample(target=0, probability=0.02, value=0.02, labels=("<no>", "yes"))
    message = widgets.sentence_box(lambda text: a, start_text="a film").message.value
    assert "<b>yes</b>; explained is <b>&lt;no&gt;</b>, with probability <b>0.02</b>" in message
    raw = sample(output="raw", value=1.25, probability=np.nan)
    assert "The model answers <b>1.25</b>" in widgets.sentence_box(lambda text: raw, start_text="a film").message.value


def test_scores_of_zero_still_have_two_figures():
    nothing = dataclasses.replace(sample(), scores=sample().scores * 0)
    assert len(widgets.sentence_box(lambda text: nothing, start_text="a film").figures) == 2


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
    assert isinstance(box.count, ipywidgets.SelectionSlider), "arrow keys move it"
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
    assert isinstance(box.tau, ipywidgets.FloatSlider) and isinstance(box.penalty, ipywidgets.SelectionSlider)
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


def test_headless_errors_stop_the_run(monkeypatch):
    monkeypatch.setenv("ATTATTR_HEADLESS", "1")

    def explain(text):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        widgets.sentence_box(explain, start_text="a film")
    with pytest.raises(ValueError, match="at least one"):
        widgets.explorer([])

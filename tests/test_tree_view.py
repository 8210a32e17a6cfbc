"""The pictures of a tree show its edges where they belong, any text as it is, and the algorithm in its order."""

from __future__ import annotations

import re
import warnings

import matplotlib.pyplot as plt
import numpy as np
import plotly.graph_objects as go
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from sample import HARD, sample

from helpers import _tree_place as placed
from helpers import plots
from helpers.tree import VARIANTS, attribution_tree, trace

PAIR = ("[CLS]", "no", "star", "sang", "[SEP]", "stars", "did", "[SEP]")


def scores_of(*entries, layers=3, tokens=8):
    """Scores that are 0 but for entries (layer, query, key, score)."""
    scores = np.zeros((layers, tokens, tokens))
    for layer, query, key, score in entries:
        scores[layer, query, key] = score
    return scores


@pytest.fixture
def pair():
    """A tree whose edges lie within the second text in layer 1 and go across in layer 0."""
    scores = scores_of((1, 5, 6, 4), (1, 6, 3, 2), (0, 5, 1, 2), (0, 1, 7, 1.5), (2, 0, 5, 3), (2, 0, 6, 1))
    return attribution_tree(scores, PAIR), trace(scores, PAIR)


def lines(figure):
    """The links of a figure, by their ends: text of the hover -> trace."""
    return {t.hovertext: t for t in figure.data if t.mode == "lines+markers"}


def nodes(figure):
    return [t for t in figure.data if t.mode in ("markers", "markers+text")]


def texts(figure):
    found = [figure.layout.title.text, *figure.layout.xaxis.ticktext, *figure.layout.yaxis.ticktext]
    found += [note.text for note in figure.layout.annotations]
    for each in figure.data:
        found += [each.hovertext, *(each.text or ())]
    for frame in figure.frames:
        found += [frame.layout.title.text, *frame.layout.xaxis.ticktext]
    found += [step.label for slider in figure.layout.sliders for step in slider.steps]
    return [text for text in found if text]


def edge_of(hover):
    """(layer, query, key) as a hover text names them."""
    layer, query, key = re.match(r"layer (\d+)<br>.*?<b>(.*?)</b><br>.*?<b>(.*?)</b>", hover).groups()
    return int(layer), query, key


def test_every_edge_is_a_line_from_its_key_up_to_its_query(pair):
    t, _ = pair
    figure = plots.tree(t)
    wanted = {(e["layer"], e["query"], e["key"]) for *_, e in t.edges(data=True)}
    assert {edge_of(hover) for hover in lines(figure)} == wanted and len(lines(figure)) == t.number_of_edges()
    assert len(nodes(figure)) == len(t)
    at = dict(zip(PAIR[:7], figure.layout.xaxis.tickvals, strict=False))
    for hover, line in lines(figure).items():
        layer, query, key = edge_of(hover)
        assert line.x[0] == pytest.approx(at[key], abs=3.1) and line.x[-1] == pytest.approx(at[query], abs=0.1)
        assert line.y[-1] >= line.y[0] or line.y[0] == line.y[-1]
        assert line.y[0] == (3 if query == "[CLS]" and key == "stars" else line.y[0])
    heights = {d.hovertext.split("</b>")[0].removeprefix("<b>"): d.y[0] for d in nodes(figure)}
    assert heights == {"[CLS]": 4, "stars": 3, "did": 2, "sang": 2, "no": 1}


def test_colour_is_the_layer_and_width_the_share(pair):
    figure = plots.tree(pair[0])
    found = {edge_of(hover): line for hover, line in lines(figure).items()}
    wide, narrow = found[1, "stars", "did"], found[1, "did", "sang"]
    assert wide.line.width > narrow.line.width and wide.line.color == narrow.line.color
    assert len({line.line.color for line in found.values()}) == 3
    named = "".join(figure.layout.yaxis.ticktext)
    assert all(f"color:{found[edge].line.color}'>●</span> layer {edge[0]}" in named for edge in found)
    assert found[2, "[CLS]", "stars"].opacity < wide.opacity, "the last links are pale"


def test_negative_scores_are_dashed():
    scores = scores_of((1, 1, 2, 4), (2, 0, 1, -3), layers=3, tokens=4)
    figure = plots.tree(attribution_tree(scores, ("[CLS]", "a", "b", "c")))
    dashes = {edge_of(hover)[0]: line.line.dash for hover, line in lines(figure).items()}
    assert dashes == {1: "solid", 2: "dash"}


def test_all_words_stand_in_reading_order_and_those_of_the_tree_are_bold(pair):
    figure = plots.tree(pair[0])
    axis = figure.layout.xaxis
    assert [re.sub("<.*?>", "", text) for text in axis.ticktext] == list(PAIR)
    assert [text.startswith("<b>") for text in axis.ticktext] == [True, True, False, True, False, True, True, False]
    assert list(axis.tickvals) == sorted(axis.tickvals)
    steps = np.diff(axis.tickvals)
    ground = figure.layout.shapes[0]
    assert axis.tickvals[4] < ground.x0 < axis.tickvals[5] and steps[4] > steps.mean(), "the second text stands apart"
    assert [note.text for note in figure.layout.annotations] == ["first text", "second text"]


@pytest.mark.parametrize("count", [8, 20, 40, 128])
def test_words_never_overlap(count):
    names = [f"word{i}" * (1 + i % 2) for i in range(count)]
    words = placed.write(names)
    room = np.diff(words.x)
    if words.angle == 0:
        lengths = [len(name) * 0.62 * placed.SIZE for name in names]
        assert (room > (np.array(lengths[1:]) + lengths[:-1]) / 2).all()
    else:  # the distance between two slanted lines of text is more than a line is high
        assert (room * np.sin(np.deg2rad(-words.angle)) > placed.SIZE).all()
    assert words.width <= 1000 or words.angle == -90
    assert words.depth >= 0.7 * max(map(len, names)) * placed.SIZE * 0.6 or words.angle == 0


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_any_text_is_shown_as_it_is(variant, merge):
    a = sample(HARD, pieces=("costs",))
    options = dict(variant=variant, merge=merge, tau=0.1)
    t = attribution_tree(a, **options)
    for figure in (
        plots.tree(t, title="<b>$x$", note="$1 & <i>"),
        plots.tree_steps(trace(a, **options), t, title="<i>"),
    ):
        for text in texts(figure):
            ours = re.sub(r"</?(b|br|span)( style='[^']*')?>", "", text)
            assert "<" not in ours and "$" not in text and not re.search(r"&(?!lt;|gt;|amp;|#36;)", text), text
    drawn = plots.tree_strip(trace(a, **options), t)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FigureCanvasAgg(drawn).draw()  # no formula is read into a name, no character is warned of


def test_half_a_character_and_one_that_the_font_lacks_are_drawn_as_such():
    scores, names = scores_of((0, 1, 2, 4), (1, 0, 1, 3), layers=2, tokens=4), ("[CLS]", "\ud800a", "🤖", "c")
    drawn = plots.tree_strip(trace(scores, names), attribution_tree(scores, names))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FigureCanvasAgg(drawn).draw()
    said = [text.get_text() for axes in drawn.axes for text in axes.texts]
    assert said == ["\N{REPLACEMENT CHARACTER}a", "\N{REPLACEMENT CHARACTER}", "[CLS]"]


def test_hover_says_layer_tokens_score_and_share(pair):
    hover = next(h for h in lines(plots.tree(pair[0])) if edge_of(h) == (1, "did", "sang"))
    assert "score +2.00" in hover and "50% of the layer's largest" in hover
    top = next(d for d in nodes(plots.tree(pair[0])) if "top node" in d.hovertext)
    assert "+6.00" in top.hovertext and top.text == ("<b>stars</b>",)


def test_no_edge_is_said_in_the_figure():
    t = attribution_tree(np.zeros((3, 4, 4)), ("[CLS]", "a", "b", "c"))
    figure = plots.tree(t)
    assert "No edge passes" in figure.layout.title.text and len(figure.data) == 1
    assert "no score is positive" in " ".join(note.text.replace("<br>", " ") for note in figure.layout.annotations)
    steps = plots.tree_steps(trace(np.zeros((3, 4, 4))), t)
    assert "No edge passes" in steps.layout.title.text and "top node" in steps.frames[0].layout.title.text
    assert [d.visible for d in steps.data] == [False, False, True], "the top node goes, the terminal stays"
    assert len(plots.tree_strip([], t).axes) == 1


def there(figure, number):
    """The links of one picture of the animation."""
    seen = dict(zip(figure.frames[number].traces, figure.frames[number].data, strict=True))
    return {edge_of(t.hovertext) for n, t in enumerate(figure.data) if t.mode == "lines+markers" and seen[n].visible}


def test_the_animation_adds_layer_by_layer_and_ends_with_the_tree(pair):
    t, steps = pair
    figure = plots.tree_steps(steps, t)
    pictures = [there(figure, n) for n in range(len(figure.frames))]
    assert pictures[0] == set()
    assert pictures[1] == {(1, "stars", "did"), (1, "did", "sang")}
    assert pictures[2] - pictures[1] == {(0, "stars", "no"), (0, "no", "[SEP]")}
    assert pictures[3] == pictures[2] - {(0, "no", "[SEP]")}, "a [SEP] that is a leaf goes"
    assert pictures[-1] == {(e["layer"], e["query"], e["key"]) for *_, e in t.edges(data=True)}
    shown = {edge_of(d.hovertext) for d in figure.data if d.mode == "lines+markers" and d.visible}
    assert shown == pictures[-1], "at rest one sees the tree"
    assert list(figure.frames[-1].layout.xaxis.ticktext) == list(plots.tree(t).layout.xaxis.ticktext)
    bold = [sum(text.startswith("<b>") for text in frame.layout.xaxis.ticktext) for frame in figure.frames]
    assert bold == [1, 3, 5, 4, 5]
    assert all(dot.zorder > 0 for dot in nodes(figure)), "no arrow of a later picture covers a node"


def test_the_animation_needs_no_kernel(pair):
    figure = plots.tree_steps(pair[1], pair[0])
    names = [step.args[0][0] for step in figure.layout.sliders[0].steps]
    assert names == [frame.name for frame in figure.frames] and figure.layout.sliders[0].active == len(names) - 1
    assert [step.label for step in figure.layout.sliders[0].steps] == [
        "top node", "layer 1", "layer 0", "leaves", "layer 2",
    ]  # fmt: skip
    play, pause = figure.layout.updatemenus[0].buttons
    assert play.args[0] is None and list(pause.args[0]) == [None] and play.args[1]["frame"]["redraw"]
    go.Figure(figure.to_dict()).to_json()


def test_the_strip_has_a_panel_a_step_with_the_same_headings(pair):
    t, steps = pair
    figure, moving = plots.tree_strip(steps, t, columns=3), plots.tree_steps(steps, t)
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    titles = [axes.get_title(loc="left").replace("\n", " ") for axes in panels]
    assert titles == [re.sub("<.*?>", "", frame.layout.title.text) for frame in moving.frames]
    assert not plt.get_fignums(), "no figure is left open"
    named = [sorted(note.get_text() for note in axes.texts) for axes in panels]
    assert named == [["stars"], ["did", "sang"], ["[SEP]", "no"], [], ["[CLS]"]]


def test_words_that_stand_on_nothing_are_drawn_for_any_model():
    for a in (sample((), layers=(3,), heads=1), sample(layers=range(24), heads=2)):
        figure = plots.tree(attribution_tree(a))
        assert figure.layout.width >= 720 and len(figure.layout.yaxis.ticktext) == len(a.layers) + 1


def test_the_tree_stays_as_it_was(pair):
    t, steps = pair
    before = (dict(t.graph), dict(t.nodes(data=True)), list(t.edges(data=True)))
    plots.tree(t), plots.tree_steps(steps, t), plots.tree_strip(steps, t)
    assert before == (dict(t.graph), dict(t.nodes(data=True)), list(t.edges(data=True)))

"""The figures show the numbers they were given, in the right place, and any text as it is."""

from __future__ import annotations

import dataclasses
import html
import re
import subprocess
import sys
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from sample import HARD, sample

from helpers import _display, _links, _pruning_view, plots
from helpers.pruning import Curve, counts_of, gates_overall

ONE = {
    "head_maps": lambda a: plots.head_maps(a, a.layers[-1], 0),
    "layer_maps": lambda a: plots.layer_maps(a, a.layers[0]),
    "heads_overview": plots.heads_overview,
    "attention overview": lambda a: plots.heads_overview(a, "attention"),
    "sentence_links": plots.sentence_links,
    "links of a layer": lambda a: plots.sentence_links(a, k=3, layer=a.layers[-1]),
    "completeness": plots.completeness,
}
every = pytest.mark.parametrize("draw", ONE.values(), ids=ONE.keys())


def texts(figure: go.Figure) -> list[str]:
    """Every text of a figure that plotly reads as its kind of HTML."""
    layout = figure.layout
    found = [layout.title.text, *(note.text for note in layout.annotations)]
    found += [text for axis in figure.select_xaxes() for text in axis.ticktext or ()]
    found += [text for axis in figure.select_yaxes() for text in axis.ticktext or ()]
    for trace in figure.data:
        found += [trace.name, trace.hovertemplate, getattr(trace, "colorbar", None) and trace.colorbar.title.text]
        found += [trace.hovertext] if isinstance(trace.hovertext, str) else list(trace.hovertext or ())
    return [text for text in found if text]


# ---- one prediction -------------------------------------------------------------------------------------------------


@every
def test_any_text_is_shown_as_it_is(draw):
    a = sample(HARD, labels=("<i>no</i>", "$yes$ & <b>"))
    for text in texts(draw(a)):
        ours = re.sub(r"</?(b|br|span|extra)( style='[^']*')?>", "", text)
        assert "<" not in ours, f"a tag is left: {text}"
        assert "$" not in text, f"plotly would read a formula: {text}"
        assert not re.search(r"&(?!lt;|gt;|amp;|#36;)", text), f"a bare ampersand is left: {text}"


@every
def test_arrays_stay_as_they_were(draw):
    a = sample()
    before = dataclasses.asdict(a)
    for name in ("scores", "attention", "start", "gap", "steps"):
        getattr(a, name).flags.writeable = False
    draw(a)
    for name, value in dataclasses.asdict(a).items():
        np.testing.assert_array_equal(value, before[name])


@every
@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda x: x * 0, "every value is 0"),
        (lambda x: -np.abs(x), "no value is above 0"),
        (lambda x: np.where(np.arange(x.shape[-1]) == 1, np.nan, x), "not a number"),
        (lambda x: x * np.nan, "not a number"),
    ],
    ids=["zero", "negative", "some NaN", "NaN"],
)
def test_unusual_scores_are_drawn_and_named(draw, change, note):
    a = sample()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = draw(dataclasses.replace(a, scores=change(a.scores)))
        figure.to_json()
    if draw not in (ONE["attention overview"], ONE["completeness"]):
        assert note in figure.layout.title.text
    for trace in figure.data:
        if trace.type == "heatmap":
            assert np.isfinite([trace.zmin, trace.zmax]).all() and trace.zmin < trace.zmax


@every
@pytest.mark.parametrize(
    "a", [sample((), layers=(3,), heads=1), sample(layers=range(24), heads=16)], ids=["1x1", "24x16"]
)
def test_small_and_large_models_are_drawn(draw, a):
    figure = draw(a)
    assert figure.layout.width >= 560 and figure.layout.height > 0


@every
def test_the_title_says_what_is_explained(draw):
    if draw is ONE["attention overview"]:
        titles = {draw(sample(target=target)).layout.title.text for target in (0, 1)}
        assert len(titles) == 1 and "whatever class is explained" in titles.pop()
        return
    title = draw(sample()).layout.title.text
    assert "probability of “positive”, 0.98, the prediction" in title
    other = draw(sample(target=0, value=0.0201, probability=0.0201)).layout.title.text
    assert "probability of “negative”, 0.0201; predicted is “positive”" in other
    logit = draw(sample(output="logit", value=2.5)).layout.title.text
    assert "logit of “positive”, 2.5 (probability 0.98)" in logit
    assert "the raw output, 2.5" in draw(sample(output="raw", value=2.5, probability=np.nan)).layout.title.text


@every
def test_the_background_is_white_whatever_the_page(draw):
    figure = draw(sample())
    assert figure.layout.paper_bgcolor == "white" and figure.layout.font.color == _display.INK


def test_a_head_is_its_numbers_between_its_tokens():
    a = sample(("good", "good", "film"), layers=(2, 5), heads=3)
    figure = plots.head_maps(a, 5, 1)
    left, right = figure.data
    np.testing.assert_array_equal(left.z, a.attention[1, 1])
    np.testing.assert_array_equal(right.z, a.scores[1, 1])
    assert left.zmin == 0 and left.zmax == pytest.approx(a.attention[1, 1].max())
    assert right.zmin == -right.zmax and right.zmax == pytest.approx(np.abs(a.scores[1, 1]).max())
    assert right.colorscale[len(right.colorscale) // 2][1] == "#ffffff", "no attribution is white"
    assert left.colorbar.title.text == "attention (weight)"
    assert right.colorbar.title.text == "attribution (probability)"
    for axis in (figure.layout.xaxis, figure.layout.xaxis2, figure.layout.yaxis):
        assert axis.ticktext == ("[CLS]", "good", "good", "film", "[SEP]"), "a token that comes twice has two rows"
        assert axis.tickvals == tuple(range(5))
    assert figure.layout.yaxis.range == (4.5, -0.5), "reading order runs downwards"
    for trace in figure.data:
        for part in ("layer 5, head 1", "query: %{y}", "key: %{x}", "%{z:.3g}"):
            assert part in trace.hovertemplate
    captions = {note.text for note in figure.layout.annotations}
    assert captions == {"query (receives)", "key (is attended to)"}


def test_a_layer_is_the_mean_attention_and_the_summed_attribution():
    a = sample(layers=(2, 5))
    left, right = plots.layer_maps(a, 5).data
    np.testing.assert_allclose(left.z, a.attention[1].mean(0), rtol=1e-6)
    np.testing.assert_allclose(right.z, a.layer_scores()[1], rtol=1e-6)


@pytest.mark.parametrize(
    "draw", [plots.layer_maps, lambda a, n: plots.head_maps(a, n, 0), lambda a, n: plots.sentence_links(a, layer=n)]
)
@pytest.mark.parametrize("layer", [0, -1, 2.5, True, "2"])
def test_a_layer_that_is_not_there_is_named_with_those_that_are(draw, layer):
    with pytest.raises(ValueError, match=r"no layer .*: it holds 2, 5"):
        draw(sample(layers=(2, 5)), layer)


@pytest.mark.parametrize("head", [2, -1, 0.0, True, None])
def test_a_head_that_is_not_there_is_named_with_those_that_are(head):
    with pytest.raises(ValueError, match="no head .* 0 to 1"):
        plots.head_maps(sample(), 0, head)


def test_numpy_numbers_are_numbers():
    a = sample()
    plots.head_maps(a, np.int64(1), np.int64(1))
    plots.sentence_links(a, k=np.int64(2))


def test_labels_show_what_was_written():
    a = sample(("Great", "🤖", "unlikely"), pieces=("unlikely",))
    assert _display.labels(a) == ["[CLS]", "Great", "🤖 ([UNK])", "un", "##likely", "[SEP]"]
    long = sample(("a" * 60,))
    assert _display.labels(long)[1] == "a" * 17 + "…"


def test_the_overview_holds_every_head_in_its_place():
    a = sample(layers=(1, 4), heads=3)
    figure = plots.heads_overview(a)
    (trace,) = figure.data
    n = len(a.tokens)
    rows, columns = figure.layout.yaxis, figure.layout.xaxis
    places = {
        text: int(value)
        for axis in (rows, columns)
        for text, value in zip(axis.ticktext, axis.tickvals, strict=True)
        if text
    }
    used = np.zeros(np.shape(trace.z), bool)
    for i, layer in enumerate(a.layers):
        for head in range(3):
            y, x = places[f"layer {layer}, query: [CLS]"], places[f"head {head}, key: [CLS]"]
            block = np.s_[y : y + n, x : x + n]
            np.testing.assert_array_equal(trace.z[block], a.scores[i, head])
            np.testing.assert_allclose(trace.customdata[block], a.scores[i, head].sum(), rtol=1e-4)
            used[block] = True
    assert used.sum() == a.scores.size and np.isnan(trace.z[~used]).all(), "only gaps lie between the heads"
    assert rows.range[0] > rows.range[1] and places["layer 1, query: [CLS]"] < places["layer 4, query: [CLS]"]
    notes = [note.text for note in figure.layout.annotations]
    assert notes == ["layer 1", "layer 4", "head 0", "head 1", "head 2"]


def test_the_overview_says_where_its_colours_end():
    scores = np.zeros((1, 1, 30, 30), np.float32)
    scores[:] = np.linspace(-0.01, 0.01, 900).reshape(30, 30)
    scores[0, 0, 3, 4] = -0.5
    a = dataclasses.replace(sample(("x",) * 28, layers=(0,), heads=1), scores=scores)
    figure = plots.heads_overview(a)
    assert figure.data[0].zmax == -figure.data[0].zmin == pytest.approx(0.01, rel=0.05)
    assert "colours end at ±0.01, the strongest score is −0.500" in figure.layout.title.text
    even = plots.heads_overview(dataclasses.replace(a, scores=np.sign(scores)))
    assert even.data[0].zmax == 1 and "colours end" not in even.layout.title.text
    attention = plots.heads_overview(a, "attention").data[0]
    assert attention.zmin == 0 and attention.zmax == pytest.approx(a.attention.max())
    with pytest.raises(ValueError, match="'scores' or 'attention'"):
        plots.heads_overview(a, "values")


# ---- links ----------------------------------------------------------------------------------------------------------


def crafted(*links, words=("a", "slow", "but", "warm", "film"), layers=(2, 5)):
    """An Attribution whose only scores are the given (layer index, head, query, key, score)."""
    a = sample(words, layers=layers)
    scores = np.zeros_like(a.scores)
    for i, head, query, key, score in links:
        scores[i, head, query, key] = score
    return dataclasses.replace(a, scores=scores)


def test_links_run_from_key_to_query_above_or_below_by_their_sign():
    a = crafted((0, 0, 0, 4, 0.4), (1, 1, 5, 2, -0.2), (1, 0, 3, 3, 0.1))
    figure = plots.sentence_links(a)
    words = {note.text: note.x for note in figure.layout.annotations if note.y == 0}
    assert [trace.name.split()[0] for trace in reversed(figure.data)] == ["+0.400", "−0.200", "+0.100"]
    for trace, (query, key, side) in zip(
        reversed(figure.data), [("[CLS]", "warm", 1), ("film", "slow", -1), ("but", "but", 1)], strict=True
    ):
        assert abs(trace.x[0] - words[key]) < 15 and abs(trace.x[-1] - words[query]) < 15
        assert (np.sign(trace.y) == side).all()
        size = np.asarray(trace.marker.size)
        assert size[-1] > 0 and not size[:-1].any() and trace.marker.angleref == "previous", "the arrow is at the query"
        assert f"query (receives): {query}<br>key (is attended to): {key}" in trace.hovertext
    strong, weak = figure.data[-1], figure.data[0]
    assert strong.line.width > weak.line.width and strong.opacity == 1 > weak.opacity
    assert strong.line.color != figure.data[1].line.color
    assert "layer 2, head 0" in strong.hovertext and "+0.400 (probability)" in strong.hovertext
    notes = [note.text for note in figure.layout.annotations]
    assert "raises the probability of “positive”" in notes and "lowers the probability of “positive”" in notes


def test_the_strongest_links_are_those_of_the_table():
    a = sample()
    a = dataclasses.replace(a, scores=np.abs(a.scores))
    table = a.top_links(6)
    links = _links.strongest(a, 6)
    for column in ("layer", "head", "query", "key"):
        assert [getattr(link, column) for link in links] == list(table[column])
    np.testing.assert_allclose([link.score for link in links], table["score"])


def test_k_and_layer_choose_the_links():
    a = sample(layers=(2, 5))
    assert len(plots.sentence_links(a, k=5).data) == 5
    chosen = _links.strongest(a, 4, 5)
    assert {link.layer for link in chosen} == {5}
    assert abs(chosen[0].score) == pytest.approx(np.abs(a.scores[1]).max())
    assert "4 strongest links of layer 5" in plots.sentence_links(a, k=4, layer=5).layout.title.text
    few = crafted((0, 0, 1, 2, 0.4))
    assert "The strongest link over" in plots.sentence_links(few, k=8).layout.title.text
    assert "No link of layer 5" in plots.sentence_links(few, layer=5).layout.title.text
    for k in (0, -1, 1.5, True, "3"):
        with pytest.raises(ValueError, match="at least 1"):
            plots.sentence_links(a, k=k)


def test_equal_scores_come_in_a_fixed_order():
    a = crafted(*[(i, h, 1, 2, 0.5) for i in range(2) for h in range(2)])
    assert [(link.layer, link.head) for link in _links.strongest(a, 4)] == [(2, 0), (2, 1), (5, 0), (5, 1)]


def test_links_between_the_same_tokens_nest_and_never_cross():
    a = crafted(*[(i, h, 1, 4, 0.5 - 0.1 * i - 0.05 * h) for i in range(2) for h in range(2)])
    links = _links.strongest(a, 4)
    curves = _links.arcs(links, _links.lay_out(a, links))
    for outer, inner in zip(curves[:-1], curves[1:], strict=True):
        assert outer[:, 0].min() < inner[:, 0].min() and outer[:, 0].max() > inner[:, 0].max()
        across = np.linspace(inner[:, 0].min(), inner[:, 0].max(), 50)
        heights = [np.interp(across, *curve[np.argsort(curve[:, 0])].T) for curve in (outer, inner)]
        assert (heights[0] > heights[1]).all()


@pytest.mark.parametrize("count", [0, 6, 18, 38])
@pytest.mark.parametrize("word", ["film", "overwhelming", "映画館"])
def test_words_never_overlap(count, word):
    a = sample((word,) * count)
    links = _links.strongest(a, 8)
    line = _links.lay_out(a, links)
    lengths = np.array([_display.text_width(name, line.size) for name in _display.labels(a)])
    room = np.full(len(lengths), line.size) if line.turned else lengths
    assert (np.diff(line.centres) >= (room[1:] + room[:-1]) / 2).all()
    assert line.centres[0] > 0 and line.centres[-1] < line.width
    assert line.turned or count < 38, "a long sentence stands upright"
    assert not line.turned or count > 6, "a short one does not"
    turned = {note.textangle for note in plots.sentence_links(a).layout.annotations if note.y == 0}
    assert turned == ({-90} if line.turned else {0})


def test_a_token_where_many_links_end_gets_room_for_them():
    a = crafted(*[(i, h, 0, key, 0.1) for i in range(2) for h in range(2) for key in (1, 2, 3, 4)])
    links = _links.strongest(a, 16)
    ends = sorted(curve[-1, 0] for curve in _links.arcs(links, _links.lay_out(a, links)))
    assert np.diff(ends).min() > 10


def test_pieces_of_a_word_share_a_ground():
    figure = plots.sentence_links(sample(("so", "unlikely"), pieces=("unlikely",)))
    (ground,) = figure.layout.shapes
    words = {note.text: note.x for note in figure.layout.annotations if note.y == 0}
    assert words["so"] < ground.x0 < words["un"] < words["##likely"] < ground.x1 < words["[SEP]"]


# ---- completeness and data sets -------------------------------------------------------------------------------------


def test_completeness_shows_both_sides_and_their_gap():
    a = sample(layers=(1, 4, 6), value=0.9, start=np.array([0.4, 0.9, 0.1]), gap=np.array([0.05, 0.001, 0.0]))
    change, total, gap = plots.completeness(a).data
    assert list(change.x) == ["1", "4", "6"]
    np.testing.assert_allclose(change.y, [0.5, 0.0, 0.8])
    np.testing.assert_allclose(total.y, [0.55, 0.001, 0.8])
    np.testing.assert_allclose(gap.y, [0.1, np.nan, 1e-9])
    assert change.name == "F(A) - F(0)" and "6 points (gauss)" in change.hovertext[0]
    assert plots.completeness(sample(baseline="mean")).data[0].name == "F(A) - F(mean)"


def test_completeness_marks_what_is_allowed():
    figure = plots.completeness(sample())
    (line,), (note,) = figure.layout.shapes, figure.layout.annotations
    assert line.yref == note.yref == "y2" and line.y0 == line.y1 == 10**note.y == 0.01
    low, high = figure.layout.yaxis2.range
    assert low < note.y < high and note.text.startswith("1 %")
    assert figure.layout.width >= 800, "the toolbar has room beside the title"


def test_share_of_mass_by_hand():
    values = np.array([[6.0, -2.0], [1.0, -1.0]])
    np.testing.assert_allclose(plots.share_of_mass(values, [0, 0.25, 0.5, 1]), [0, 0.6, 0.8, 1])
    np.testing.assert_allclose(plots.share_of_mass(np.ones(10), [0.15]), [0.15])
    for nothing in (np.zeros(4), np.full(4, np.nan)):
        with pytest.raises(ValueError, match="no mass"):
            plots.share_of_mass(nothing, [0.5])


def test_concentration_draws_the_median_of_the_examples():
    sharp, flat = np.r_[np.full(10, 10.0), np.zeros(990)], np.ones(1000)
    figure = plots.concentration({"attention": [flat] * 3, "attribution": [sharp, sharp, flat]})
    (axes,) = figure.axes
    lines = {line.get_label().split(":")[0]: line for line in axes.lines}
    np.testing.assert_allclose(lines["attention"].get_ydata(), lines["attention"].get_xdata())
    at = np.searchsorted(lines["attribution"].get_xdata(), 0.01)
    assert lines["attribution"].get_ydata()[at] == pytest.approx(1)
    assert lines["attribution"].get_label() == "attribution: 1 % of links hold 100 %"
    assert axes.get_title(loc="left").startswith("3 examples")
    assert [text.get_text() for text in figure.legends[0].texts][-1] == "equal shares"
    for nothing in ({}, {"attention": []}):
        with pytest.raises(ValueError, match="nothing to draw"):
            plots.concentration(nothing)


def test_concentration_takes_a_title_and_colours():
    values = {name: [np.arange(1.0, 9)] for name in ("attention", "control", "other")}
    (axes,) = plots.concentration(values, title="As pooled", colors={"control": "#123456"}).axes
    assert axes.get_title(loc="left") == "As pooled (1 examples: median and middle 80 %)"
    drawn = {line.get_label().split(":")[0]: line.get_color() for line in axes.lines}
    (usual,) = plots.concentration({"attention": values["attention"]}).axes
    assert drawn["control"] == "#123456" and drawn["attention"] == usual.lines[0].get_color()
    assert len({drawn[name] for name in values}) == 3


def test_convergence_draws_one_line_a_rule():
    rows = [
        dict(rule=rule, steps=steps, error=error * (1 + example) / steps, example=example, layer=layer)
        for rule, error in (("gauss", 0.0), ("right", 1.0))
        for steps in (4, 8, 16)
        for example in range(3)
        for layer in range(2)
    ]
    table = pd.DataFrame(rows)
    before = table.copy()
    figure = plots.convergence(table)
    pd.testing.assert_frame_equal(table, before)
    (axes,) = figure.axes
    assert axes.get_xscale() == axes.get_yscale() == "log"
    drawn = [line for line in axes.lines if list(line.get_xdata()) == [4, 8, 16]]
    np.testing.assert_allclose(drawn[0].get_ydata(), 2 / np.array([4, 8, 16]), err_msg="right comes first: its median")
    assert (drawn[1].get_ydata() > 0).all(), "an error of 0 has a place on the axis"
    assert [text.get_text() for text in axes.get_legend().texts] == ["right", "gauss"]
    assert "3 examples x 2 layers" in axes.get_title(loc="left")
    with pytest.raises(ValueError, match="no column error"):
        plots.convergence(table.drop(columns="error"))


def test_the_cover_holds_the_strongest_head_and_plain_text():
    a = sample(HARD, layers=(2, 5))
    best = _links.strongest(a, 1)[0]
    with warnings.catch_warnings():
        warnings.filterwarnings("error")
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure = plots.cover(a)
        figure.canvas.draw()
    maps = [
        mesh
        for axes in figure.axes
        for mesh in axes.collections
        if mesh.get_array() is not None and mesh.get_array().ndim == 2
    ]
    shown = [mesh.get_array() for mesh in maps if mesh.get_array().shape == a.scores.shape[2:]]
    where = a.layers.index(best.layer), best.head
    np.testing.assert_array_equal(shown[0], a.attention[where])
    np.testing.assert_array_equal(shown[1], a.scores[where])
    written = [text for axes in figure.axes for text in axes.findobj(plt.Text) if text.get_text() in ("$x_1$", "$5")]
    assert len(written) >= 6 and not any(text.get_parse_math() for text in written)
    assert any(f"layer {best.layer}, head {best.head}" in text.get_text() for text in figure.texts)
    assert "layer 2, head 1" in " ".join(text.get_text() for text in plots.cover(a, layer=2, head=1).texts)


@pytest.mark.parametrize("count", [0, 1, 20, 40])
def test_the_cover_of_any_length_and_of_nothing(count):
    a = sample(("overwhelming",) * count)
    plots.cover(a).canvas.draw()
    nothing = dataclasses.replace(a, scores=a.scores * 0)
    plots.cover(nothing, layer=1, head=1).canvas.draw()
    with pytest.raises(ValueError, match="name a layer and a head"):
        plots.cover(nothing)


# ---- head pruning ---------------------------------------------------------------------------------------------------


def pruned(*, layers=3, heads=4, settings=5, examples=30, names=("attribution", "Taylor", "random"), seed=0):
    """Curves, importances and gates of made-up scores, as the notebook on head pruning has them."""
    lots = np.random.default_rng(seed)
    shares = np.linspace(0, 1, settings)
    curves = {name: Curve(name, shares, lots.random((settings, examples)) > shares[:, None] / 2) for name in names}
    importances = {name: lots.random((layers, heads)) for name in names}
    counts = counts_of(shares, layers * heads)
    return curves, importances, {name: gates_overall(found, counts) for name, found in importances.items()}


def test_pruning_curves_draw_every_task_and_score_with_its_interval():
    tasks = {"sst2": pruned()[0], "<m>$nli": pruned(seed=1)[0], "rte": pruned(seed=2)[0]}
    figure = plots.pruning_curves(tasks)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [f"{task}: 30 examples" for task in tasks]
    for axes, curves in zip(figure.axes, tasks.values(), strict=True):
        drawn = {line.get_label(): line for line in axes.lines}
        assert len(axes.collections) == len(curves), "a band a curve"
        for band, (name, curve) in zip(axes.collections, curves.items(), strict=True):
            np.testing.assert_allclose(drawn[name].get_ydata(), curve.accuracy)
            np.testing.assert_allclose(drawn[name].get_xdata(), curve.shares)
            assert band.get_datalim(axes.transData).y1 == pytest.approx(curve.interval()[1].max())
        start = drawn["_all heads"].get_ydata()
        assert set(start) == {curves["random"].accuracy[0]} and drawn["random"].get_linestyle() == "--"
        assert not axes._left_title.get_parse_math()
    assert [text.get_text() for text in figure.legends[0].texts] == ["attribution", "Taylor", "random"]
    figure.canvas.draw()
    assert plt.get_fignums() == []
    for nothing in ({}, {"sst2": {}}):
        with pytest.raises(ValueError, match="nothing to draw"):
            plots.pruning_curves(nothing)


def test_a_score_has_the_same_colour_in_every_figure():
    curves, importances, gates = pruned(names=("attribution (sum)", "Taylor", "my own", "another"))
    looks = _pruning_view.looks(list(curves))
    assert looks["attribution (sum)"][0] == _display.RAISES and looks["Taylor"][0] == "#7b5ea7"
    assert len({color for color, _ in looks.values()}) == len({mark for _, mark in looks.values()}) == 4
    drawn = {line.get_label(): line.get_color() for line in plots.pruning_curves({"a": curves}).axes[0].lines}
    state = plots.pruning_state(curves, importances["my own"], gates["my own"][1], score="my own", setting=1)
    lines = {
        trace.name: trace.line.color for trace in state.data if trace.showlegend is None and trace.type == "scatter"
    }
    titles = {axes.get_title(loc="left"): axes for axes in plots.head_grids({"a": importances}).axes}
    for name, (color, _) in looks.items():
        assert drawn[name] == lines[name] == color
        assert titles[name]._left_title.get_color() == color
    assert state.layout.coloraxis.colorscale[-1][1] == looks["my own"][0]


def test_head_grids_are_shares_of_the_largest_importance():
    found = {
        "attribution": np.array([[0.2, 0.4], [0.1, 0.0]]),
        "accuracy difference": np.array([[-0.1, 0.0], [0.05, 0.1]]),
    }
    figure = plots.head_grids({"sst2": found, "$rte": {name: values / 7 for name, values in found.items()}})
    drawn = [axes.collections[0].get_array() for axes in figure.axes if axes.get_label() != "<colorbar>"]
    for values in drawn[::2]:
        np.testing.assert_allclose(values.reshape(2, 2), [[0.5, 1], [0.25, 0]])
    for values in drawn[1::2]:
        np.testing.assert_allclose(values.reshape(2, 2), [[0, 0], [0.5, 1]], err_msg="below 0 is drawn as 0")
    figure.canvas.draw()
    plots.head_grids({"a": {"random": np.zeros((1, 1))}}).canvas.draw()
    for wrong in ({}, {"a": {}}, {"a": found, "b": {"attribution": found["attribution"]}}):
        with pytest.raises(ValueError, match="nothing to draw"):
            plots.head_grids(wrong)


def test_the_state_of_pruning_marks_the_setting_and_crosses_out_what_is_gone():
    curves, importances, gates = pruned()
    figure = plots.pruning_state(
        curves, importances["Taylor"], gates["Taylor"][2], score="Taylor", setting=2, note="<b>&$5</b>\nmore"
    )
    named = {trace.name: trace for trace in figure.data if trace.name}
    for name, curve in curves.items():
        np.testing.assert_allclose(named[name].y, curve.accuracy)
    assert named["Taylor"].line.width > named["random"].line.width
    marker, grid, *crosses = figure.data[3:]
    assert (marker.x[0], marker.y[0]) == (0.5, curves["Taylor"].accuracy[2])
    low, high = (bound[2] for bound in curves["Taylor"].interval())
    assert marker.error_y.array[0] == pytest.approx((high - low) / 2, rel=0.15)
    np.testing.assert_array_equal(grid.z, importances["Taylor"])
    gone = {(int(i), int(j)) for i, j in zip(*np.nonzero(gates["Taylor"][2] == 0), strict=True)}
    assert len(gone) == 6
    for trace in crosses:
        assert set(zip(trace.y, trace.x, strict=True)) == gone and trace.xaxis == "x2"
    assert grid.hovertext[0][0].startswith(f"layer 0, head 0: {'off' if (0, 0) in gone else 'on'}<br>Taylor: ")
    told = figure.layout.title.text
    assert f"6 of 12 heads off by Taylor: accuracy {curves['Taylor'].accuracy[2]:.3f} instead of" in told
    assert "&lt;b&gt;&amp;&#36;5&lt;/b&gt;<br>more" in told


def test_the_heads_go_in_the_order_that_the_figure_tells():
    curves, importances, gates = pruned(names=("attribution",))
    figure = plots.pruning_state(
        curves, importances["attribution"], gates["attribution"][2], score="attribution", setting=2
    )
    hover = np.array(figure.data[2].hovertext)
    places = np.array([[int(re.search(r"number (\d+) to go of 12", cell)[1]) for cell in row] for row in hover])
    np.testing.assert_array_equal(places <= 6, gates["attribution"][2] == 0)


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (24, 16), (6, 12)])
def test_the_state_of_pruning_of_any_model(layers, heads):
    curves, importances, gates = pruned(layers=layers, heads=heads, names=("attribution",))
    for setting in (0, 4):
        state = gates["attribution"][setting]
        figure = plots.pruning_state(curves, importances["attribution"], state, score="attribution", setting=setting)
        assert len(figure.data[-1].x) == setting / 4 * layers * heads
        assert ("All heads on" in figure.layout.title.text) == (setting == 0)
        across, down = figure.layout.xaxis2.domain, figure.layout.yaxis2.domain
        assert across[0] > figure.layout.xaxis.domain[1] and 0 <= down[0] < down[1] <= 1


def test_a_state_that_is_not_there_is_refused():
    curves, importances, gates = pruned()
    heads, on = importances["random"], gates["random"][0]
    with pytest.raises(ValueError, match="attribution, Taylor, random"):
        plots.pruning_state(curves, heads, on, score="attention", setting=0)
    with pytest.raises(ValueError, match="0 to 4"):
        plots.pruning_state(curves, heads, on, score="random", setting=5)
    with pytest.raises(ValueError, match=r"\[layer, head\]"):
        plots.pruning_state(curves, heads, on[None], score="random", setting=0)


def test_nothing_is_shown_or_left_open():
    a = sample()
    plots.cover(a)
    plots.concentration({"attention": [a.attention]})
    plots.convergence(pd.DataFrame(dict(rule=["gauss"], steps=[4], error=[0.1])))
    assert plt.get_fignums() == []


def test_figures_need_no_torch():
    code = "import sys; import helpers.plots; assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_literal_text_comes_back_when_read_as_html():
    for word in HARD:
        assert html.unescape(_display.literal(word)) == word

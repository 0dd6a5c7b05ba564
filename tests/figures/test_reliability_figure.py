from __future__ import annotations

import matplotlib
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from orthograd.calibration import Evaluation, ReliabilityCurve, average
from orthograd.figures.reliability import draw_confidences, draw_reliability, reliability_figure
from orthograd.figures.style import save_figure, shortened, told_apart


def curve(*, samples: int = 400, classes: int = 10, sharpness: float = 2.0, seed: int = 0, bins: int = 10):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator).flatten()
    evaluation = Evaluation(bins=bins)
    evaluation.update(sharpness * logits, labels)
    return evaluation.reliability()


def with_bins(accuracy: list[float], confidence: list[float], share: list[float]) -> ReliabilityCurve:
    """A curve made by hand; NaN is an empty bin."""
    right = torch.tensor(accuracy, dtype=torch.float64)
    return ReliabilityCurve(
        share=torch.tensor(share, dtype=torch.float64),
        confidence=torch.tensor(confidence, dtype=torch.float64),
        accuracy=right,
        low=right - 0.1,
        high=right + 0.1,
        band="a band",
        top1_accuracy=60.0,
        mean_confidence=0.7,
        ece=0.1684,
        ece_by_chance=0.0091,
        ece_by_chance_limit=0.0123,
        samples=100,
    )


NAN = float("nan")
BY_HAND = with_bins([NAN, 0.5, 0.4, 0.9], [NAN, 0.4, 0.6, 0.95], [0.0, 0.1, 0.3, 0.6])


def bars(axes, label):
    (group,) = [group for group in axes.containers if group.get_label() == label]
    return [tuple(round(float(x), 12) for x in (b.get_x(), b.get_width(), b.get_y(), b.get_height())) for b in group]


def drawn(given):
    axes = Figure().add_subplot()
    draw_reliability(axes, given)
    return axes


def texts_of(figure):
    """Every text that is seen, with the box it fills on the page."""
    figure.set_dpi(200)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    found = [text for text in figure.findobj(matplotlib.text.Text) if text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in found]


def test_bars_stand_on_their_bins_as_high_as_the_accuracy_and_empty_bins_are_not_drawn():
    assert bars(drawn(BY_HAND), "accuracy of a bin") == [
        (0.25, 0.25, 0.0, 0.5),
        (0.5, 0.25, 0.0, 0.4),
        (0.75, 0.25, 0.0, 0.9),
    ]


def test_gaps_reach_from_accuracy_to_confidence_and_look_different_on_either_side():
    axes = drawn(BY_HAND)
    assert bars(axes, "overconfident") == [(0.5, 0.25, 0.4, 0.2), (0.75, 0.25, 0.9, 0.05)]
    assert bars(axes, "underconfident") == [(0.25, 0.25, 0.5, -0.1)]
    over, under = (next(iter(group)) for group in axes.containers[1:])
    assert over.get_hatch() != under.get_hatch()
    assert over.get_edgecolor() != under.get_edgecolor()


def test_points_and_band_are_those_of_the_curve():
    axes = drawn(BY_HAND)
    (band,) = [lines for lines in axes.collections if lines.get_label() == "a band"]
    ends = torch.tensor([[point[1] for point in segment] for segment in band.get_segments()])
    torch.testing.assert_close(ends, torch.tensor([[0.4, 0.6], [0.3, 0.5], [0.8, 1.0]]).double())
    diagonal, points = axes.lines
    assert [list(values) for values in diagonal.get_data()] == [[0, 1], [0, 1]]
    assert points.get_xdata().tolist() == [0.4, 0.6, 0.95]
    assert points.get_ydata().tolist() == [0.5, 0.4, 0.9]


@pytest.mark.parametrize("sharpness", [0.4, 1.0, 2.5])
def test_every_filled_bin_of_a_real_curve_is_drawn(sharpness):
    given = curve(sharpness=sharpness)
    filled = given.share > 0
    heights = [height for *_, height in bars(drawn(given), "accuracy of a bin")]
    assert heights == pytest.approx(given.accuracy[filled].tolist(), abs=1e-12)
    assert len(heights) == int(filled.sum()) < len(filled)


def test_numbers_stand_in_a_corner():
    (text,) = [text.get_text() for text in drawn(BY_HAND).texts]
    assert text.splitlines() == [
        "ECE 0.168",
        "by chance 0.009 (95%: 0.012)",
        "accuracy 60.0%",
        "confidence 70.0%",
    ]


def test_numbers_move_out_of_the_way_of_an_underconfident_model():
    (over,) = drawn(curve(sharpness=2.5)).texts
    (under,) = drawn(curve(sharpness=0.4, samples=4000)).texts
    assert over.get_position() == (0.03, 0.97)
    assert under.get_position() == (0.97, 0.03)


def test_histogram_shows_shares_mean_confidence_and_accuracy():
    axes = Figure().add_subplot()
    draw_confidences(axes, BY_HAND)
    assert [height for *_, height in bars(axes, "share of the samples")] == pytest.approx([10, 30, 60])
    marks = {line.get_label(): line.get_xdata()[0] for line in axes.lines}
    assert marks == {"mean confidence": 0.7, "overall accuracy": 0.6}


def test_a_sequence_of_runs_is_averaged():
    runs = [curve(seed=seed) for seed in range(5)]
    mean = average(runs)
    diagram = reliability_figure({"five seeds": runs}).axes[0]
    heights = [height for *_, height in bars(diagram, "accuracy of a bin")]
    assert heights == pytest.approx(mean.accuracy[mean.share > 0].tolist(), abs=1e-12)


def test_panels_wrap_after_four_and_share_their_axes():
    figure = reliability_figure({f"model {i}": curve(sharpness=1 + i) for i in range(6)}, title="Six")
    diagrams, histograms = figure.axes[::2], figure.axes[1::2]
    assert [axes.get_title() for axes in diagrams] == [f"model {i}" for i in range(6)]
    assert len({round(axes.get_position().y0, 6) for axes in diagrams}) == 2
    assert {axes.get_ylim() for axes in diagrams} == {(0.0, 1.0)}
    assert len({axes.get_ylim() for axes in histograms}) == 1
    for diagram, histogram in zip(diagrams, histograms, strict=True):
        assert diagram.get_position().x0 == histogram.get_position().x0
        size = diagram.get_position().size * figure.get_size_inches()
        assert size[0] == pytest.approx(size[1])


@pytest.mark.parametrize(("panels", "bins"), [(1, 10), (2, 20), (3, 10), (5, 2)])
def test_no_text_overlaps_another_or_leaves_the_page(panels, bins):
    name = "runs/resnet18_$lr$_0.1_with_a_very_long_name_seed{}_and_more_after_the_number.npz"
    curves = {name.format(i): [curve(sharpness=0.4 + i, bins=bins, seed=s) for s in range(12)] for i in range(panels)}
    figure = reliability_figure(curves, title="a title that is much too long for this page " * 4)
    found = texts_of(figure)
    width, height = figure.bbox.width, figure.bbox.height
    for index, (text, box) in enumerate(found):
        assert box.x0 >= -0.5, text
        assert box.x1 <= width + 0.5, text
        assert box.y0 >= -0.5, text
        assert box.y1 <= height + 0.5, text
        for other, its_box in found[index + 1 :]:
            assert not box.overlaps(its_box), (text, other)


def test_long_names_are_told_apart():
    names = [f"runs/cifar10/resnet18/a-long-folder/seed-{seed}/some-more-words/test-predictions.npz" for seed in (3, 4)]
    shown = told_apart(names, 8, inches=1.95)
    assert "seed-3" in shown[0]
    assert "seed-4" in shown[1]
    assert told_apart(["SGD", "⊥Grad"], 8, inches=1.95) == ["SGD", "⊥Grad"]
    assert told_apart(["x" * 400, "x" * 401], 8, inches=1)[0].startswith("…")
    assert shortened("x" * 400, 8, inches=0.001) == "x…"


def test_a_figure_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one curve to draw, got none"):
        reliability_figure({})


def test_png_is_the_same_bytes_twice_and_of_the_size_it_says(tmp_path):
    for name in ("first.png", "second.png"):
        save_figure(reliability_figure({"SGD": curve(), "⊥Grad": curve(sharpness=1.0)}), tmp_path / name)
    assert (tmp_path / "first.png").read_bytes() == (tmp_path / "second.png").read_bytes()
    figure = reliability_figure({"SGD": curve(), "⊥Grad": curve(sharpness=1.0)})
    with Image.open(tmp_path / "first.png") as image:
        image.load()
        assert image.size == tuple(int(200 * inches) for inches in figure.get_size_inches())
        assert len(image.convert("L").getcolors()) > 50  # drawn, and not blank
        assert not {"Software", "Creation Time"}.intersection(image.info)


@pytest.mark.parametrize(("suffix", "magic"), [(".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_vector_formats_are_the_same_bytes_twice(tmp_path, suffix, magic):
    paths = [tmp_path / f"{number}{suffix}" for number in (1, 2)]
    for path in paths:
        save_figure(reliability_figure({"SGD": curve()}), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].read_bytes().startswith(magic)


def test_the_users_settings_neither_matter_nor_change(tmp_path):
    save_figure(reliability_figure({"SGD": curve()}), tmp_path / "plain.png")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "black"}):
        before = dict(matplotlib.rcParams)
        save_figure(reliability_figure({"SGD": curve()}), tmp_path / "odd.png")
        assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "plain.png").read_bytes() == (tmp_path / "odd.png").read_bytes()

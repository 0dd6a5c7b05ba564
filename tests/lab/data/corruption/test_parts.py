"""The parts of the corruptions against independent implementations and cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from orthograd.lab.data.corruption.blur import disk
from orthograd.lab.data.corruption.digital import sampled, tilt
from orthograd.lab.data.corruption.filters import filtered, gaussian, streaked, zoom_matrix
from orthograd.lab.data.corruption.noise import Draws
from orthograd.lab.data.corruption.spatter import canny, chamfer_distance
from orthograd.lab.data.corruption.weather import plasma

CPU = torch.device("cpu")


@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.0, 6.4])
@pytest.mark.parametrize(("truncate", "edge"), [(4.0, "nearest"), (3.0, "reflect")])
def test_gaussian_filter_is_that_of_scipy(sigma, truncate, edge):
    planes = torch.rand(2, 16, 21, dtype=torch.float64)
    expected = [ndimage.gaussian_filter(plane, sigma, mode=edge, truncate=truncate) for plane in planes.numpy()]
    blurred = gaussian(planes, sigma, truncate=truncate, edge=edge)
    np.testing.assert_allclose(blurred, expected, atol=1e-12)


@pytest.mark.parametrize("size", [16, 32, 33])
@pytest.mark.parametrize("factor", [1.0, 1.01, 1.06, 1.15, 1.25, 1.75, 2.25])
def test_zoom_is_that_of_scipy(size, factor):
    plane = torch.rand(size, size, dtype=torch.float64)
    kept = int(np.ceil(size / factor))
    first = (size - kept) // 2
    large = ndimage.zoom(plane[first : first + kept, first : first + kept].numpy(), factor, order=1)
    trim = (len(large) - size) // 2
    matrix = zoom_matrix(size, factor)
    expected = large[trim : trim + size, trim : trim + size]
    np.testing.assert_allclose(filtered(plane, matrix, matrix), expected, atol=1e-12)


@pytest.mark.parametrize(("repeat_border", "mode"), [(True, "reflect"), (False, "mirror")])
def test_sampling_is_that_of_scipy(repeat_border, mode):
    images = torch.rand(2, 1, 12, 15)
    rows, columns = torch.rand(2, 2, 12, 15) * 30 - 8
    result = sampled(images, columns, rows, repeat_border=repeat_border)
    expected = [
        ndimage.map_coordinates(image[0].numpy(), [row.numpy(), column.numpy()], order=1, mode=mode)
        for image, row, column in zip(images, rows, columns, strict=True)
    ]
    np.testing.assert_allclose(result[:, 0], expected, atol=1e-5)


def test_a_tilt_reads_three_corners_from_where_they_were():
    def draws():
        return Draws("tilt", block=50, used=50, device=CPU)

    columns, rows = tilt(torch.Size((33, 33)), 0.0, draws())
    assert torch.equal(columns, torch.arange(33.0).expand(50, 33, 33))
    assert torch.equal(rows, columns.mT)
    columns, rows = tilt(torch.Size((33, 33)), 2.0, draws())
    move = torch.stack([columns - torch.arange(33), rows - torch.arange(33)[:, None]])[:, :, 16 + 11, 16 + 11]
    assert 1.5 < move.abs().max() < 3  # up to 2, plus the tilt
    assert move.mean(1).abs().max() < 1


def test_a_disk_by_hand():
    assert torch.allclose(disk(0.5, 0.01)[1, 1], torch.tensor(1.0, dtype=torch.float64))
    plus = torch.tensor([[0.0, 1, 0], [1, 1, 1], [0, 1, 0]], dtype=torch.float64) / 5
    assert torch.allclose(disk(1, 0.01)[1:4, 1:4], plus)


def test_a_streak_by_hand():
    image = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    image[0, 0, 4, 4] = 200
    across, down = (streaked(image, 1, 1.0, torch.tensor([angle]))[0, 0] for angle in (0.0, 90.0))
    assert across[4].tolist() == [0, 0, 15, 69, 114, 0, 0, 0, 0]  # 200 · (0.078, 0.348, 0.574), to one side only
    assert torch.equal(down, across.mT)


def test_plasma_is_a_map_from_zero_to_one_that_joins_at_its_borders():
    clouds = plasma(32, 2.0, Draws("clouds", block=200, used=200, device=CPU))
    assert torch.equal(clouds.amin((1, 2)), torch.zeros(200, dtype=torch.float64))
    assert torch.equal(clouds.amax((1, 2)), torch.ones(200, dtype=torch.float64))
    steps = clouds.diff(dim=2).abs().mean()
    around = (clouds[:, :, 0] - clouds[:, :, -1]).abs().mean()
    assert abs(float(around / steps) - 1) < 0.2


def test_the_edge_of_a_square_by_hand():
    levels = torch.zeros(1, 12, 12, dtype=torch.int32)
    levels[0, 3:9, 4:8] = 200
    edges = canny(levels)[0]
    inner = torch.zeros(12, 12, dtype=torch.bool)
    inner[2:9, 3:8] = True  # the gradient is equal on both sides of a border: the first one is kept
    inner[3:8, 4:7] = False
    assert edges[5].nonzero().flatten().tolist() == inner[5].nonzero().flatten().tolist()
    assert edges[:, 5].nonzero().flatten().tolist() == inner[:, 5].nonzero().flatten().tolist()
    assert not canny(torch.full((1, 9, 9), 200)).any()


def test_weak_edges_count_where_they_meet_a_strong_one():
    levels = torch.zeros(2, 16, 9, dtype=torch.int32)
    levels[:, :, 5:] = 20  # a gradient of 80: weak
    levels[1, 7:9, 5:] = 250
    alone, joined = canny(levels)
    assert not alone.any()
    assert joined[0].any()


def test_distances_are_the_shortest_ways():
    edges = torch.rand(6, 21, 17, generator=torch.Generator().manual_seed(4)) < 0.02
    edges[5] = False
    distances = chamfer_distance(edges)
    rows, columns = torch.meshgrid(torch.arange(21), torch.arange(17), indexing="ij")
    for edge, distance in zip(edges[:5], distances, strict=False):
        y, x = edge.nonzero().T
        apart = torch.stack([(rows[..., None] - y).abs(), (columns[..., None] - x).abs()]).double()
        long, short = apart.amax(0), apart.amin(0)
        knights = torch.where(long >= 2 * short, short, long - short)
        ways = 2.1969 * knights + torch.where(long >= 2 * short, long - 2 * short, 1.4 * (2 * short - long))
        assert (ways.amin(-1) - distance).abs().max() < 1e-3
    assert distances[5].min() > 20

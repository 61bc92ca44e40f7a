"""``inpaint`` by AIR on a GPU, as CuPy's double has it: pixels come back where they were."""

from __future__ import annotations

import numpy as np
import pytest

import airnp
from airnp import masks
from airnp.commands.demo import scene

GREY = scene(40)[:34]
COLOUR = np.stack([GREY, GREY[::-1], 1 - GREY], axis=-1)
MASK = masks.random(GREY.shape, 0.3, seed=0)
OPTIONS = {"method": "air", "max_iter": 20, "stop": None, "seed": 3}


@pytest.mark.parametrize(("dtype", "picture"), [("float64", GREY), ("float32", GREY), ("uint8", COLOUR)])
def test_an_array_of_the_device_is_answered_there(gpu, dtype, picture):
    pixels = np.rint(200 * picture).astype(dtype) if dtype == "uint8" else picture.astype(dtype)
    expected = airnp.inpaint(pixels, MASK, engine="reference", **OPTIONS)
    with gpu.cupy.cuda.Device(1):
        image, mask = gpu.cupy.asarray(pixels), gpu.cupy.asarray(MASK)
    filled = airnp.inpaint(image, mask, **OPTIONS)
    assert isinstance(filled, gpu.cupy.ndarray)
    assert (filled.device.id, filled.dtype) == (1, dtype)
    np.testing.assert_array_equal(image.get(), pixels)
    np.testing.assert_array_equal(filled.get()[MASK], pixels[MASK])
    tolerance = {"float64": 1e-8, "float32": 1e-4, "uint8": 1}[dtype]
    np.testing.assert_allclose(filled.get(), expected, rtol=0, atol=tolerance)
    gpu.check_memory()


def test_an_array_of_the_host_may_be_filled_on_a_device(gpu):
    gpu.counters.reset()
    filled = airnp.inpaint(GREY, MASK, xp=gpu.cupy, device=1, **OPTIONS)
    assert isinstance(filled, np.ndarray)
    assert gpu.counters.launches.total() > 0
    np.testing.assert_allclose(filled, airnp.inpaint(GREY, MASK, engine="reference", **OPTIONS), atol=1e-8)


def test_the_rule_that_stops_works_there_too(gpu):
    options = {**OPTIONS, "max_iter": 60, "stop": airnp.HeldOut(every=10)}
    image = gpu.cupy.asarray(GREY)
    filled = airnp.inpaint(image, gpu.cupy.asarray(MASK), **options).get()
    np.testing.assert_allclose(filled, airnp.inpaint(GREY, MASK, engine="reference", **options), atol=1e-6)

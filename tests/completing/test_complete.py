"""``airnp.complete``: what it takes data for, what wins, and whether its expected error is honest."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import airnp
from airnp import masks
from airnp.completing.completion import cross_fit
from airnp.completing.judging import Judges
from airnp.completing.models import MODELS, Answer, LowRank, Means, Picture, Task
from airnp.completing.tournament import Tournament, _Curve, _ranks
from tests.conftest import Backend

RNG = np.random.default_rng(0)
TRUTH = RNG.random((24, 2)) @ RNG.random((2, 18))
SEEN = RNG.random(TRUTH.shape) < 0.7
CHEAP: list[Any] = [Means(False), Means(True), LowRank()]


@dataclass(frozen=True)
class Fixed:
    """A model with a known answer."""

    name: str
    matrix: Any
    seconds: float = 0.0
    uses_neighbours: bool = False
    favourite_of: tuple[str, ...] = ()

    def suits(self, task: Task) -> bool:
        return True

    def cost(self, task: Task) -> float:
        return self.seconds

    def fit(self, task: Task) -> Answer:
        if isinstance(self.matrix, BaseException):
            raise self.matrix
        return Answer(self.matrix)


def test_low_rank_wins_on_a_table_of_rank_2() -> None:
    found = airnp.complete(np.where(SEEN, TRUTH, np.nan), models=CHEAP)
    assert (found.model, found.kind, found.stop_reason) == ("low rank", "matrix", "done")
    assert np.abs(found.X - TRUTH).max() < 1e-2
    assert found.expected < 1e-3
    assert "rank 3" in found.result.stop_reason
    np.testing.assert_array_equal(found.result.mask, SEEN)  # fitted to all entries
    np.testing.assert_array_equal(found.completed()[SEEN], TRUTH[SEEN])


def test_a_model_does_not_see_the_entries_that_judge_it() -> None:
    tournament = Tournament.of(Task(np.where(SEEN, TRUTH, 0.0), SEEN, "matrix"), CHEAP, "mae")
    tournament.run()
    held = tournament.draws[0].held_out
    entry = next(e for e in tournament.entries if e.model.name == "constant")
    np.testing.assert_allclose(entry.predictions[0], TRUTH[SEEN & ~held].mean())
    assert (held & SEEN).sum() == held.sum() > 0


def test_a_picture_is_recognised_by_held_out_entries() -> None:
    picture = gaussian_filter(np.random.default_rng(0).random((64, 64)), 1.2)
    mask = airnp.masks.random(picture.shape, 0.3, seed=0)
    some = [*CHEAP, Picture("linear", "linear", 0.0), Picture("smooth", "biharmonic", 1e4)]
    found = airnp.complete(picture, mask, models=some, time_limit=1e4)
    assert found.kind == "picture"
    # The same entries in another order are no picture, and models of pictures are not begun.
    order = np.random.default_rng(1).permutation(64)
    table = np.outer(np.arange(64.0) + 1, np.sin(np.arange(64)) + 2)[order][:, order]
    other = airnp.complete(table, mask, models=some, time_limit=1e4)
    assert (other.kind, other.model) == ("matrix", "low rank")
    notes = {score.model: score.note for score in other.ranking}
    assert notes["smooth"] == "the data is no picture"


def test_what_has_not_the_time_is_not_begun() -> None:
    never = Fixed("slow", RuntimeError("begun"), seconds=1e6)
    first = Fixed("first", TRUTH + 0.1, seconds=1e5)
    found = airnp.complete(TRUTH, SEEN, models=[*CHEAP, never, first])
    assert np.isfinite(next(score.error for score in found.ranking if score.model == "first"))
    assert found.ranking[-1].note == "not begun: about 1000000 s"
    assert np.isnan(found.ranking[-1].error)
    favourite = Fixed("favourite", TRUTH, seconds=2e5, favourite_of=("matrix",))
    found = airnp.complete(TRUTH, SEEN, models=[*CHEAP, first, favourite])
    assert found.model == "favourite"
    assert found.ranking[-1].model == "first"


def test_a_model_that_fails_does_not_end_the_others() -> None:
    found = airnp.complete(TRUTH, SEEN, models=[Fixed("broken", ValueError("no")), *CHEAP])
    assert found.model == "low rank"
    assert found.ranking[-1].note == "failed: ValueError: no"
    with pytest.raises(RuntimeError, match="no model could be fitted; failed: ValueError: no"):
        airnp.complete(TRUTH, SEEN, models=[Fixed("broken", ValueError("no"))])


def test_an_interrupt_returns_the_best_so_far() -> None:
    stop = Fixed("stop", KeyboardInterrupt(), seconds=0.6)
    found = airnp.complete(TRUTH, SEEN, models=[*CHEAP, stop])
    assert (found.model, found.stop_reason) == ("low rank", "interrupted")
    assert np.abs(found.X - TRUTH).max() < 1e-2
    with pytest.raises(KeyboardInterrupt):
        airnp.complete(TRUTH, SEEN, models=[stop])


def test_a_curve_that_cannot_reach_the_best_is_given_up() -> None:
    task = Task(np.where(SEEN, TRUTH, 0.0), SEEN, "matrix")
    tournament = Tournament.of(task, [Fixed("good", TRUTH + 0.01)], "mae")
    tournament.run()
    hopeless, falling = _Curve(tournament, 0), _Curve(tournament, 0)
    assert [hopeless(TRUTH + 0.5) for _ in range(8)] == [False] * 7 + [True]
    assert not any(falling(TRUTH + 0.5 / (k + 1)) for k in range(30))


def test_a_blend_is_taken_only_if_it_is_clearly_better() -> None:
    rng = np.random.default_rng(3)
    truth, seen = rng.random((60, 50)), rng.random((60, 50)) < 0.7
    one, two = rng.normal(0, 0.2, (2, 60, 50))
    found = airnp.complete(truth, seen, models=[Fixed("one", truth + one), Fixed("two", truth + two)])
    assert set(found.weights) == {"one", "two"}
    assert sum(found.weights.values()) == pytest.approx(1)
    error = airnp.metrics.nmae(found.X, truth, seen)
    assert error < 0.85 * airnp.metrics.nmae(truth + one, truth, seen)
    worse = Fixed("worse", truth + one + rng.normal(0, 0.3, one.shape))
    alone = airnp.complete(truth, seen, models=[Fixed("one", truth + one), worse])
    assert alone.model == "one"


def test_a_favourite_is_taken_unless_another_is_clearly_better() -> None:
    usual = Fixed("usual", TRUTH, favourite_of=("table",))
    losses = np.random.default_rng(8).exponential(size=(2, 400))
    for kind, other, winner in (("table", 0.97, 1), ("table", 0.7, 0), ("ratings", 0.97, 0)):
        tournament = Tournament.of(Task(TRUTH, SEEN, kind), [Fixed("other", TRUTH), usual], "mae")
        scaled = losses / losses.mean(axis=1, keepdims=True) * [[other], [1.0]]
        assert tournament.choice(tournament.entries)(scaled) == winner


def test_binary_data_get_the_likelier_value_unless_squares_count() -> None:
    rng = np.random.default_rng(4)
    truth = (rng.random((40, 1)) * rng.random((1, 30)) > 0.3) * 1.0
    seen = rng.random(truth.shape) < 0.8
    found = airnp.complete(truth, seen, models=CHEAP)
    assert found.kind == "binary"
    assert set(np.unique(found.X)) == {0.0, 1.0}
    soft = airnp.complete(truth, seen, models=CHEAP, metric="rmse")
    assert len(np.unique(soft.X)) > 2
    order = airnp.complete(truth, seen, models=CHEAP, metric="auc")
    assert order.expected < 0.1  # 1 − AUC
    lower, upper = order.interval()
    assert lower.min() == order.X.min() == 0
    assert upper.max() == order.X.max() == 1
    with pytest.raises(ValueError, match=r"^metric: 'auc' is for binary data, got a matrix"):
        airnp.complete(TRUTH, SEEN, metric="auc")


def test_the_area_under_the_curve_has_the_standard_error_of_both_sides() -> None:
    rng = np.random.default_rng(7)
    areas, unsure = [], []
    for _ in range(400):
        positive = np.arange(60) < 50  # few negative entries make it unsure
        parts = _ranks(rng.normal(size=60) + positive, positive)
        areas.append(parts.mean())
        unsure.append(parts.std() / np.sqrt(60))
    truth = 0.7602  # of two normal distributions, one standard deviation apart
    assert np.mean(areas) == pytest.approx(truth, abs=0.02)
    assert np.mean(unsure) == pytest.approx(np.std(areas), rel=0.1)
    assert (_ranks(np.ones(3), np.array([True, False, True])) == 0.5).all()


def test_columns_of_a_frame_may_have_units_and_kinds() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(5)
    size = rng.normal(size=80)
    frame = pandas.DataFrame(
        {
            "id": np.arange(100, 180),
            "a": 1e6 * size,
            "b": 1e-3 * (size + 0.1 * rng.normal(size=80)),
            "c": pandas.Categorical(np.where(size > 0, "large", "small")),
        }
    )
    gaps = frame.copy()
    gaps.loc[::7, "a"] = np.nan
    gaps.loc[3::7, "c"] = None
    found = airnp.complete(gaps, models=[*CHEAP, MODELS[8]])
    filled = found.completed()
    assert (found.kind, found.metric) == ("table", "rmse")
    assert list(filled["id"]) == list(frame["id"])
    assert not filled.isna().any().any()
    assert (filled["c"] == frame["c"]).mean() > 0.95
    assert np.abs(filled["a"] - frame["a"]).mean() < 1e5
    with pytest.raises(ValueError, match=r"^interval: expected a table of numbers"):
        found.interval()


def test_whole_numbers_stay_whole_under_a_mask() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(5)
    size = rng.normal(size=50)
    frame = pandas.DataFrame({"a": (20 * size).round().astype("int32"), "b": size, "c": size > 0})
    mask = np.stack([rng.random(50) < 0.8, np.ones(50, bool), rng.random(50) < 0.8], axis=1)
    filled = airnp.complete(frame, mask, models=CHEAP).completed()
    assert [str(dtype) for dtype in filled.dtypes] == ["Int32", "float64", "boolean"]
    assert (filled["a"] - frame["a"]).abs().max() < 10
    assert (filled["c"] == frame["c"]).mean() > 0.9


def test_columns_of_unequal_scale_are_a_table() -> None:
    scales = 10.0 ** (np.arange(18) % 5 * 2)
    found = airnp.complete(TRUTH * scales, SEEN, models=CHEAP)
    assert found.kind == "table"
    np.testing.assert_allclose((found.X / scales), TRUTH, atol=0.02)


def test_neither_flat_columns_nor_unequal_factors_are_units() -> None:
    rng = np.random.default_rng(9)
    mask = rng.random((40, 30)) < 0.7
    i, j = np.mgrid[:40, :30]
    picture = np.exp(-((i - 20) ** 2 + (j - 8) ** 2) / 40) + 1e-3 * rng.random((40, 30))  # flat to the right
    unequal = np.outer(rng.normal(size=40), np.exp(rng.normal(size=30)))
    smooth = np.sin(i / (2 + j % 5) + j) * 10.0 ** (j % 4)  # measured in four units over time
    kinds = [airnp.complete(Y, mask, models=CHEAP).kind for Y in (picture, unequal, smooth)]
    assert kinds == ["matrix", "matrix", "table"]


def test_intervals_cover_what_is_missing() -> None:
    rng = np.random.default_rng(6)
    truth = rng.random((60, 3)) @ rng.random((3, 50)) + 0.05 * rng.standard_normal((60, 50))
    seen = rng.random(truth.shape) < 0.7
    for models in ([LowRank()], [MODELS[8]]):  # without variances, and with
        found = airnp.complete(truth, seen, models=models, time_limit=60)
        lower, upper = found.interval(0.9)
        inside = (lower <= truth) & (truth <= upper)
        assert 0.84 < inside[~seen].mean() < 0.96
        assert inside[seen].all()
        assert (found.std[~seen] > 0).all()


def test_the_true_error_is_within_the_standard_errors() -> None:
    scores = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        truth = rng.random((30, 3)) @ rng.random((3, 25)) + 0.1 * rng.standard_normal((30, 25))
        observed = rng.random(truth.shape) < 0.75
        found = airnp.complete(truth, observed, models=CHEAP, fraction=0.1, seed=seed)
        true = airnp.metrics.nmae(found.X, truth, observed) * np.ptp(truth) / np.ptp(truth[observed])
        scores.append((found.expected - true) / found.standard_error)
    assert np.sqrt(np.mean(np.square(scores))) < 1.7
    assert np.abs(scores).max() < 3.5


def test_the_expected_error_is_not_the_lowest_of_many() -> None:
    """Of twenty equally good models, some look better by chance: their lowest mean is too low."""
    rng = np.random.default_rng(0)
    lowest, honest = [], []
    for _ in range(200):
        errors = rng.exponential(1.0, (20, 60))
        lowest.append(errors.mean(axis=1).min())
        honest.append(cross_fit(errors, rng).mean())
    assert np.mean(lowest) < 0.85
    assert abs(np.mean(honest) - 1) < 4 / np.sqrt(60 * 200)


def test_save_and_load(tmp_path: Any) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.where(SEEN, TRUTH, np.nan), columns=[f"c{j}" for j in range(18)])
    for data in (frame, frame.to_numpy()):
        found = airnp.complete(data, models=CHEAP, bounds=(0, 9))
        found.save(tmp_path / "a.npz")
        again = airnp.Completion.load(tmp_path / "a.npz")
        np.testing.assert_array_equal(again.completed(), found.completed())
        np.testing.assert_array_equal(again.interval(0.8), found.interval(0.8))
        assert str(again) == str(found)
        assert type(again.X) is type(found.X)


def test_save_and_load_a_table_of_all_kinds(tmp_path: Any) -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(6)
    size = rng.normal(size=60)
    frame = pandas.DataFrame(
        {
            "id": np.arange(1, 61),
            "size": size,
            "name": [f"p{k}" for k in range(60)],
            "age": pandas.array((40 + 9 * size).round().astype(int), dtype="Int64"),
            "city": pandas.Series(np.where(size > 0, "A", "B")).mask(rng.random(60) < 0.2),
            "grade": pandas.Categorical(
                np.where(size > 0, "high", "low"), ["low", "middle", "high"], ordered=True
            ),
            "day": pandas.to_datetime("2020-01-01") + pandas.to_timedelta((9 * size).round(), unit="D"),
        },
        index=[f"row {k}" for k in range(60)],
    )
    for place in (3, 5, 6):
        frame.iloc[rng.permutation(60)[:12], place] = None
    found = airnp.complete(frame, models=CHEAP)
    found.save(tmp_path / "a.npz")
    again = airnp.Completion.load(tmp_path / "a.npz")
    pandas.testing.assert_frame_equal(again.completed(), found.completed())
    assert (again.completed().dtypes == frame.dtypes).all()
    assert (again.completed()[["id", "name"]] == frame[["id", "name"]]).all(axis=None)


def test_scores_are_a_table() -> None:
    pytest.importorskip("pandas")
    found = airnp.complete(TRUTH, SEEN, models=CHEAP, progress=True)
    assert list(found.scores.index) == ["low rank", "line means", "constant"]
    assert str(found).splitlines()[3].startswith("low rank")


def test_an_executor_finds_the_same() -> None:
    here = airnp.complete(TRUTH, SEEN, models=CHEAP)
    with ThreadPoolExecutor(2) as executor:
        there = airnp.complete(TRUTH, SEEN, models=CHEAP, executor=executor)
    np.testing.assert_array_equal(here.X, there.X)
    assert here.expected == there.expected


@dataclass(frozen=True)
class Patient:
    """A model that takes all the time there is."""

    name: str = "patient"
    uses_neighbours: bool = False
    favourite_of: tuple[str, ...] = ()

    def suits(self, task: Task) -> bool:
        return True

    def cost(self, task: Task) -> float:
        return 0.3

    def fit(self, task: Task) -> Answer:
        time.sleep(max(0.0, min(task.deadline - time.monotonic(), 30.0)))
        return Answer(np.zeros(task.shape))


def test_an_executor_honours_the_time_limit() -> None:
    with ThreadPoolExecutor(2) as executor:
        found = airnp.complete(TRUTH, SEEN, models=[*CHEAP, Patient()], executor=executor, time_limit=2)
    assert found.seconds < 6
    assert found.model == "low rank"


def test_the_estimate_is_that_of_models_that_are_begun() -> None:
    slow = Fixed("slow", TRUTH, seconds=1e5)
    task = Task(np.where(SEEN, TRUTH, 0.0), SEEN, "matrix")
    assert Tournament.of(task, [*CHEAP, slow], "mae").estimate < 5
    favourite = Fixed("slow", TRUTH, seconds=1e5, favourite_of=("matrix",))
    assert Tournament.of(task, [*CHEAP, favourite], "mae").estimate > 1e5
    assert Tournament.of(task, [*CHEAP, favourite], "mae", time_limit=9).estimate < 9


def test_all_namespaces(backend: Backend) -> None:
    found = airnp.complete(backend.array(TRUTH), backend.array(SEEN), models=CHEAP)
    assert type(found.X) is type(backend.array(TRUTH))
    np.testing.assert_allclose(found.expected, airnp.complete(TRUTH, SEEN, models=CHEAP).expected, rtol=1e-3)


def test_lines_that_cross_are_held_out_one_by_one() -> None:
    observed = np.ones((60, 50), bool)
    for line in range(3, 60, 5):
        observed[line, line % 25 : line % 25 + 25] = False
    for line in range(2, 50, 6):
        observed[line % 30 : line % 30 + 30, line] = False
    judges = Judges.draw(RNG.random(observed.shape), observed, 0.05, np.random.default_rng(0))
    held, left = judges.held_out, observed & ~judges.held_out
    assert judges.in_holes
    assert judges.count > 8
    for number in range(judges.count):
        rows, columns = np.argwhere(held)[judges.clusters == number].T
        assert len(np.unique(rows)) == 1 or len(np.unique(columns)) == 1
    # No line is nearly without entries, so a low rank still predicts what is held out.
    assert left.sum(axis=1).min() >= 0.8 * observed.sum(axis=1).min()
    scratches = airnp.masks.scratches((64, 64), 6, 2, seed=1)
    copies = Judges.draw(RNG.random((64, 64)), scratches, 0.05, np.random.default_rng(0))
    places = np.argwhere(copies.held_out)[copies.clusters == 0]
    assert (np.ptp(places, axis=0) > 1).all()  # oblique


def test_rare_extremes_make_the_expected_error_unsure() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(300, 6))
    observed = rng.random(truth.shape) < 0.8
    usual = airnp.complete(truth, observed, kind="table", models=CHEAP, fraction=0.02)
    row = int(np.argmax(observed[:, 2]))
    truth[row, 2] = 60.0
    found = airnp.complete(truth, observed, kind="table", models=CHEAP, fraction=0.02)
    assert np.abs(found._calibration.values).max() < 10  # it is not held out, yet
    assert found.expected > 1.3 * usual.expected
    assert found.standard_error > 3 * usual.standard_error


def test_holes_that_cannot_be_copied_give_a_warning() -> None:
    observed = np.ones((20, 18), dtype=bool)
    observed[:10] = False
    with pytest.warns(airnp.EmptyLineWarning), pytest.warns(UserWarning, match="no copies of them"):
        airnp.complete(RNG.random((20, 18)), observed, models=CHEAP)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "photo"}, "^kind: expected one of 'picture'"),
        ({"metric": "mse"}, "^metric: expected one of 'mae'"),
        ({"time_limit": 0}, "^time_limit: expected more than 0 seconds"),
        ({"fraction": 2}, "^fraction: expected a number between 0 and 1"),
        ({"kind": "binary"}, "^kind: expected two different values"),
        ({"models": []}, "^models: expected one at least that is meant for a matrix"),
        ({"threads": 0}, "^threads: expected"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        airnp.complete(TRUTH, SEEN, **options)
    with pytest.raises(ValueError, match="one matrix, got an array of shape"):
        airnp.complete(np.zeros((2, 3, 4)))


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_model_keeps_the_protocol(model: Any) -> None:
    task = Task(np.where(SEEN, TRUTH, 0.0), SEEN, "ratings", threads=1, give_up=lambda matrix: False)
    if model.suits(task):
        answer = model.fit(task)
        assert answer.matrix.shape == TRUTH.shape
        assert np.isfinite(answer.matrix).all()
        assert model.cost(task) > 0


@pytest.mark.parametrize("name", ["patches", "rows", "low rank"])
def test_constant_data_has_intervals_as_narrow_as_its_errors(name):
    (model,) = (model for model in MODELS if model.name == name)
    found = airnp.complete(np.zeros((8, 8)), masks.random((8, 8), 0.3, seed=0), models=[model], seed=0)
    low, high = found.interval(0.5)
    np.testing.assert_allclose(found.X, 0, atol=1e-6)
    assert np.abs(high - low).max() < 1e-5

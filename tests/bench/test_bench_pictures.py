"""``python -m bench.pictures`` on tiny pictures, with methods whose errors are known."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import airnp
from bench import cells
from bench.cells import Cells, Task
from bench.paper_rows import Problem
from bench.pictures import __main__ as command
from bench.pictures import measure as timing
from bench.pictures import methods, peers, problems
from bench.pictures.methods import METHODS, Answer, Filler, Pictures, hide, measure
from bench.pictures.problems import CASES, MASKS, PICTURES, REPORT, TUNING, Case, draw_mask, kind, picture
from bench.pictures.summary import geometric_mean, summarize

SIDE = 16


def truth(colours: bool = False) -> np.ndarray:
    ramp = np.add.outer(np.arange(SIDE), np.arange(SIDE)) / (2 * SIDE - 2)
    return np.stack([ramp, ramp**2, 1 - ramp], axis=-1) if colours else ramp


def load(size, seed):
    mask = np.ones((SIDE, SIDE), dtype=bool)
    mask[3 : 5 + seed, 4:9] = False
    return Problem(truth(size == "own"), mask)


def off_by(image, mask, seed, *, error, covers=None, expected=0.1):
    """A method with a known error, which it does not need the truth for."""
    assert (image[~mask] == 0).all()
    filled = truth(image.ndim == 3) + error * ~(mask if image.ndim == 2 else mask[..., None])
    if covers is None:
        return Answer(filled)
    share = np.zeros((~mask).sum(), dtype=bool)
    share[: round(covers * len(share))] = True
    half = np.where(share, 2.0, 0.5) * error
    widths = np.zeros(mask.shape)
    widths[~mask] = half
    widths = widths if image.ndim == 2 else widths[..., None]
    facts = {"expected": expected, "expected_error": 0.01, "chosen": {"patch": 7}}
    return Answer(filled, lambda level: (filled - widths, filled + widths), facts)


def fails(image, mask, seed):
    raise ValueError("no | such picture")


def case(picture, mask, half, size="240", *, fixed=False):
    name = " ".join((picture, mask) if half == "paper" else (picture, size, mask))
    fields = {"picture": picture, "mask": mask, "half": half, "size": size}
    return Case(name, partial(load, size), {}, has_fixed_mask=fixed, is_image=True, **fields)


TINY = [
    case("Barbara", "30%", "paper"),
    case("moon", "30%", "report"),
    case("moon", "patches", "report"),
    case("moon", "30%", "report", "own"),
    case("camera", "30%", "tuning"),
    case("camera", "30%", "tuning", "own"),
]


def experiment(**changes):
    found = {
        "inpaint": Filler("airnp", off_by, {"error": 0.1, "covers": 0.9}, is_ours=True, code=("images",)),
        "inpaint_fast": Filler(
            "fast", off_by, {"error": 0.11, "covers": 0.9}, is_ours=True, code=("images",)
        ),
        "biharmonic": Filler(
            "biharmonic", off_by, {"error": 0.2}, is_seeded=False, skips=("camera own 30%",)
        ),
        "fsr_best": Filler("FSR", off_by, {"error": 0.08}, is_seeded=False, small_only=True),
        "bm3d": Filler("BM3D", off_by, {"error": 0.01}, on_request=True),
    }
    return Pictures({item.name: item for item in TINY}, found | changes)


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    """Compute cells in this process, without a warm-up, to save the start of another."""

    def compute_all(tasks, found, folder, jobs):
        for task in tasks:
            yield task, Cells(folder).compute(task, found)

    monkeypatch.setattr(cells, "compute_all", compute_all)
    monkeypatch.setattr(methods, "_warm_up", lambda *arguments: None)


def run(out, *words, found=None):
    return command.main(["--out", str(out), *words], found or experiment())


def summary(out):
    return json.loads((out / "pictures.json").read_text(encoding="utf-8"))


# --- problems ---


def test_every_picture_of_scikit_image_is_in_one_half():
    assert len(PICTURES) == 19
    assert set(TUNING) | set(REPORT) == set(PICTURES)
    assert not set(TUNING) & set(REPORT)
    assert len(CASES) == 9 + 19 * 2 * 7
    assert {CASES[f"{name} own text"].half for name in REPORT} == {"report"}
    for name in PICTURES:
        own = picture(name, "own")
        assert own.ndim == 2 or own.shape[2] == 3
        assert 0 <= own.min() < own.max() <= 1
    small = picture("chelsea", "240")
    assert small.shape == (240, 240)
    assert 0 <= small.min() < small.max() <= 1


@pytest.mark.parametrize("name", MASKS)
def test_masks_drop_what_they_say(name):
    mask = draw_mask(name, (120, 90), [0, 1])
    shares = {"text": (0.05, 0.3), "scratches": (0.1, 0.5), "patches": (0.056, 0.057)}  # 5 squares of 11×11
    if "%" in name:
        share = float(name.removesuffix("%")) / 100
        shares[name] = (share - 0.03, share + 0.03)
    low, high = shares[name]
    assert low <= 1 - mask.mean() <= high
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, draw_mask(name, (120, 90), [0, 1]))
    assert np.array_equal(mask, draw_mask(name, (120, 90), [0, 2])) == (name == "text")
    assert kind(name) == ("random" if "%" in name else name)


def test_a_problem_is_a_picture_under_its_mask_and_the_seed_draws_it():
    first, second = (CASES["microaneurysms own 30%"].load(seed) for seed in (0, 1))
    np.testing.assert_array_equal(first.truth, picture("microaneurysms", "own"))
    assert first.mask.shape == (102, 102)
    assert not np.array_equal(first.mask, second.mask)
    other = problems.load_picture("moon", "240", "30%", 0)
    assert not np.array_equal(other.mask, problems.load_picture("camera", "240", "30%", 0).mask)


def test_the_papers_rows_are_those_of_table_1(monkeypatch):
    problem = Problem(np.eye(3, dtype=np.float32), np.eye(3, dtype=bool))
    monkeypatch.setattr(problems.paper_rows, "load", lambda name, seed: problem)
    found = CASES["Cameraman texture"].load(4)
    assert found.truth.dtype == np.float64
    np.testing.assert_array_equal(found.mask, problem.mask)
    assert [name for name, item in CASES.items() if item.half == "paper"] == list(problems.GOALS)


# --- methods ---


PEERS = [name for name, filler in METHODS.items() if not (filler.is_ours or filler.on_request)]


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("colours", [False, True])
def test_peers_fill_grey_and_colour(name, colours):
    whole, filler = truth(colours), METHODS[name]
    mask = airnp.masks.random((SIDE, SIDE), 0.3, seed=0)
    answer = filler.run(hide(whole, mask), mask, 0, **filler.settings)
    assert answer.image.shape == whole.shape
    np.testing.assert_allclose(answer.image[mask], whole[mask], atol=1e-7)
    assert np.abs(answer.image - whole)[~mask].mean() < 0.05
    if colours:  # every channel as it would be alone
        alone = filler.run(hide(whole, mask)[..., 1], mask, 0, **filler.settings)
        np.testing.assert_allclose(answer.image[..., 1], alone.image, atol=1e-7)


def test_plug_and_play_denoises_by_less_and_less():
    noises = []

    def halfway(filled, noise):
        noises.append(noise)
        return (filled + truth()) / 2

    mask = airnp.masks.random((SIDE, SIDE), 0.3, seed=0)
    filled = peers._plug_and_play(hide(truth(), mask), mask, halfway)
    np.testing.assert_allclose(filled, truth(), atol=1e-5)
    assert noises == sorted(noises, reverse=True)
    assert len(noises) == peers.STEPS
    assert (noises[0], noises[-1]) == pytest.approx(peers.NOISE)


def test_inpaint_is_called_as_its_users_call_it(monkeypatch):
    whole = truth()
    mask = airnp.masks.random(whole.shape, 0.3, seed=0)

    result = SimpleNamespace(
        image=whole,
        expected=np.float32(0.5),
        expected_error=np.float32(0.25),
        chosen={"patch": np.int64(7), "weights": np.array([0.5, 0.5]), "start": "linear"},
        interval=lambda level: (whole - level, whole + level),
    )

    def fake(image, given, **options):
        assert given is mask
        calls.append(options)
        return result if options["full"] else whole

    calls = []
    monkeypatch.setattr(airnp, "inpaint", fake)
    answer = METHODS["inpaint_fast"].run(hide(whole, mask), mask, 3, **METHODS["inpaint_fast"].settings)
    plain = METHODS["inpaint"].run(hide(whole, mask), mask, 3, full=False)
    assert calls == [{"seed": 3, "full": True, "quality": "fast"}, {"seed": 3, "full": False}]
    assert plain.image is whole
    assert json.loads(json.dumps(dict(answer.facts))) == {
        "expected": 0.5,
        "expected_error": 0.25,
        "chosen": {"patch": 7, "weights": [0.5, 0.5], "start": "linear"},
    }
    assert measure(whole, mask, answer)["coverage"] == 1


@pytest.mark.parametrize("colours", [False, True])
def test_errors_are_measured_over_all_channels(colours):
    problem = load("own" if colours else "240", 0)
    hidden = hide(problem.truth, problem.mask)
    found = measure(problem.truth, problem.mask, off_by(hidden, problem.mask, 0, error=0.1, covers=0.4))
    missing = 10
    assert found["missing"] == missing
    assert found["nmae"] == pytest.approx(0.1)
    assert found["mae"] == pytest.approx(0.1)
    assert found["psnr"] == pytest.approx(10 * np.log10(SIDE**2 / (missing * 0.01)))
    assert 0 < found["ssim"] < 1
    assert found["coverage"] == pytest.approx(0.4)
    assert found["width"] == pytest.approx(0.4 * 0.4 + 0.6 * 0.1)
    perfect = measure(problem.truth, problem.mask, Answer(problem.truth))
    assert (perfect["nmae"], perfect["ssim"]) == (0, pytest.approx(1))
    with pytest.raises(ArithmeticError, match="the error on missing pixels is nan"):
        measure(problem.truth, problem.mask, Answer(problem.truth * np.nan))


# --- cells ---


def planned(*words, found=None):
    found = found or experiment()
    return {(t.row, t.method, t.seed) for t in command.plan(found, command._read_only(words, found))}


def test_the_plan_has_seeds_for_the_papers_random_masks_only():
    every = planned()
    assert ("Barbara 30%", "biharmonic", 4) in every
    assert ("moon 240 30%", "inpaint", 0) in every
    assert ("moon 240 30%", "inpaint", 1) not in every
    assert ("moon own 30%", "fsr_best", 0) not in every
    assert {method for row, method, _ in every if row == "camera own 30%"} == {"inpaint", "inpaint_fast"}
    assert "bm3d" not in {method for _, method, _ in every}
    assert {method for _, method, _ in planned("method=bm3d")} == {"bm3d"}
    assert planned("half=report", "size=own", "method=inpaint,fsr_best") == {("moon own 30%", "inpaint", 0)}
    assert planned("picture=camera", "size=240", "method=inpaint") == {("camera 240 30%", "inpaint", 0)}


@pytest.mark.parametrize(
    "words", [["--only", "mask=40%"], ["--only", "colour=red"], ["--report", "--redo", "fsr_best"]]
)
def test_refuses_what_it_does_not_know(words, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run(tmp_path, *words)
    assert "expected" in capsys.readouterr().err or "--redo" in words


def test_only_missing_cells_are_computed_and_each_is_kept_when_it_is_done(tmp_path, monkeypatch):
    solved = []
    solve = Pictures.solve

    def counted(self, task):
        solved.append(task)
        return solve(self, task)

    monkeypatch.setattr(Pictures, "solve", counted)
    assert run(tmp_path, "--only", "half=report", "method=biharmonic") == 0
    assert len(solved) == 3
    assert run(tmp_path, "--only", "half=report", "method=biharmonic,inpaint") == 0
    assert len(solved) == 6
    assert run(tmp_path, "--report") == 0
    assert len(solved) == 6
    assert run(tmp_path, "--only", "half=report", "--redo", "inpaint") == 0
    assert len(solved) == 6 + 3 + 3 + 2  # inpaint again; inpaint_fast and fsr_best for the first time
    record = Cells(tmp_path).find(Task("moon 240 30%", "inpaint", 0, {"error": 0.1, "covers": 0.9}))
    assert record["nmae"] == pytest.approx(0.1)
    assert record["chosen"] == {"patch": 7}


def test_stale_cells_are_named_and_computed_again_on_request(tmp_path, monkeypatch):
    words = ("--only", "half=tuning", "size=240", "method=inpaint,biharmonic")
    run(tmp_path, *words)
    assert summary(tmp_path)["stale"] == {}
    monkeypatch.setattr(methods, "code_hash", lambda names, imports: f"new {imports}")
    run(tmp_path, *words)
    assert summary(tmp_path)["stale"] == {"inpaint": 1, "biharmonic": 1}
    run(tmp_path, *words, "--redo", "stale")
    assert summary(tmp_path)["stale"] == {}


def test_failures_are_shown(tmp_path):
    found = experiment(biharmonic=Filler("biharmonic", fails, is_seeded=False))
    assert run(tmp_path, "--only", "half=tuning", found=found) == 1
    assert r"ValueError: no \| such picture" in (tmp_path / "pictures.md").read_text(encoding="utf-8")


def test_a_quick_run_is_small_and_apart(tmp_path):
    names = {(CASES[t.row].picture, t.method) for t in command.plan(command.EVERYTHING, command.QUICK)}
    assert len(names) == 2 * 7
    assert run(tmp_path, "--quick", "--only", "method=inpaint", "picture=camera") == 0
    assert [record["row"] for record in Cells(tmp_path / "quick").all()] == ["camera 240 30%"]


# --- the page ---


@pytest.fixture(scope="module")
def records():
    """Records of all cells of the tiny experiment."""
    found = experiment()
    every = [*command.plan(found, {}), *command.plan(found, {"method": ["bm3d"], "half": ["tuning"]})]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "_warm_up", lambda *arguments: None)
        solved = [(task, found.solve(task)) for task in every]
    return [
        {"row": t.row, "method": t.method, "seed": t.seed, "settings": dict(t.settings)}
        | {"status": "done", "source": found.source(t.method), **outcome}
        for t, outcome in solved
    ]


def test_goals_are_judged_on_the_report_half(records):
    report = summarize(experiment(), records)
    small = report["groups"]["report 240"]
    assert small["all"]["n"] == 2
    assert small["kinds"]["random"]["ratio"] == pytest.approx(0.1 / 0.08)
    assert small["all"]["lowest"] == 0
    assert small["all"]["fast_ratio"] == pytest.approx(1.1)
    assert small["all"]["coverage"] == pytest.approx(0.9)
    assert small["all"]["expected_ratio"] == pytest.approx(1.0)
    own = report["groups"]["report own"]["all"]  # without FSR
    assert (own["ratio"], own["lowest"]) == (pytest.approx(0.5), 1)
    tuning = report["groups"]["tuning 240"]
    assert tuning["lines"][0]["best_other"] == "fsr_best"  # bm3d ran on request, and is compared apart
    assert tuning["masks"]["30%"]["slow_ratio"] == pytest.approx(10)
    assert (small["all"]["slow_n"], small["all"]["slow_ratio"]) == (0, None)
    (paper,) = report["paper"]
    assert paper["seeds"]["inpaint"] == 5
    assert paper["errors"]["inpaint"] == pytest.approx(0.1)


def test_the_page_says_what_is_met(records, tmp_path):
    for record in records:
        task = Task(record["row"], record["method"], record["seed"], record["settings"])
        Cells(tmp_path).put(task, record)
    assert run(tmp_path, "--report", "--page", str(tmp_path / "page.md")) == 0
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert text == (tmp_path / "pictures.md").read_text(encoding="utf-8")
    for part in (
        "random: geometric mean | ≤ 0.75 | 1.250 ✗ | 0.500 ✓ | 1.250 |",
        "share of problems with the lowest error | ≥ 0.9 | 0.000 ✗ | 1.000 ✓ | 0.000 |",
        "geometric mean | ≤ 1.1 | 1.100 ",
        "| Barbara 30% | 0.1000 | 0.1100 | 0.2000 | **0.0800** | – | 0.0185 | ✗ not the lowest |",
        "| 30% | 90.0 ✓ | 90.0 to 90.0 ✓ | 1.00 ×/÷ 1.00 |",
        "| 30% | 1 | 0.1000, 34.08, 0.9668 | 0.1100, ",
        "| 30% | 1 | 1.250 | 1.250 (camera) | 0 % | 1.100 | 10.000 | 0 % of 1 |",
        "| moon | patches | 0.1000 | 0.1100 | 0.2000 | **0.0800** |",
    ):
        assert part in text


def test_peers_alone_have_a_page(records):
    found = experiment()
    alone = [record for record in records if record["method"] == "biharmonic"]
    report = summarize(found, alone)
    text = command.page(found, report)
    assert "The goals" not in text
    assert "| Barbara 30% | **0.2000** | 0.0185 | – |" in text
    assert report["groups"]["report 240"]["all"] is None


def test_geometric_mean():
    assert geometric_mean([0.1, 10.0, 1.0]) == pytest.approx(1)


# --- time and memory ---


def test_methods_are_timed_in_turn_on_the_same_picture():
    row, names = "microaneurysms own text", ["biharmonic", "navier_stokes"]
    found = timing.ratios({"row": row, "methods": names, "rounds": 3, "threads": 1})
    assert found["ratios"]["biharmonic"] == 1
    assert min(found["seconds"].values()) > 0


def test_a_large_photograph_is_made_of_mirrored_copies():
    whole = timing.photograph((500, 1300))
    assert (whole.shape, whole.dtype) == ((500, 1300, 3), np.uint8)
    np.testing.assert_array_equal(whole[:, :600], whole[:, 1199:599:-1])
    np.testing.assert_array_equal(whole[:400, :600], np.rint(255 * picture("coffee", "own")))
    for name in ("random", "scratches"):
        assert 0.01 < 1 - timing.thin_mask(name, (600, 800)).mean() < 0.03


def test_growth_measures_one_call_as_a_user_makes_it(monkeypatch):
    calls = []

    def fake(image, mask, **options):
        calls.append((image.shape, image.dtype, options))
        return image

    monkeypatch.setattr(airnp, "inpaint", fake)
    case = {"method": "inpaint_fast", "mask": "random", "shape": [60, 80], "threads": 1}
    found = timing.growth(case)
    assert calls[-1] == ((60, 80, 3), np.uint8, {"seed": 0, "full": False, "quality": "fast"})
    assert len(calls) == 2  # the first compiles
    assert found["pixels"] == 4800
    assert found["missing"] == (~timing.thin_mask("random", (60, 80))).sum()
    assert found["megabytes"] >= found["before"] > 10


def test_compilation_is_what_the_first_call_takes_longer(monkeypatch):
    folders = []

    def fake(words, env, **options):
        folders.append(env["NUMBA_CACHE_DIR"])
        return SimpleNamespace(stdout=json.dumps({"seconds": 9.0 / len(folders)}))

    monkeypatch.setattr(timing.subprocess, "run", fake)
    assert timing.compilation({"threads": 1}) == {"compiled": 9.0, "cached": 4.5}
    assert folders[0] == folders[1]
    monkeypatch.setattr(airnp, "inpaint", lambda image, mask, **options: image)
    assert "seconds" in timing.first_call({"threads": 1})


def test_measurements_are_kept_and_shown(tmp_path, monkeypatch):
    outcomes = {
        "ratios": {
            "seconds": {"inpaint": 4.0, "biharmonic": 0.2},
            "ratios": {"inpaint": 20, "biharmonic": 1},
        },
        "growth": {"seconds": 3.0, "megabytes": 2500.0, "pixels": 100, "missing": 2},
        "compile": {"compiled": 12.0, "cached": 0.5},
    }

    def fake(folder, module, kind, case, *, label):
        assert module == "bench.pictures.measure"
        found = case | outcomes[kind]
        if kind == "growth":
            pixels = case["shape"][0] * case["shape"][1]
            found |= {"pixels": pixels, "missing": pixels // 50, "seconds": pixels / 1e5}
        cells.write_file(folder / f"{kind}.{label}.json", json.dumps(found))
        return found

    monkeypatch.setattr(command.measurements, "measure", fake)
    assert run(tmp_path, "--time", "--quick", "--threads", "1") == 0
    text = (tmp_path / "quick" / "pictures.md").read_text(encoding="utf-8")
    for part in (
        "| 240×240, 30 % missing | 1 | 200 ms | 20 (goal 30) ✓ | 1 |",
        "| 512×512×3 under text | 1 | 200 ms | 20 (goal 10) ✗ | 1 |",
        "| scratches | airnp | 750×1000×3 | 15000 | 7.5 s | 2500 MB ✗ |",
        "airnp 1.00 (scratches)",
        "takes 12.0 s longer than the next (goal 15 s) ✓, and 0.5 s longer",
    ):
        assert part in text


def test_times_are_measured_up_to_12_megapixels():
    every = timing.cases(2, quick=False)
    assert max(np.prod(case["shape"]) for kind, _, case in every if kind == "growth") == 12_000_000
    assert {case["threads"] for _, _, case in every} == {2}
    assert len({(kind, label) for kind, label, _ in every}) == len(every)
    assert len(timing.cases(2, quick=True)) < len(every)
    assert {kind for kind, _, _ in every} <= set(timing.KINDS)


def test_the_code_that_methods_name_is_there():
    named = {name for filler in METHODS.values() for name in filler.code}
    assert named
    assert all((cells._PACKAGE / name).exists() for name in named)

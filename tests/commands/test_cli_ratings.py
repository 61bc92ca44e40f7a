"""``airnp ratings``: real files, through the command line."""

import csv
import errno
import gzip
import os
import shlex
import sys

import numpy as np
import pytest
import scipy.sparse

import airnp
from airnp.tables import triples
from tests.commands.commandline import facts, main, mistake

QUICK = ["--max-iter", "10", "--rank", "2", "--threads", "1"]


def sample():
    """Ratings of 12 users for 9 items, a little more than half of them there."""
    rng = np.random.default_rng(0)
    there = rng.random((12, 9)) < 0.6
    there[:, 0] = there[0] = True
    there[0, 8] = False
    return there, rng.integers(1, 6, there.shape)


THERE, STARS = sample()
USERS = [f"user {place}" for place in range(12)]
ITEMS = [f'"film" {place}, the' for place in range(9)]


def lines(header=("who", "film", "stars", "when")):
    body = [[USERS[i], ITEMS[j], str(STARS[i, j]), "123"] for i, j in np.argwhere(THERE)]
    return [list(header), *body] if header else body


def put(path, rows, delimiter=","):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return path


def cells(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.fixture
def ratings(tmp_path):
    return put(tmp_path / "ratings.csv", lines())


@pytest.fixture(scope="module")
def fitted():
    """The fit that the command should make."""
    rows, columns = np.nonzero(THERE)
    matrix = scipy.sparse.coo_array((STARS[THERE].astype(float), (rows, columns)), shape=THERE.shape)
    return airnp.fit_ratings(matrix, rank=2, max_iter=10, seed=0, threads=1)


# --- predictions ---


def test_pairs_are_predicted_as_by_fit_ratings(ratings, fitted, tmp_path, capsys):
    wanted = [(3, 4), (0, 8), (3, 4), (11, 1)]
    pairs = put(tmp_path / "pairs.csv", [["who", "film"], *([USERS[i], ITEMS[j]] for i, j in wanted)])
    out = tmp_path / "out.csv"
    done = facts(capsys, "ratings", ratings, "-o", out, "--pairs", pairs, *QUICK)
    assert 0 < done.pop("seconds") < 60
    assert done == {
        "command": "ratings",
        "input": str(ratings),
        "output": str(out),
        "result": None,
        "checkpoint": None,
        "users": 12,
        "items": 9,
        "ratings": int(THERE.sum()),
        "header": True,
        "bounds": [1.0, 5.0],
        "rank": 2,
        "predictions": 4,
        "unknown_users": 0,
        "unknown_items": 0,
        "iterations": fitted.n_iter,
        "stop_reason": fitted.stop_reason,
        "seed": 0,
    }
    head, *body = cells(out)
    assert head == ["who", "film", "prediction"]
    assert [(user, item) for user, item, _ in body] == [(USERS[i], ITEMS[j]) for i, j in wanted]
    expected = fitted.predict(*np.transpose(wanted))
    np.testing.assert_array_equal([np.float32(value) for *_, value in body], expected)


def test_the_best_are_unseen_and_in_order(ratings, fitted, tmp_path):
    out = tmp_path / "out.csv"
    assert main("ratings", ratings, "-o", out, "--top", "2", "--quiet", *QUICK) == 0
    whole = np.where(THERE, -np.inf, fitted.X)
    expected = [
        [USERS[user], ITEMS[item]]
        for user in range(12)
        for item in np.argsort(-whole[user], kind="stable")[:2]
        if not THERE[user, item]
    ]
    assert [line[:2] for line in cells(out)[1:]] == expected


def test_ten_for_every_user_unless_told_and_only_for_some(ratings, tmp_path, capsys):
    out = tmp_path / "out.csv"
    assert main("ratings", ratings, "-o", out, "--users", USERS[3], USERS[0], USERS[3], *QUICK) == 0
    found = [user for user, *_ in cells(out)[1:]]
    assert found == [USERS[3]] * int((~THERE[3]).sum()) + [USERS[0]]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"{ratings}: {THERE.sum()} ratings of 9 items by 12 users (header)"
    assert shown[-1] == f"wrote {out}, {len(found)} predictions"


def test_what_is_clipped_keeps_its_order(tmp_path, fitted):
    """Many predictions are at the bound, and the best of them is still the best."""
    from dataclasses import replace

    from airnp.commands import ratings as predicting
    from airnp.data.bounds import Bounds

    given = triples.read(put(tmp_path / "r.csv", lines()))
    clipped = replace(fitted, bounds=Bounds.of((1, 1.5)))
    ratings = scipy.sparse.csr_array(THERE.astype(float))
    free = replace(fitted, bounds=None)
    found, expected = (
        predicting.best_items(result, given, ratings, 3, np.arange(12)) for result in (clipped, free)
    )
    assert found.items == expected.items
    assert set(found.values.tolist()) == {1.5}


def test_many_users_are_predicted_in_parts(ratings, tmp_path, monkeypatch):
    from airnp.commands import ratings as predicting

    for name, size in {"whole": 2**24, "parts": 20}.items():
        monkeypatch.setattr(predicting, "_CHUNK", size)
        assert main("ratings", ratings, "-o", tmp_path / f"{name}.csv", "--quiet", *QUICK) == 0
    whole, parts = (cells(tmp_path / f"{name}.csv") for name in ("whole", "parts"))
    assert [line[:2] for line in whole] == [line[:2] for line in parts]
    np.testing.assert_allclose(*([float(line[2]) for line in each[1:]] for each in (whole, parts)), rtol=1e-5)


def test_who_has_no_ratings_is_predicted_by_the_other_side(ratings, fitted, tmp_path, capsys):
    pairs = [["nobody", ITEMS[2]], [USERS[2], "nothing"], ["nobody", "nothing"], [USERS[2], ITEMS[2]]]
    file, out = put(tmp_path / "pairs.csv", [["who", "film"], *pairs]), tmp_path / "out.csv"
    assert main("ratings", ratings, "-o", out, "--pairs", file, *QUICK) == 0
    assert f"1 users and 1 items of {file} have no rating" in capsys.readouterr().out
    mean, rows, columns = fitted.offsets
    expected = [mean + columns[2], mean + rows[2], mean, fitted.predict(2, 2)]
    np.testing.assert_allclose([float(line[2]) for line in cells(out)[1:]], expected, rtol=1e-6)


def test_bounds_clip(ratings, tmp_path, capsys):
    words = ["ratings", ratings, "-o", tmp_path / "out.csv", *QUICK]
    assert facts(capsys, *words, "--bounds", "0", "9")["bounds"] == [0, 9]
    shown = mistake(capsys, *words, "--force", "--bounds", "1", "4")
    first = np.argwhere(THERE & (STARS > 4))[0]
    assert shown.startswith(f"{ratings}: {(THERE & (STARS > 4)).sum()} numbers are outside --bounds 1 4, the")
    assert shown.endswith(f"is 5 in user {USERS[first[0]]!r}, item {ITEMS[first[1]]!r}")


def test_the_model_is_saved(ratings, fitted, tmp_path):
    saved = tmp_path / "model.npz"
    assert main("ratings", ratings, "-o", tmp_path / "out.csv", "--result", saved, "--quiet", *QUICK) == 0
    np.testing.assert_array_equal(airnp.load(saved).X, fitted.X)


# --- reading ---


@pytest.mark.parametrize("kind", ["plain", "tsv", "gz", "semicolon", "columns", "numbers", "parquet"])
def test_ways_to_write_the_same_ratings(kind, ratings, tmp_path):
    words, path = [], tmp_path / "other.csv"
    if kind == "plain":
        put(path, lines(header=None))
    elif kind == "tsv":
        path = put(tmp_path / "other.tsv", lines(), "\t")
    elif kind == "gz":
        path = tmp_path / "other.csv.gz"
        path.write_bytes(gzip.compress(ratings.read_bytes()))
    elif kind == "semicolon":
        put(path, lines(), ";")
    elif kind in ("columns", "numbers"):
        put(path, [[line[3], line[2], line[0], line[1]] for line in lines()])
        words = ["--columns", *(("who", "film", "stars") if kind == "columns" else "342")]
    else:
        pandas = pytest.importorskip("pandas", reason="writes parquet files")
        pytest.importorskip("pyarrow", reason="parquet files need pyarrow")
        path = tmp_path / "other.parquet"
        pandas.read_csv(ratings).to_parquet(path)
    for source, name, more in ((ratings, "a.csv", []), (path, "b.csv", words)):
        assert main("ratings", source, "-o", tmp_path / name, "--quiet", *QUICK, *more) == 0
    first, second = (cells(tmp_path / name) for name in ("a.csv", "b.csv"))
    assert first[1:] == second[1:]
    assert second[0] == (["user", "item", "prediction"] if kind == "plain" else first[0])


def test_labels_that_are_numbers_are_no_numbers_of_columns(tmp_path):
    """Without a header, the first line could name columns 1, 2 and 3 in another order."""
    path = tmp_path / "r.csv"
    path.write_text("3,1,2\n1,3,4\n2,2,5\n", encoding="utf-8")
    found = triples.read(path)
    assert found.names is None
    assert (found.users, found.items) == (["3", "1", "2"], ["1", "3", "2"])
    np.testing.assert_array_equal(found.values, [2, 4, 5])


@pytest.mark.parametrize(("words", "count"), [([], 2), (["--no-header"], 3), (["--header"], 2)])
def test_a_first_line_that_names_nobody_is_a_header(words, count, tmp_path, capsys):
    source = put(tmp_path / "r.csv", lines(header=None if "--no-header" in words else ("a", "b", "c", "d")))
    pairs = put(tmp_path / "p.csv", [["x", "y"], [USERS[0], ITEMS[0]], ["x", ITEMS[0]]])
    done = facts(capsys, "ratings", source, "-o", tmp_path / "o.csv", "--pairs", pairs, *words, *QUICK)
    assert done["predictions"] == count


def test_parquet_keeps_the_kind_of_labels(tmp_path):
    pandas = pytest.importorskip("pandas", reason="reads parquet files")
    pytest.importorskip("pyarrow", reason="parquet files need pyarrow")
    users, items = np.nonzero(THERE)
    pandas.DataFrame({"u": users, "i": items, "r": STARS[THERE]}).to_parquet(tmp_path / "r.parquet")
    put(tmp_path / "p.csv", [["u", "i"], ["3", "4"]])
    words = ["ratings", tmp_path / "r.parquet", "--quiet", *QUICK]
    assert main(*words, "-o", tmp_path / "best.parquet", "--top", "1", "--users", "3", "5") == 0
    best = pandas.read_parquet(tmp_path / "best.parquet")
    assert list(best.columns) == ["u", "i", "prediction"]
    assert best["u"].tolist() == [3, 5]
    assert main(*words, "-o", tmp_path / "p.out.csv", "--pairs", tmp_path / "p.csv") == 0
    assert cells(tmp_path / "p.out.csv")[1][:2] == ["3", "4"]


def test_a_pair_that_is_rated_twice(tmp_path, capsys):
    again = put(tmp_path / "r.csv", [*lines(), [USERS[0], ITEMS[1], "9", ""], [USERS[0], ITEMS[1], "8", ""]])
    words = ["ratings", again, "-o", tmp_path / "o.csv", *QUICK]
    assert mistake(capsys, *words) == (
        f"{again}: 2 ratings are of pairs that have one already, such as user {USERS[0]!r}, item "
        f"{ITEMS[1]!r}; --repeated last or mean says what counts"
    )
    from airnp.commands.ratings import matrix_of

    given = triples.read(again)
    assert matrix_of(given, "last", again).toarray()[0, 1] == 8
    assert matrix_of(given, "mean", again).toarray()[0, 1] == pytest.approx((STARS[0, 1] + 17) / 3)
    assert main(*words, "--repeated", "last") == 0


# --- mistakes ---


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there are no entries in it"),
        ("user,item,rating\n", "there are no entries in it"),
        ("a,b\nc,d\n", "there is no column '3' among the 2: 'a', 'b'"),
        ("u,i,r\na,b,1\nc,d\n", "line 3 has 2 cells, expected at least 3"),
        ("u,i,r\na,b,1\n\n,d,2\n", "line 4: the user is missing"),
        ("u,i,r\na,b,1\nc,,2\n", "line 3: the item is missing"),
        ("u,i,r\na,b,1\nc,d,good\n", "line 3: 'good' is no rating, expected a number"),
        ("u,i,r\na,b,1\nc,d,\n", "line 3: '' is no rating, expected a number"),
        ("u,i,r\na,b,1\nc,d,inf\n", "line 3: 'inf' is no rating, expected a number"),
        ("u,prediction,r\na,b,1\nc,d,2\n", "expected other names of columns than u, prediction, prediction"),
        ("u,i,r\na,b,1\xff\n", "expected text in UTF-8"),
        ('u,i,r\n"a,b,1\n', "cannot be read as .csv (unexpected end of data)"),
    ],
)
def test_a_file_that_is_no_table_of_ratings(text, message, tmp_path, capsys):
    path = tmp_path / "r.csv"
    path.write_bytes(text.encode("latin-1"))
    shown = mistake(capsys, "ratings", path, "-o", tmp_path / "o.csv", *QUICK)
    assert shown.startswith(f"{path}: {message}")
    assert not (tmp_path / "o.csv").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("none.csv -o o.csv", "[Errno 2] No such file or directory: 'none.csv'"),
        ("r.csv -o o.npz", "o.npz: expected a name that ends in one of .csv, .csv.gz, .tsv, .tsv.gz, .p"),
        ("r.npy -o o.csv", "r.npy: expected a name that ends in one of .csv,"),
        ("r.csv -o r.csv", "r.csv is there already; --force overwrites"),
        ("r.csv -o o.csv --result r.csv", "--result: expected a name that ends in .npz"),
        ("r.csv -o o.csv --users eve 'user 1'", "--users: there are no ratings by 'eve'"),
        ("r.csv -o o.csv --pairs r.csv --top 3", "--top: not with --pairs, which says"),
        ("r.csv -o o.csv --pairs r.csv --users a", "--users: not with --pairs"),
        ("r.csv -o o.csv --columns who film x", "r.csv: there is no column 'x' among the 4"),
        ("r.csv -o o.csv --columns 1 2 9", "r.csv: there is no column '9' among the 4"),
        ("r.csv -o o.csv --no-header", "r.csv: line 1: 'stars' is no rating"),
        ("r.csv -o o.csv --bounds 5 1", "--bounds: expected LOW <= HIGH, got 5 1"),
        ("r.csv -o o.csv --rank 10", "--rank: expected at most min(m, n) = 9"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(words, message, ratings, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ratings.rename("r.csv")
    before = sorted(tmp_path.iterdir())
    assert mistake(capsys, "ratings", *shlex.split(words), "--threads", "1").startswith(message)
    assert sorted(tmp_path.iterdir()) == before


def test_parquet_without_its_package(ratings, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    shown = mistake(capsys, "ratings", ratings, "-o", tmp_path / "o.parquet")
    assert shown == 'parquet files need pandas and pyarrow: pip install "airnp[tables]"'


@pytest.mark.parametrize("column", ["u", "r"])
def test_parquet_with_gaps(column, tmp_path, capsys):
    pandas = pytest.importorskip("pandas", reason="writes parquet files")
    pytest.importorskip("pyarrow", reason="parquet files need pyarrow")
    frame = pandas.DataFrame({"u": ["a", "b"], "i": ["x", "y"], "r": [1.0, 2.0]})
    frame.loc[1, column] = None
    path = tmp_path / "r.parquet"
    frame.to_parquet(path)
    shown = mistake(capsys, "ratings", path, "-o", tmp_path / "o.csv")
    assert shown == f"{path}: row 2: column {column!r} has no value"
    pandas.DataFrame({"u": ["a"], "i": ["x"], "r": ["good"]}).to_parquet(path)
    assert (
        mistake(capsys, "ratings", path, "-o", tmp_path / "o.csv") == f"{path}: column 'r': expected numbers"
    )


def test_a_full_disk(ratings, tmp_path, capsys, monkeypatch):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(os, "replace", full)
    shown = mistake(capsys, "ratings", ratings, "-o", tmp_path / "o.csv", "--quiet", *QUICK, code=1)
    assert shown == f"could not write {tmp_path / 'o.csv'}: [Errno 28] No space left"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ratings.csv"]


def test_ctrl_c(ratings, tmp_path, capsys, monkeypatch):
    from airnp.training.sparse_loop import SparseLoop

    step, calls = SparseLoop._step, []

    def interrupted(loop, training):
        calls.append(training.iteration)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return step(loop, training)

    monkeypatch.setattr(SparseLoop, "_step", interrupted)
    assert main("ratings", ratings, "-o", tmp_path / "o.csv", *QUICK) == 130
    assert f"wrote the result so far to {tmp_path / 'o.csv'}, " in capsys.readouterr().out
    assert len(cells(tmp_path / "o.csv")) > 1


# --- runs that go on ---


def interrupted_at(monkeypatch, moment):
    """Let Ctrl-C come once, before an iteration of all that are made."""
    from airnp.training.sparse_loop import SparseLoop

    step, calls = SparseLoop._step, []

    def interrupted(loop, training):
        calls.append(training.iteration)
        if len(calls) == moment:
            raise KeyboardInterrupt
        return step(loop, training)

    monkeypatch.setattr(SparseLoop, "_step", interrupted)


@pytest.mark.parametrize("moment", [4, 12])
def test_an_interrupted_run_goes_on(ratings, tmp_path, capsys, monkeypatch, moment):
    run, out, whole = tmp_path / "run.npz", tmp_path / "out.csv", tmp_path / "whole.csv"
    done = facts(capsys, "ratings", ratings, "-o", whole, *QUICK, "--seed", "3", "--bounds", "0", "6")
    words = [*QUICK, "--seed", "3", "--bounds", "0", "6", "--checkpoint", run, "--quiet"]
    with monkeypatch.context() as patch:
        interrupted_at(patch, moment)
        assert main("ratings", ratings, "-o", out, *words) == 130
    assert out.read_bytes() != whole.read_bytes()
    shown = mistake(capsys, "ratings", ratings, "-o", out, "--resume", run)
    assert shown.startswith(f"{out} is there already")
    more = facts(capsys, "ratings", ratings, "-o", out, "--resume", run, "--force")
    assert out.read_bytes() == whole.read_bytes()
    assert more == {**done, "output": str(out), "checkpoint": str(run), "seconds": more["seconds"]}
    assert main("ratings", ratings, "-o", tmp_path / "again.csv", "--resume", run) == 0
    assert f"{done['iterations']} iterations in all, after 0." in capsys.readouterr().out


def test_what_cannot_be_resumed(ratings, fitted, tmp_path, capsys, monkeypatch):
    run, out = tmp_path / "run.npz", tmp_path / "out.csv"
    with monkeypatch.context() as patch:
        interrupted_at(patch, 4)
        assert main("ratings", ratings, "-o", out, *QUICK, "--checkpoint", run, "--quiet") == 130
    words = ["-o", out, "--force", "--resume", run]
    for option in (["--rank", "3"], ["--seed", "0"], ["--bounds", "1", "5"]):
        shown = mistake(capsys, "ratings", ratings, *words, *option)
        assert shown == f"{option[0]} cannot be given with --resume: {run} says how the run fits"
    changed = lines()
    changed[5][2] = "1" if changed[5][2] != "1" else "2"
    other = put(tmp_path / "other.csv", changed)
    shown = mistake(capsys, "ratings", other, *words)
    assert shown == f"{other}: expected the ratings that the run in {run} fits"
    shown = mistake(capsys, "ratings", ratings, *words, "--max-iter", "3")
    assert shown == "--max-iter: expected at least the 10 that the run was to have, got 3"
    fitted.save(tmp_path / "result.npz")
    (tmp_path / "junk.npz").write_bytes(b"PK\x03\x04 junk")
    airnp.fit(np.eye(4), max_iter=1, stop=None, seed=0, checkpoint=tmp_path / "dense.npz")
    for name, message in (
        ("result.npz", "holds a result, but no run to go on with; see --checkpoint"),
        ("junk.npz", "not a result saved by airnp, or damaged"),
        ("dense.npz", "holds no run of airnp ratings"),
    ):
        words[-1] = tmp_path / name
        assert mistake(capsys, "ratings", ratings, *words).startswith(f"{tmp_path / name}: {message}")


def test_mistakes_with_checkpoints(ratings, tmp_path, capsys):
    words = ["ratings", ratings, "-o", tmp_path / "o.csv"]
    shown = mistake(capsys, *words, "--checkpoint", tmp_path / "run.csv")
    assert shown.startswith("--checkpoint: expected a name that ends in .npz")
    shown = mistake(capsys, *words, "--checkpoint-every", "3")
    assert shown == "--checkpoint-every goes with --checkpoint or --resume"
    run = tmp_path / "run.npz"
    assert mistake(capsys, *words, "--result", run, "--checkpoint", run).endswith("are the same file")

"""``airnp ratings``: real files, through the command line."""

import csv
import errno
import gzip
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import airnp
from airnp.commands import ratings as command
from airnp.data.bounds import Bounds
from airnp.results import ratings_model
from airnp.tables import triples
from airnp.training.steps import Steps
from tests.commands.commandline import cells, facts, main, mistake

QUICK = "--max-iter 10 --rank 2 --threads 1"


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


def write(name, rows, delimiter=","):
    with open(name, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)


@pytest.fixture(autouse=True)
def ratings(folder):
    """The file ``ratings.csv`` in the current folder."""
    write("ratings.csv", lines())


@pytest.fixture(scope="module")
def fitted():
    """The fit that the command should make."""
    rows, columns = np.nonzero(THERE)
    matrix = scipy.sparse.coo_array((STARS[THERE].astype(float), (rows, columns)), shape=THERE.shape)
    return airnp.fit_ratings(matrix, rank=2, max_iter=10, seed=0, engine=airnp.CPU(threads=1))


@pytest.fixture
def pandas():
    """The package pandas, which writes parquet files."""
    pytest.importorskip("pyarrow", reason="parquet files need pyarrow")
    return pytest.importorskip("pandas", reason="writes parquet files")


def interrupt_at(monkeypatch, moment):
    """Let Ctrl-C come in the portion of iterations of this number, if any; return the list of portions."""
    attempt, calls = Steps.attempt, []

    def interrupted(steps, iterations):
        calls.append(iterations)
        if len(calls) == moment:
            raise KeyboardInterrupt
        return attempt(steps, iterations)

    monkeypatch.setattr(Steps, "attempt", interrupted)
    return calls


# --- predictions ---


def test_pairs_are_predicted_as_by_fit_ratings(fitted, capsys):
    wanted = [(3, 4), (0, 8), (3, 4), (11, 1)]
    write("pairs.csv", [["who", "film"], *([USERS[i], ITEMS[j]] for i, j in wanted)])
    done = facts(capsys, f"ratings ratings.csv -o out.csv --pairs pairs.csv {QUICK}")
    assert done.pop("seconds") > 0
    assert done == {
        "command": "ratings",
        "input": "ratings.csv",
        "output": "out.csv",
        "result": None,
        "checkpoint": None,
        "users": 12,
        "items": 9,
        "ratings": int(THERE.sum()),
        "header": True,
        "held_out": "random",
        "bounds": [1.0, 5.0],
        "rank": 2,
        "predictions": 4,
        "unknown_users": 0,
        "unknown_items": 0,
        "iterations": fitted.n_iter,
        "stop_reason": fitted.stop_reason,
        "seed": 0,
    }
    head, *body = cells("out.csv")
    assert head == ["who", "film", "prediction"]
    assert [(user, item) for user, item, _ in body] == [(USERS[i], ITEMS[j]) for i, j in wanted]
    expected = fitted.predict(*np.transpose(wanted))
    np.testing.assert_array_equal([np.float32(value) for *_, value in body], expected)


def test_the_best_items_are_unseen_and_in_order(fitted):
    assert main(f"ratings ratings.csv -o out.csv --top 2 --quiet --result model.npz {QUICK}") == 0
    whole = np.where(THERE, -np.inf, fitted.X)
    expected = [
        [USERS[user], ITEMS[item]]
        for user in range(12)
        for item in np.argsort(-whole[user], kind="stable")[:2]
        if not THERE[user, item]
    ]
    assert [line[:2] for line in cells("out.csv")[1:]] == expected
    np.testing.assert_array_equal(airnp.load("model.npz").X, fitted.X)


def test_ten_items_by_default_and_only_for_some_users(capsys):
    assert main(f"ratings ratings.csv -o out.csv --users 'user 3' 'user 0' 'user 3' {QUICK}") == 0
    found = [user for user, *_ in cells("out.csv")[1:]]
    assert found == [USERS[3]] * int((~THERE[3]).sum()) + [USERS[0]]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"ratings.csv: {THERE.sum()} ratings of 9 items by 12 users (header)"
    assert shown[-1] == f"wrote out.csv, {len(found)} predictions"


def test_clipped_predictions_keep_their_order(fitted):
    found, expected = (
        command.best_items(replace(fitted, bounds=bounds), 3, np.arange(12))
        for bounds in (Bounds.of((1, 1.5)), None)
    )
    assert found.items == expected.items
    assert set(found.values.tolist()) == {1.5}


def test_many_users_are_predicted_in_parts(monkeypatch):
    for name, size in {"whole": 2**24, "parts": 20}.items():
        monkeypatch.setattr(ratings_model, "_CHUNK", size)
        assert main(f"ratings ratings.csv -o {name}.csv --quiet {QUICK}") == 0
    whole, parts = cells("whole.csv"), cells("parts.csv")
    assert [line[:2] for line in whole] == [line[:2] for line in parts]
    np.testing.assert_allclose(*([float(line[2]) for line in each[1:]] for each in (whole, parts)), rtol=1e-5)


def test_users_and_items_without_ratings_are_predicted_by_the_other_side(fitted, capsys):
    pairs = [["nobody", ITEMS[2]], [USERS[2], "nothing"], ["nobody", "nothing"], [USERS[2], ITEMS[2]]]
    write("pairs.csv", [["who", "film"], *pairs])
    assert main(f"ratings ratings.csv -o out.csv --pairs pairs.csv {QUICK}") == 0
    assert "1 users and 1 items of pairs.csv have no rating" in capsys.readouterr().out
    mean, rows, columns = fitted.offsets
    expected = [mean + columns[2], mean + rows[2], mean, fitted.predict(2, 2)]
    np.testing.assert_allclose([float(line[2]) for line in cells("out.csv")[1:]], expected, rtol=1e-6)


def test_bounds(capsys):
    line = f"ratings ratings.csv -o out.csv {QUICK} --bounds"
    assert facts(capsys, f"{line} 0 9")["bounds"] == [0, 9]
    shown = mistake(capsys, f"{line} 1 4 --force")
    first = np.argwhere(THERE & (STARS > 4))[0]
    count = (THERE & (STARS > 4)).sum()
    assert shown.startswith(f"ratings.csv: {count} numbers are outside --bounds 1 4, the")
    assert shown.endswith(f"is 5 in user {USERS[first[0]]!r}, item {ITEMS[first[1]]!r}")


# --- reading ---


@pytest.mark.parametrize("kind", ["plain", "tsv", "gz", "semicolon", "names", "numbers", "parquet"])
def test_ways_to_write_the_same_ratings(kind, request):
    words, name = "", "other.csv"
    if kind == "plain":
        write(name, lines(header=None))
    elif kind == "tsv":
        name = "other.tsv"
        write(name, lines(), "\t")
    elif kind == "gz":
        name = "other.csv.gz"
        Path(name).write_bytes(gzip.compress(Path("ratings.csv").read_bytes()))
    elif kind == "semicolon":
        write(name, lines(), ";")
    elif kind in ("names", "numbers"):
        write(name, [[line[3], line[2], line[0], line[1]] for line in lines()])
        words = "--columns who film stars" if kind == "names" else "--columns 3 4 2"
    else:
        name = "other.parquet"
        request.getfixturevalue("pandas").read_csv("ratings.csv").to_parquet(name)
    assert main(f"ratings ratings.csv -o a.csv --quiet {QUICK}") == 0
    assert main(f"ratings {name} -o b.csv --quiet {QUICK} {words}") == 0
    first, second = cells("a.csv"), cells("b.csv")
    assert first[1:] == second[1:]
    assert second[0] == (["user", "item", "prediction"] if kind == "plain" else first[0])


def test_numbers_in_the_first_line_are_no_names_of_columns():
    """Without a header, the first line could name columns 1, 2 and 3 in another order."""
    Path("r.csv").write_text("3,1,2\n1,3,4\n2,2,5\n", encoding="utf-8")
    found = triples.read(Path("r.csv"))
    assert found.names is None
    assert (found.users, found.items) == (["3", "1", "2"], ["1", "3", "2"])
    np.testing.assert_array_equal(found.values, [2, 4, 5])


@pytest.mark.parametrize(("words", "count"), [("", 2), ("--no-header", 3), ("--header", 2)])
def test_a_first_line_that_names_nobody_is_a_header(words, count, capsys):
    write("r.csv", lines(header=None if words == "--no-header" else ("a", "b", "c", "d")))
    write("p.csv", [["x", "y"], [USERS[0], ITEMS[0]], ["x", ITEMS[0]]])
    done = facts(capsys, f"ratings r.csv -o o.csv --pairs p.csv {words} {QUICK}")
    assert done["predictions"] == count


def test_parquet_keeps_the_kind_of_labels(pandas):
    users, items = np.nonzero(THERE)
    pandas.DataFrame({"u": users, "i": items, "r": STARS[THERE]}).to_parquet("r.parquet")
    write("p.csv", [["u", "i"], ["3", "4"]])
    line = f"ratings r.parquet --quiet {QUICK}"
    assert main(f"{line} -o best.parquet --top 1 --users 3 5") == 0
    best = pandas.read_parquet("best.parquet")
    assert list(best.columns) == ["u", "i", "prediction"]
    assert best["u"].tolist() == [3, 5]
    assert main(f"{line} -o p.out.csv --pairs p.csv") == 0
    assert cells("p.out.csv")[1][:2] == ["3", "4"]


def test_a_pair_that_is_rated_twice(capsys):
    path = Path("r.csv")
    write(path, [*lines(), [USERS[0], ITEMS[1], "9", ""], [USERS[0], ITEMS[1], "8", ""]])
    assert mistake(capsys, f"ratings r.csv -o o.csv {QUICK}") == (
        f"r.csv: 2 ratings are of pairs that have one already, such as user {USERS[0]!r}, item "
        f"{ITEMS[1]!r}; --repeated last or mean says what counts"
    )
    table = triples.read(path)
    assert command.matrix_of(table, "last", path)[0].toarray()[0, 1] == 8
    mean = command.matrix_of(table, "mean", path)[0].toarray()[0, 1]
    assert mean == pytest.approx((STARS[0, 1] + 17) / 3)
    assert main(f"ratings r.csv -o o.csv {QUICK} --repeated last") == 0


def test_columns_are_found_by_their_names():
    write(
        "other.csv",
        [
            [line[3], line[2], line[0], line[1]]
            for line in lines(("userId", "movieId", "rating", "timestamp"))
        ],
    )
    found, same = (
        triples.read(Path("other.csv"), triples.Layout(by_name=True)),
        triples.read(Path("ratings.csv")),
    )
    assert (found.users, found.items, found.names) == (
        same.users,
        same.items,
        ["userId", "movieId", "rating"],
    )
    np.testing.assert_array_equal(found.values, same.values)


def test_names_that_disagree_with_positions_are_refused(capsys):
    write("other.csv", [[line[3], *line[:3]] for line in lines(("userId", "thing", "rating", "timestamp"))])
    assert mistake(capsys, f"ratings other.csv -o o.csv {QUICK}") == (
        "other.csv: cannot tell which columns are user, item, rating among 'timestamp', 'userId', 'thing', "
        "'rating'; --columns decides"
    )
    assert main(f"ratings other.csv -o o.csv {QUICK} --columns userId thing rating --quiet") == 0


def test_files_of_movielens():
    Path("u.data").write_text("1\t7\t4\t881250949\n2\t7\t3\t891717742\n", encoding="utf-8")
    Path("ratings.dat").write_text("1::7::4::881250949\n2::7::3::891717742\n", encoding="utf-8")
    for name in ("u.data", "ratings.dat"):
        found = triples.read(Path(name), triples.Layout(by_name=True))
        assert (found.users, found.items, found.values.tolist()) == (["1", "2"], ["7"], [4, 3])


# --- saved models ---


def test_a_saved_model_predicts_without_a_fit(capsys, monkeypatch):
    write("pairs.csv", [["who", "film"], [USERS[3], ITEMS[4]], ["nobody", ITEMS[2]]])
    assert main(f"ratings ratings.csv -o best.csv --top 3 --result model.npz --quiet {QUICK}") == 0
    assert main(f"ratings ratings.csv -o pairs.out.csv --pairs pairs.csv --quiet {QUICK}") == 0
    Path("ratings.csv").unlink()
    monkeypatch.setattr(Steps, "attempt", None)
    assert main("ratings --model model.npz -o again.csv --top 3 --quiet") == 0
    assert cells("again.csv")[1:] == cells("best.csv")[1:]
    done = facts(capsys, "ratings --model model.npz -o again.pairs.csv --pairs pairs.csv")
    assert cells("again.pairs.csv") == cells("pairs.out.csv")
    assert (done["predictions"], done["unknown_users"], done["unknown_items"]) == (2, 1, 0)


def test_errors_on_other_ratings(fitted, capsys):
    pairs = np.argwhere(~THERE)[:6]
    write("test.csv", [["who", "film", "stars"], *([USERS[i], ITEMS[j], STARS[i, j]] for i, j in pairs)])
    line = f"ratings ratings.csv -o out.csv --result m.npz --test test.csv {QUICK}"
    found = facts(capsys, line)["test"]
    errors = fitted.predict(*pairs.T) - STARS[tuple(pairs.T)]
    assert found["ratings"] == 6
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-5)
    assert found["mae"] == pytest.approx(np.mean(np.abs(errors)), rel=1e-5)
    assert facts(capsys, "ratings --model m.npz -o again.csv --test test.csv")["test"] == found
    assert main("ratings --model m.npz -o third.csv --test test.csv") == 0
    assert f"on 6 other ratings: rmse {found['rmse']:.4f}" in capsys.readouterr().out


def test_what_does_not_go_with_a_saved_model(fitted, capsys):
    fitted.save("model.npz")
    airnp.fit(np.eye(4), max_iter=1, stop=None, seed=0).save("dense.npz")
    either = "expected a file of ratings to fit, or --model with a saved model to predict by"
    for words, message in {
        "ratings.csv --model model.npz": either,
        "": either,
        "--model model.npz --rank 3": "--rank: not with --model, which is fitted already",
        "--model model.npz --users eve": "--users: there are no ratings by 'eve'",
        "--model dense.npz": "dense.npz: holds no model of ratings; airnp ratings --result saves one",
    }.items():
        assert mistake(capsys, f"ratings {words} -o out.csv") == message


# --- times ---


def test_times_of_a_file():
    for name, text in {
        "u.data": "1\t7\t4\t881250949\n2\t7\t3\t891717742\n",
        "t.csv": "userId,itemId,rating,date\na,x,1,1997-12-04 15:55:49\nb,x,2,1998-04-04\n",
    }.items():
        Path(name).write_text(text, encoding="utf-8")
        first, second = triples.read(Path(name), triples.Layout(by_name=True)).times
        assert first < second
    write("t.csv", [["userId", "itemId", "rating", "when"], ["a", "x", 1, "soon"], ["b", "x", 2, 1]])
    assert triples.read(Path("t.csv"), triples.Layout(by_name=True)).times is None
    assert triples.read(Path("u.data"), triples.Layout(("1", "2", "3"))).times is None


def test_times_of_parquet(pandas):
    frame = pandas.DataFrame({"user": ["a", "b"], "item": [1, 1], "rating": [1.0, 2.0]})
    when = pandas.to_datetime(["2020-01-02", "2020-01-01"])
    for times, expected in ((when, [1, 0]), ([2.0, 1.0], [1, 0]), (["x", "y"], None)):
        frame.assign(time=times).to_parquet("t.parquet")
        found = triples.read(Path("t.parquet"), triples.Layout(by_name=True)).times
        assert expected == (None if found is None else np.argsort(found).tolist())


def test_the_latest_ratings_choose(capsys):
    rows = lines(("userId", "itemId", "rating", "timestamp"))
    for number, row in enumerate(rows[1:]):
        row[3] = str(7 * number % 50)
    write("r.csv", rows)
    assert facts(capsys, f"ratings r.csv -o o.csv {QUICK}")["held_out"] == "the latest"


# --- who used what ---


def test_who_used_what(capsys):
    write("used.csv", [[row[0], row[1]] for row in lines(("user", "film"))])
    write("later.csv", [["user", "film"], *([USERS[i], ITEMS[j]] for i, j in np.argwhere(~THERE)[:5])])
    words = "--rank 4 --threads 1 --test later.csv"
    done = facts(capsys, f"ratings used.csv --implicit -o o.csv --top 2 --result m.npz {words}")
    model = airnp.fit_implicit(
        ([USERS[i] for i, _ in np.argwhere(THERE)], [ITEMS[j] for _, j in np.argwhere(THERE)]),
        rank=4,
        seed=0,
        engine=airnp.CPU(threads=1),
    )
    best = model.recommend_all(2)
    assert [row[:2] for row in cells("o.csv")[1:]] == [list(pair) for pair in zip(*best[:2], strict=True)]
    assert (done["pairs"], done["header"], done["test"]["pairs"]) == (THERE.sum(), True, 5)
    again = facts(capsys, "ratings --model m.npz -o again.csv --top 2 --test later.csv")
    assert again["test"] == done["test"]
    assert cells("again.csv")[1:] == cells("o.csv")[1:]
    write("pairs.csv", [["who", "film"], [USERS[3], ITEMS[4]], ["nobody", ITEMS[2]]])
    assert main("ratings --model m.npz -o p.csv --pairs pairs.csv") == 0
    assert main(f"ratings used.csv --implicit -o third.csv {words}") == 0
    assert "on 5 other pairs: precision" in capsys.readouterr().out


def test_a_file_without_a_header_of_who_used_what(capsys):
    write("used.csv", [[row[0], row[1]] for row in lines(None)])
    done = facts(capsys, "ratings used.csv --implicit -o o.csv --rank 2 --threads 1")
    assert (done["pairs"], done["header"]) == (THERE.sum(), False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--implicit --bounds 1 5", "--bounds: not with --implicit, which has no ratings"),
        ("--implicit --repeated last", "--repeated: not with --implicit, which has no ratings"),
        ("--implicit --columns who film stars", "--columns: expected those with user and item, got who, "),
        ("--columns who film", "--columns: expected those with user, item and rating, got who, film"),
    ],
)
def test_options_that_do_not_go_with_what_is_read(words, message, capsys):
    assert mistake(capsys, f"ratings ratings.csv -o o.csv {words}").startswith(message)


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
def test_a_file_that_is_no_table_of_ratings(text, message, capsys):
    Path("r.csv").write_bytes(text.encode("latin-1"))
    assert mistake(capsys, f"ratings r.csv -o o.csv {QUICK}").startswith(f"r.csv: {message}")
    assert not Path("o.csv").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("none.csv -o o.csv", "[Errno 2] No such file or directory: 'none.csv'"),
        ("r.csv -o o.npz", "o.npz: expected a name that ends in one of .csv, .csv.gz, .tsv, .tsv.gz, .p"),
        ("r.npy -o o.csv", "r.npy: expected a name that ends in one of .csv,"),
        ("r.csv -o r.csv", "r.csv is there already; --force overwrites"),
        ("r.csv -o o.csv --result r.csv", "--result: expected a name that ends in .npz"),
        ("r.csv -o o.csv --checkpoint r.csv", "--checkpoint: expected a name that ends in .npz"),
        ("r.csv -o o.csv --checkpoint-every 3", "--checkpoint-every goes with --checkpoint or --resume"),
        ("r.csv -o o.csv --result r.npz --checkpoint r.npz", "--checkpoint and --result are the same file"),
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
def test_a_mistake_is_explained_in_one_line(words, message, folder, capsys):
    Path("ratings.csv").rename("r.csv")
    before = sorted(folder.iterdir())
    assert mistake(capsys, f"ratings {words} --threads 1").startswith(message)
    assert sorted(folder.iterdir()) == before


def test_parquet_without_its_package(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    shown = mistake(capsys, "ratings ratings.csv -o o.parquet")
    assert shown == 'parquet files need pandas and pyarrow: pip install "airnp[tables]"'


@pytest.mark.parametrize(
    ("users", "stars", "message"),
    [
        (["a", None], [1.0, 2.0], "row 2: column 'u' has no value"),
        (["a", "b"], [1.0, None], "row 2: column 'r' has no value"),
        (["a", "b"], ["good", "bad"], "column 'r': expected numbers"),
    ],
)
def test_parquet_with_gaps_and_text(users, stars, message, pandas, capsys):
    pandas.DataFrame({"u": users, "i": ["x", "y"], "r": stars}).to_parquet("r.parquet")
    assert mistake(capsys, "ratings r.parquet -o o.csv") == f"r.parquet: {message}"


def test_a_full_disk(folder, capsys, monkeypatch):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(os, "replace", full)
    shown = mistake(capsys, f"ratings ratings.csv -o o.csv --quiet {QUICK}", code=1)
    assert shown == "could not write o.csv: [Errno 28] No space left"
    assert sorted(path.name for path in folder.iterdir()) == ["ratings.csv"]


# --- interrupted and resumed runs ---


def test_ctrl_c_writes_the_result_so_far(capsys, monkeypatch):
    interrupt_at(monkeypatch, 2)
    assert main(f"ratings ratings.csv -o o.csv {QUICK}") == 130
    assert "wrote the result so far to o.csv, " in capsys.readouterr().out
    assert len(cells("o.csv")) > 1


def test_an_interrupted_run_goes_on(capsys, monkeypatch):
    words = f"{QUICK} --seed 3 --bounds 0 6"
    with monkeypatch.context() as patch:
        portions = interrupt_at(patch, None)
        done = facts(capsys, f"ratings ratings.csv -o whole.csv {words}")
    whole, out = Path("whole.csv").read_bytes(), Path("out.csv")
    with monkeypatch.context() as patch:
        interrupt_at(patch, len(portions))
        assert main(f"ratings ratings.csv -o out.csv {words} --checkpoint run.npz --quiet") == 130
    assert out.read_bytes() != whole
    line = "ratings ratings.csv --resume run.npz -o"
    assert mistake(capsys, f"{line} out.csv").startswith("out.csv is there already")
    more = facts(capsys, f"{line} out.csv --force")
    assert out.read_bytes() == whole
    assert more == {**done, "output": "out.csv", "checkpoint": "run.npz", "seconds": more["seconds"]}
    assert main(f"{line} again.csv") == 0
    shown = capsys.readouterr().out
    assert re.search(rf"\n{done['iterations']} iterations in all, after \d+\.\d s more: ", shown)


def test_an_interrupt_while_settings_are_chosen_saves_no_run(monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2)
        assert main(f"ratings ratings.csv -o out.csv {QUICK} --checkpoint run.npz --quiet") == 130
    assert Path("out.csv").exists()
    assert not Path("run.npz").exists()


def test_runs_that_cannot_be_resumed(fitted, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        portions = interrupt_at(patch, None)
        assert main(f"ratings ratings.csv -o whole.csv --quiet {QUICK}") == 0
    with monkeypatch.context() as patch:
        interrupt_at(patch, len(portions))
        assert main(f"ratings ratings.csv -o out.csv {QUICK} --checkpoint run.npz --quiet") == 130
    fitted.save("result.npz")
    Path("junk.npz").write_bytes(b"PK\x03\x04 junk")
    airnp.fit(np.eye(4), max_iter=1, stop=None, seed=0, checkpoint="dense.npz")
    changed = lines()
    changed[5][2] = "1" if changed[5][2] != "1" else "2"
    write("other.csv", changed)
    fixed = "cannot be given with --resume: run.npz says how the run fits"
    for words, message in {
        "ratings.csv --resume run.npz --rank 3": f"--rank {fixed}",
        "ratings.csv --resume run.npz --seed 0": f"--seed {fixed}",
        "ratings.csv --resume run.npz --bounds 1 5": f"--bounds {fixed}",
        "other.csv --resume run.npz": "other.csv: expected the ratings that the run in run.npz fits",
        "ratings.csv --resume run.npz --max-iter 3": (
            "--max-iter: expected at least the 10 that the run was to have, got 3"
        ),
        "ratings.csv --resume result.npz": (
            "result.npz: holds a result, but no run to go on with; see --checkpoint"
        ),
        "ratings.csv --resume junk.npz": "junk.npz: not a result saved by airnp, or damaged",
        "ratings.csv --resume dense.npz": "dense.npz: holds no run of airnp ratings",
    }.items():
        assert mistake(capsys, f"ratings {words} -o out.csv --force").startswith(message)

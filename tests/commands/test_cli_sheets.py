"""``airnp complete`` on tables whose columns have units and kinds: real files, through the command line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas
import pytest

from tests.commands.commandline import cells, facts, main, mistake

N = 60
RNG = np.random.default_rng(4)
SIZE = RNG.standard_normal(N)
HEIGHT = 170 + 10 * SIZE + RNG.standard_normal(N)
MASS = 70 + 15 * SIZE + 2 * RNG.standard_normal(N)
GROUP = np.where(SIZE > 0, "tall", "small")
BORN = np.datetime64("2000-01-01") + (30 * SIZE).astype(int)
GAPS = RNG.random((N, 4)) < 0.2
GAPS[:3] = False


def people(name="people.csv", delimiter=",", decimal=".", percent=""):
    """Write a table with an identifier, two numbers, a word and a date; return its lines."""
    lines = [["id", "height", "mass", "group", "born"]]
    for i in range(N):
        given = [f"{HEIGHT[i]:.1f}", f"{MASS[i]:.2f}{percent}", GROUP[i], str(BORN[i])]
        given[:2] = [cell.replace(".", decimal) for cell in given[:2]]
        lines.append([f"{i + 100}", *("" if gap else cell for cell, gap in zip(given, GAPS[i], strict=True))])
    Path(name).write_text("\n".join(delimiter.join(line) for line in lines) + "\n", encoding="utf-8")
    return lines


def test_columns_of_all_kinds_are_filled(capsys):
    given = people()
    done = facts(capsys, "complete people.csv -o out.csv")
    filled = cells("out.csv")
    assert filled[0] == given[0]
    for before, after in zip(given, filled, strict=True):
        assert all(after)
        assert [new for old, new in zip(before, after, strict=True) if old] == [old for old in before if old]
    assert done["kinds"] == {
        "id": "identifier",
        "height": "number",
        "mass": "number",
        "group": "category",
        "born": "date",
    }
    assert done["missing"] == GAPS.sum()
    assert abs(sum(done["weights"].values()) - 1) < 1e-9
    height = np.array([float(line[1]) for line in filled[1:]])
    assert np.abs(height - HEIGHT)[GAPS[:, 0]].mean() < 0.4 * np.abs(HEIGHT - HEIGHT.mean()).mean()
    group = np.array([line[3] for line in filled[1:]])
    assert (group == GROUP)[GAPS[:, 2]].mean() > 0.8
    born = np.array([line[4] for line in filled[1:]], dtype="datetime64[D]")
    assert np.abs((born - BORN).astype(int))[GAPS[:, 3]].mean() < 15


def test_the_report_names_what_was_guessed(capsys):
    people(percent="%")
    assert main("complete people.csv -o out.csv") == 0
    shown = capsys.readouterr().out
    assert "people.csv: 60 rows, 5 columns (header; 2 number, 1 category, 1 date)" in shown
    assert "carried through: id" in shown
    assert "mass: percent; born: date" in shown
    assert "error to expect in gaps" in shown
    assert all(line[2].endswith("%") for line in cells("out.csv")[1:])


def test_decimal_commas_and_thousands(capsys):
    people(delimiter=";", decimal=",")
    done = facts(capsys, "complete people.csv -o out.csv --decimal ,")
    assert done["kinds"]["height"] == "number"
    text = Path("out.csv").read_text(encoding="utf-8")
    assert "." not in text
    rows = [
        f"{a},{b}" for a, b in zip(['"1,200"', '"12,345.5"', "?", "900"] * 6, [1, 2, 3, "-"] * 6, strict=True)
    ]
    Path("money.csv").write_text("\n".join(["pay,rank", *rows]), encoding="utf-8")
    done = facts(capsys, "complete money.csv -o out2.csv")
    assert done["guessed"] == ["pay: thousands"]
    assert done["missing"] == 12
    assert cells("out2.csv")[1][0] == "1,200"


def test_gaps_are_written_like_their_column(capsys):
    pay = [f"{k}.{k * k % 1000:03}" for k in range(1, 41)]
    share = [f"{k},5 %" for k in range(40)]
    born = [f"{1 + k % 28}.{1 + k % 12:02}.1980" for k in range(40)]
    note = [f"no {k}" for k in range(40)]
    columns = [[*("" if k % 7 == j else cell for k, cell in enumerate(column))]
               for j, column in enumerate([pay, share, born, note])]  # fmt: skip
    lines = ["pay;share;born;note", *(";".join(line) for line in zip(*columns, strict=True))]
    Path("de.csv").write_text("\n".join(lines), encoding="utf-8")
    done = facts(capsys, "complete de.csv -o out.csv --decimal ,")
    assert done["guessed"] == ["pay: thousands", "share: percent", "born: date"]
    assert done["left_empty"] == {"note": 6}
    filled = [line.split(";") for line in Path("out.csv").read_text(encoding="utf-8").split("\n")]
    assert re.fullmatch(r"-?\d{1,2}\.\d{3}(,\d+)?", filled[8][0])
    assert re.fullmatch(r"-?\d+(,\d+)? %", filled[2][1])
    assert re.fullmatch(r"\d\d\.\d\d\.19\d\d", filled[3][2])
    assert main("complete de.csv -o out.csv --decimal , --force") == 0
    assert "carried through: note (6 gaps stay)" in capsys.readouterr().out


def test_text_in_excel_is_read(capsys):
    import pandas

    people()
    pandas.read_csv("people.csv", dtype=str).to_excel("people.xlsx", index=False)
    done = facts(capsys, "complete people.xlsx -o out.xlsx")
    assert list(done["kinds"].values()) == ["identifier", "number", "number", "category", "date"]


def test_encodings(capsys):
    text = "name,a\n" + "\n".join(f"{word},{k if k % 5 else ''}" for k, word in enumerate(["Zoë", "Åsa"] * 8))
    Path("latin.csv").write_text(text, encoding="latin-1")
    shown = mistake(capsys, "complete latin.csv -o out.csv")
    assert shown.startswith("latin.csv: expected text in UTF-8")
    assert main("complete latin.csv -o out.csv --encoding latin-1 --quiet") == 0
    assert "Zoë" in Path("out.csv").read_text(encoding="latin-1")
    assert "there is no encoding 'klingon'" in mistake(
        capsys, "complete latin.csv -o out.csv --force --encoding klingon"
    )


def test_columns_may_be_chosen_and_ignored(capsys):
    given = people()
    assert main("complete people.csv -o out.csv --columns height,mass --quiet") == 0
    filled = cells("out.csv")
    assert [line[3:] for line in filled] == [line[3:] for line in given]
    assert all(line[1] and line[2] for line in filled)
    done = facts(capsys, "complete people.csv -o out2.csv --ignore 4,born")
    assert [name for name, kind in done["kinds"].items() if kind == "identifier"] == ["id", "group", "born"]
    assert "--ignore: there is no column 'age'" in mistake(
        capsys, "complete people.csv -o a.csv --ignore age"
    )


def test_samples_differ_in_gaps_only(capsys):
    given = people()
    done = facts(capsys, "complete people.csv -o out.csv --samples 3 --seed 2")
    assert done["samples"] == ["out.1.csv", "out.2.csv", "out.3.csv"]
    drawn = [cells(name) for name in done["samples"]]
    for i, line in enumerate(given):
        for j, cell in enumerate(line):
            found = [table[i][j] for table in drawn]
            assert all(found)
            if cell:
                assert found == [cell] * 3
    heights = np.array([[float(line[1]) for line in table[1:]] for table in drawn])
    assert (heights.std(axis=0)[GAPS[:, 0]] > 0).all()


def test_intervals_rounding_bounds_and_truth(capsys):
    people()
    full = [[f"{i + 100}", f"{HEIGHT[i]:.1f}", f"{MASS[i]:.2f}", GROUP[i], str(BORN[i])] for i in range(N)]
    header = "id,height,mass,group,born"
    Path("truth.csv").write_text("\n".join([header, *map(",".join, full)]), encoding="utf-8")
    done = facts(capsys, "complete people.csv -o out.csv --interval 0.9 --bounds 20 220 --truth truth.csv")
    assert 0 < done["nmae"] < 0.1
    low, high = (
        np.array([float(line[1]) for line in cells(done["interval"][end])[1:]]) for end in ("lower", "upper")
    )
    gaps = GAPS[:, 0]
    assert (low[gaps] < high[gaps]).all()
    np.testing.assert_array_equal(low[~gaps], high[~gaps])
    assert ((low <= HEIGHT) & (high >= HEIGHT))[gaps].mean() > 0.6


def test_whole_numbers_are_rounded_on_request(capsys):
    rows = [f"{k % 7},{'' if k % 4 == 0 else 2 * (k % 7)}" for k in range(40)]
    Path("whole.csv").write_text("\n".join(["a,b", *rows]), encoding="utf-8")
    assert main("complete whole.csv -o out.csv --round --quiet") == 0
    assert all(float(line[1]).is_integer() for line in cells("out.csv")[1:])


def test_a_mask_makes_further_gaps(capsys):
    Path("a.csv").write_text("x,y\n" + "\n".join(f"{k % 9 + 0.5},{3 * (k % 9)}" for k in range(30)))
    Path("mask.csv").write_text("\n".join(f"1,{int(k % 3 > 0)}" for k in range(30)))
    done = facts(capsys, "complete a.csv -o out.csv --mask mask.csv")
    assert done["missing"] == 10


@pytest.mark.parametrize("suffix", [".xlsx", ".parquet", ".tsv", ".csv.gz"])
def test_other_files(suffix, capsys):
    people()
    assert main(f"complete people.csv -o there{suffix} --quiet") == 0
    assert "nothing is missing" in mistake(capsys, f"complete there{suffix} -o back.csv --method em")
    frame = pandas.read_csv("people.csv")
    if suffix == ".xlsx":
        frame.to_excel("gaps.xlsx", index=False)
    elif suffix == ".parquet":
        frame.to_parquet("gaps.parquet")
    else:
        frame.to_csv(f"gaps{suffix}", index=False, sep="\t" if "tsv" in suffix else ",")
    done = facts(capsys, f"complete gaps{suffix} -o out{suffix}")
    assert done["missing"] == GAPS.sum()
    assert done["kinds"]["group"] == "category"


def test_a_table_without_a_header(capsys):
    given = people()
    Path("bare.csv").write_text("\n".join(",".join(line) for line in given[1:]), encoding="utf-8")
    done = facts(capsys, "complete bare.csv -o out.csv")
    assert done["header"] is False
    assert done["rows"] == N
    assert len(cells("out.csv")) == N


def test_excel_needs_its_extra(capsys, monkeypatch):
    people()
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    assert 'pip install "airnp[excel]"' in mistake(capsys, "complete people.csv -o out.xlsx")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--samples 2 --rank 3", "--rank: only with --method air, which --samples is not"),
        ("--method em --max-iter 3", "--max-iter: only with --method air, which --method em is not"),
        ("--method air --samples 2", "--samples: not with --method air"),
        ("--method air --auto --ignore a", "--ignore: not with a matrix of numbers, which --auto needs"),
        ("--columns z", "people.csv: --columns: there is no column 'z'"),
    ],
)
def test_options_that_do_not_go_together(words, message, capsys):
    people()
    assert mistake(capsys, f"complete people.csv -o out.csv {words}").startswith(message)


def test_the_factor_model_sees_standardised_columns(capsys):
    given = people()
    done = facts(capsys, "complete people.csv -o out.csv --method air --max-iter 300 --rank 3")
    assert done["kinds"]["group"] == "category"
    assert done["weights"] == {"air": 1.0}
    assert done["expected_error"] is None
    filled = cells("out.csv")
    assert all(all(line) for line in filled)
    # Another unit of a column changes no other column.
    scaled = [line[:] for line in given]
    for line in scaled[1:]:
        line[2] = line[2] and f"{1000 * float(line[2]):.0f}"
    Path("grams.csv").write_text("\n".join(",".join(line) for line in scaled), encoding="utf-8")
    main("complete grams.csv -o grams_out.csv --method air --max-iter 300 --rank 3 --quiet")
    heights = [[float(line[1]) for line in cells(name)[1:]] for name in ("out.csv", "grams_out.csv")]
    np.testing.assert_allclose(*heights, atol=0.1)


def test_the_same_seed_gives_the_same_file():
    people()
    for name in ("a.csv", "b.csv"):
        assert main(f"complete people.csv -o {name} --seed 3 --quiet") == 0
    assert Path("a.csv").read_text() == Path("b.csv").read_text()

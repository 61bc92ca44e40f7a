"""The table of planted defects is true of today's kernels, and a few of them are found again.

All of them are tried by ``python -m bench.mutants``, which takes about a quarter of an hour.
"""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airnp.engines import launching as kernel_sources
from tests.mutants import MODULES, MUTATIONS, Mutation, NotAMutantError, Verdict, trial

FOLDER = Path(__file__).parents[1]
DOCUMENT = FOLDER.parent / "docs" / "mutants.md"

# Cheap ones, each found by another kind of test.
SAMPLE = {
    "descend: wrong sign": ("test_kernels.py", {"fast", "fma"}, "wrong values"),
    "record: every thread moves the cursor": ("test_kernels_sanitized.py", {"tsan"}, "race"),
    "descend: index in 32 bits: overflow at 50 000 nodes": (
        "test_kernel_indices.py",
        {"fast"},
        "wrong values",
    ),
}


def name_of(mutation):
    return f"{mutation.kernel}: {mutation.what}"


def test_every_defect_can_still_be_planted():
    right = {module: kernel_sources.module_source(module) for module in kernel_sources.source_names()}
    broken = {(mutation.kernel, mutation.text()) for mutation in MUTATIONS}
    assert len(broken) == len({name_of(mutation) for mutation in MUTATIONS}) == len(MUTATIONS)
    assert not any(text == right[MODULES[kernel]] for kernel, text in broken)


def test_every_kernel_has_ten_defects():
    pattern = r"__global__ void __launch_bounds__\([^)]*\)\s*(\w+)\("
    found = {
        kernel: module
        for module in kernel_sources.source_names()
        for kernel in re.findall(pattern, kernel_sources.read_source(module))
    }
    assert found == MODULES
    counts = Counter(mutation.kernel for mutation in MUTATIONS)
    assert all(counts[kernel] >= 10 for kernel in MODULES)


@pytest.mark.parametrize(
    ("old", "after", "message"),
    [
        ("no such text", "", "has no"),
        ("__restrict__", "", "more than one"),
        ("adam(", "no such text", "has no"),
        ("adam(", "const T", "more than one"),
        ("// The step of all", "descend(", "behind"),
    ],
)
def test_a_text_that_cannot_be_replaced_is_an_error(old, after, message):
    with pytest.raises(ValueError, match=message):
        Mutation("adam", "?", old, "", after).text()


def test_the_written_table_has_every_defect_and_no_survivor():
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line[:2] == "| "][2:]
    assert [f"{kernel}: {what}" for kernel, what, *_ in rows] == [name_of(mutation) for mutation in MUTATIONS]
    for _, what, test, *_ in rows:
        assert test.startswith("`"), f"{what}: {test}"
        file, _, function = test.strip("`").partition("[")[0].partition("::")
        assert re.search(rf"^def {function}\(", (FOLDER / file).read_text(encoding="utf-8"), re.M), what


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """What the tests say to the sample, to a text as it is, and to one that does not compile."""
    texts = {name_of(one): (one.module, one.text()) for one in MUTATIONS if name_of(one) in SAMPLE}
    texts["nothing"] = ("record", kernel_sources.module_source("record"))
    texts["no kernel"] = ("record", kernel_sources.module_source("record").replace("int line", "it line"))

    def attempt(name):
        try:
            return trial(*texts[name], tmp_path_factory.mktemp("mutant"), late=False)
        except NotAMutantError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(texts, pool.map(attempt, texts), strict=True))


@pytest.mark.parametrize("name", SAMPLE)
def test_a_planted_defect_is_found(verdicts, name):
    file, modes, sign = SAMPLE[name]
    verdict = verdicts[name]
    assert (verdict.test.partition("::")[0], verdict.sign) == (file, sign)
    assert verdict.mode in modes


def test_a_text_without_a_defect_passes(verdicts):
    assert verdicts["nothing"] == Verdict()


def test_a_text_that_does_not_compile_is_no_defect(verdicts):
    assert "CompileError" in verdicts["no kernel"]

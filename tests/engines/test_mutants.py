"""The table of planted defects fits today's kernels, and the tests find a sample of them again.

``python -m bench.mutants`` tries all of them, which takes a few minutes.
"""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airnp.engines.launching import module_source, read_source, source_names
from tests.mutants import MODULES, MUTATIONS, Mutation, NotAMutantError, Verdict, trial

FOLDER = Path(__file__).parent
DOCUMENT = FOLDER.parents[1] / "docs" / "mutants.md"

# Cheap ones, each found by another kind of test.
SAMPLE = {
    "descend: wrong sign": ("test_kernels.py", {"fast", "fma"}, "wrong values"),
    "record: every thread moves the cursor": ("test_kernels_sanitized.py", {"tsan"}, "race"),
    "descend: index in 32 bits": ("test_kernel_indices.py", {"fast"}, "wrong values"),
}


def test_every_defect_can_be_planted():
    broken = {(mutation.kernel, mutation.text()) for mutation in MUTATIONS}
    assert len(broken) == len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
    assert not any(text == module_source(MODULES[kernel]) for kernel, text in broken)


def test_every_kernel_has_three_defects():
    pattern = r"__global__ void __launch_bounds__\([^)]*\)\s*(\w+)\("
    found = {
        kernel: module for module in source_names() for kernel in re.findall(pattern, read_source(module))
    }
    assert found == MODULES
    counts = Counter(mutation.kernel for mutation in MUTATIONS)
    assert all(counts[kernel] >= 3 for kernel in MODULES)


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


def test_the_document_has_every_defect_and_no_survivor():
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line[:2] == "| "][2:]
    assert [f"{kernel}: {what}" for kernel, what, *_ in rows] == [mutation.name for mutation in MUTATIONS]
    for _, what, test, *_ in rows:
        assert test.startswith("`"), f"{what}: {test}"
        file, _, function = test.strip("`").partition("[")[0].partition("::")
        assert re.search(rf"^def {function}\(", (FOLDER / file).read_text(encoding="utf-8"), re.M), what


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """Verdicts on the sample, on an unbroken text, and on one that does not compile."""
    texts = {mutation.name: (mutation.module, mutation.text()) for mutation in MUTATIONS}
    texts = {name: texts[name] for name in SAMPLE}
    texts["nothing"] = ("record", module_source("record"))
    texts["no kernel"] = ("record", module_source("record").replace("int line", "it line"))

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

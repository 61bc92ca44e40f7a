"""Find the CUDA sources in a checkout and in a wheel, and check rules that can be read off their text."""

import re
from pathlib import Path

import pytest

from airnp.engines import launching

FOLDER = Path(__file__).resolve().parents[2] / "kernels"
INTEGER_SUMS = {
    "patch_matching": ["atomicAdd(&taken, 1)"],
    "patches": ["atomicAdd(reinterpret_cast<unsigned long long*>(sum)"],
}
"""The calls of atomicAdd, up to the first closing bracket, in the order of the text."""


def test_source_names_are_the_files_of_the_checkout():
    assert launching.source_names() == tuple(sorted(path.stem for path in FOLDER.glob("*.cu")))
    for name in launching.source_names():
        assert launching.read_source(name) == (FOLDER / f"{name}.cu").read_text(encoding="utf-8")


def test_a_module_starts_with_the_shared_headers():
    support, sparse = ((FOLDER / f"{name}.cuh").read_text(encoding="utf-8") for name in ("support", "sparse"))
    assert not {"support", "sparse"} & set(launching.source_names())
    for name in launching.source_names():
        shared = [support, sparse] if name.startswith("sparse_") else [support]
        assert launching.module_source(name) == "\n".join([*shared, launching.read_source(name)])


@pytest.mark.parametrize("find", [launching.read_source, launching.module_source])
@pytest.mark.parametrize("name", ["nothing", "", "adam.cu", "support", "../pyproject"])
def test_an_unknown_name_lists_the_valid_ones(find, name):
    with pytest.raises(ValueError, match=r"unknown kernel .*'adam'"):
        find(name)


def test_a_wheel_carries_the_sources_inside_the_package(monkeypatch, tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "shipped.cu").write_text("// inside", encoding="utf-8")
    (tmp_path / "kernels" / "support.cuh").write_text("// common", encoding="utf-8")
    monkeypatch.setattr(launching, "files", lambda package: tmp_path)
    assert launching.source_names() == ("shipped",)
    assert launching.read_source("shipped") == "// inside"
    assert launching.module_source("shipped") == "// common\n// inside"


def test_missing_sources_are_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(launching, "files", lambda package: tmp_path)
    monkeypatch.setattr(launching, "__file__", str(tmp_path / "airnp" / "engines" / "launching.py"))
    with pytest.raises(FileNotFoundError, match="no kernels folder"):
        launching.source_names()


@pytest.mark.parametrize("name", launching.source_names())
def test_house_rules(name):
    text = re.sub(r"//[^\n]*", "", launching.module_source(name))
    for forbidden in (r"\bpow", r"\basm\b", r"\bextern\b", r"#\s*include", r"\bcooperative_groups\b"):
        assert not re.search(forbidden, text), forbidden
    # __restrict__ would allow reads of other blocks' results through the read-only cache.
    assert not re.search(r"__restrict__\s+(partial|degrees|tickets)\b", text)
    # Atomics only add integers: a sum of floating-point numbers would have different bits in every run.
    atomics = ["atomicInc(ticket, drawers - 1)", *INTEGER_SUMS.get(name, [])]
    assert re.findall(r"\batomic\w*\([^)]*\)", text) == atomics
    # A fence follows every ticket, before other blocks' results are read; the race detector cannot see it.
    fenced = r"\bdraw_last\([^;]*;\s*\}\s*__syncthreads\(\);\s*__threadfence\(\);"
    assert len(re.findall(fenced, text)) == len(re.findall(r"\bdraw_last\((?!unsigned)", text)) > 0
    # Every *_sync names all lanes.
    assert all(call.startswith("FULL,") for call in re.findall(r"_sync\(([^)]*)", text))
    assert all(len(line) <= 110 for line in launching.module_source(name).splitlines())

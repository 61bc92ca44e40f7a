"""The CUDA texts are found, in a checkout and in a wheel, and what can be said about them by reading them."""

import re
from pathlib import Path

import pytest

from airnp.engines import launching as kernel_sources

FOLDER = Path(__file__).resolve().parents[2] / "kernels"


def test_names_are_the_files_of_the_checkout():
    assert kernel_sources.source_names() == tuple(sorted(path.stem for path in FOLDER.glob("*.cu")))
    for name in kernel_sources.source_names():
        assert kernel_sources.read_source(name) == (FOLDER / f"{name}.cu").read_text(encoding="utf-8")


def test_a_module_has_the_common_part_in_front():
    support, sparse = ((FOLDER / f"{name}.cuh").read_text(encoding="utf-8") for name in ("support", "sparse"))
    assert not {"support", "sparse"} & set(kernel_sources.source_names())
    for name in kernel_sources.source_names():
        shared = [support, sparse] if name.startswith("sparse_") else [support]
        assert kernel_sources.module_source(name) == "\n".join([*shared, kernel_sources.read_source(name)])


@pytest.mark.parametrize("find", [kernel_sources.read_source, kernel_sources.module_source])
@pytest.mark.parametrize("name", ["nothing", "", "adam.cu", "support", "../pyproject"])
def test_an_unknown_name_lists_the_valid_ones(find, name):
    with pytest.raises(ValueError, match=r"unknown kernel .*'adam'"):
        find(name)


def test_a_wheel_carries_the_sources_inside_the_package(monkeypatch, tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "shipped.cu").write_text("// inside", encoding="utf-8")
    (tmp_path / "kernels" / "support.cuh").write_text("// common", encoding="utf-8")
    monkeypatch.setattr(kernel_sources, "files", lambda package: tmp_path)
    assert kernel_sources.source_names() == ("shipped",)
    assert kernel_sources.read_source("shipped") == "// inside"
    assert kernel_sources.module_source("shipped") == "// common\n// inside"


def test_an_installation_without_sources_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(kernel_sources, "files", lambda package: tmp_path)
    monkeypatch.setattr(kernel_sources, "__file__", str(tmp_path / "airnp" / "engines" / "kernel_sources.py"))
    with pytest.raises(FileNotFoundError, match="no kernels folder"):
        kernel_sources.source_names()


@pytest.mark.parametrize("name", kernel_sources.source_names())
def test_the_rules_of_the_house(name):
    text = re.sub(r"//[^\n]*", "", kernel_sources.module_source(name))
    for forbidden in (r"\bpow", r"\basm\b", r"\bextern\b", r"#\s*include", r"\bcooperative_groups\b"):
        assert not re.search(forbidden, text), forbidden
    # What other blocks write must not be read through the read-only cache, which __restrict__ would allow.
    assert not re.search(r"__restrict__\s+(partial|degrees|tickets)\b", text)
    # Atomics count tickets, and nothing else: a sum by atomics would have other bits in every run.
    assert re.findall(r"\batomic\w*\([^)]*\)", text) == ["atomicInc(ticket, drawers - 1)"]
    # Whoever draws a ticket fences before he reads what others wrote; the race detector cannot see this one.
    fenced = r"\bdraw_last\([^;]*;\s*\}\s*__syncthreads\(\);\s*__threadfence\(\);"
    assert len(re.findall(fenced, text)) == len(re.findall(r"\bdraw_last\((?!unsigned)", text)) > 0
    # Every *_sync names all lanes.
    assert all(call.startswith("FULL,") for call in re.findall(r"_sync\(([^)]*)", text))
    assert all(len(line) <= 110 for line in kernel_sources.module_source(name).splitlines())

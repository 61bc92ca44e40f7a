"""A pytest plugin (``-p tests.mutants.plugin``) that replaces the text of one kernel module by a broken one.

``AIRNP_MUTANT`` names a folder with the broken text, ``<module>.cu``, shared headers included. The plugin
writes ``report.jsonl`` there: one line when a test begins, and one when it fails.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

_VARIABLE = "AIRNP_MUTANT"
_MODES = {
    "test_nvrtc.py": "NVRTC",
    "test_kernel_sources.py": "reading",
    "test_cuda_engine.py": "whole fits",
    "test_sparse_cuda.py": "whole fits",
}


def _folder() -> Path:
    return Path(os.environ[_VARIABLE])


def _write(**fields: Any) -> None:
    with (_folder() / "report.jsonl").open("a", encoding="utf-8") as report:
        print(json.dumps(fields), file=report, flush=True)


def pytest_configure() -> None:
    # Imported here because tests/conftest.py sets the number of threads before NumPy is imported.
    from hypothesis import Phase, settings

    from airnp.engines import launching

    # One failing example is enough; do not shrink it.
    settings.register_profile(
        "mutants",
        settings.get_profile("airnp"),
        phases=[Phase.explicit, Phase.generate],
        report_multiple_bugs=False,
    )
    settings.load_profile("mutants")
    right = launching.module_source
    broken = {path.stem: path.read_text(encoding="utf-8") for path in _folder().glob("*.cu")}
    launching.module_source = lambda name: broken[name] if name in broken else right(name)


def pytest_runtest_logstart(nodeid: str) -> None:
    _write(test=nodeid)


def pytest_runtest_makereport(item: Any, call: Any) -> None:
    if call.excinfo is None:
        return
    error = call.excinfo.value
    given = re.search(r"mode='(\w+)'", "\n".join(getattr(error, "__notes__", [])))
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    mode = given[1] if given else parameters.get("mode", _MODES.get(item.path.name, "fast"))
    _write(test=item.nodeid, mode=mode, error=type(error).__name__, message=str(error)[:2000])

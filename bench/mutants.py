"""Do the tests find a broken kernel? Plant one defect at a time and note which test finds it.

    python -m bench.mutants [--kernels adam record ...] [--workers 2]

Tries all defects and writes ``docs/mutants.md``; with ``--kernels``, tries some and only prints. First the
unbroken text must pass, or the table would mean nothing. Exits with status 1 if a defect is not found.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from airnp.engines.launching import module_source
from bench.timing import markdown
from tests.mutants import LATE_FILES, MODULES, MUTATIONS, Mutation, Verdict, trial

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "mutants.md"
HEAD = """# Broken kernels, and the tests that find them

Every kernel was broken in at least three plausible ways, one at a time: a wrong bound or index, a wrong
formula, a race or a 32-bit overflow. Its tests, all in `tests/engines/`, were run on the CPU:
`test_kernels.py`, `test_sparse_kernels.py` and `test_patch_kernels.py` (values; modes `fast` and `fma`),
`test_kernels_sanitized.py` (AddressSanitizer and UBSan: `asan`; the race detector: `tsan`),
`test_kernel_indices.py` (more than 2^31 entries) and `test_kernel_sources.py` (rules for the text). If these
found nothing, `test_nvrtc.py` (NVIDIA's compiler), `test_cuda_engine.py` and `test_sparse_cuda.py` (whole
fits) followed. The table names the first test that failed. A text that does not compile does not count. The
defects are in `tests/mutants/defects.py`; this file is written by

    python -m bench.mutants

Two changes are not in the table because they have no visible effect:

- leaving out the barrier before the ticket of a sum: the thread that draws the ticket wrote what the last
  block reads (the strips of `graph_step` need their barrier);
- `width = t` in `StripPair` for even t: it only numbers the same pairs differently.

"""


def document(verdicts: list[tuple[Mutation, Verdict]]) -> str:
    """Return the table, and how many defects each file of tests found."""
    rows, counts = [], Counter()
    for mutation, verdict in verdicts:
        test = "**SURVIVED**" if verdict.test is None else f"`{verdict.test}`"
        counts[(verdict.test or "no test").partition("::")[0]] += 1
        rows.append([mutation.kernel, mutation.what, test, verdict.mode, verdict.sign])
    summary = ", ".join(f"{count} by {file}" for file, count in counts.most_common())
    table = markdown(["kernel", "defect", "found by", "mode", "sign"], rows)
    return f"{HEAD}{len(rows)} defects: {summary}.\n\n{table}\n"


def main(argv: list[str] | None = None) -> int:
    """Try the defects and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", nargs="+", choices=MODULES, default=list(MODULES))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    arguments = parser.parse_args(argv)
    chosen = [mutation for mutation in MUTATIONS if mutation.kernel in arguments.kernels]
    with tempfile.TemporaryDirectory() as root, ThreadPoolExecutor(arguments.workers) as pool:
        os.environ.setdefault("AIRNP_SIMT_CACHE", str(Path(root, "cache")))

        def attempt(module: str, text: str, *, late: bool) -> Verdict:
            return trial(module, text, Path(tempfile.mkdtemp(dir=root)), late=late)

        def check(modules: set[str], *, late: bool) -> None:
            """Make sure that the unbroken texts pass these tests."""
            for module in sorted(modules):
                verdict = attempt(module, module_source(module), late=late)
                if verdict.test is not None:
                    parser.error(f"the unbroken {module} fails in {verdict.test} ({verdict.sign})")

        check({mutation.module for mutation in chosen}, late=False)
        verdicts = []
        results = pool.map(lambda mutation: attempt(mutation.module, mutation.text(), late=True), chosen)
        for mutation, verdict in zip(chosen, results, strict=True):
            print(f"{mutation.name}: {verdict.test or 'SURVIVED'} {verdict.mode} {verdict.sign}", flush=True)
            verdicts.append((mutation, verdict))
        check({m.module for m, verdict in verdicts if (verdict.test or "").startswith(LATE_FILES)}, late=True)
    if chosen == list(MUTATIONS):
        DOCUMENT.write_text(document(verdicts), encoding="utf-8")
    return int(any(verdict.test is None for _, verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())

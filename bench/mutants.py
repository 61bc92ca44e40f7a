"""Do the tests find a broken kernel? Defects are planted one at a time; which test finds each?

    python -m bench.mutants [--kernels adam record ...] [--workers 2] [--missing] [--most 10]

Writes ``docs/mutants.md``. Results are kept, so a run over some of the kernels leaves the others as they
were; a kernel whose text has changed since counts as not tried. Ends with status 1 if a defect was not
found. First the unbroken text must pass, or the table would mean nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from airnp.engines import launching as kernel_sources
from bench.speed import RESULTS
from bench.timing import markdown
from tests.mutants import LATE_FILES, MODULES, MUTATIONS, Mutation, Verdict, trial

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "mutants.md"
STORE = RESULTS / "mutants.json"
HEAD = """# Broken kernels, and the tests that find them

Every kernel was broken in at least ten plausible ways, one at a time, and its tests were run on the CPU:
first `tests/engines/test_kernels.py` (right values, in the modes `fast` and `fma`),
`test_kernels_sanitized.py`
(AddressSanitizer and UBSan: `asan`; the race detector: `tsan`), `test_kernel_indices.py` (matrices with more
than 2^31 entries) and `test_kernel_sources.py` (what the text may say); for the sparse form,
`test_sparse_kernels.py` has all of these. Then, for what they did not find, `test_nvrtc.py` (NVIDIA's
compiler), `test_cuda_engine.py` and `test_sparse_cuda.py` (whole fits). The table names the first test that
failed. A text that does not compile does not count. The defects are in `tests/mutants/`; this file is
written by

    python -m bench.mutants

Not in the table, because they change nothing that can be seen:

- the barrier before the ticket of a sum left out: what the last block reads was written by the thread that
  draws the ticket (the strips of `graph_step` are another matter, and in the table);
- `width = t` in `StripPair` for even t: another numbering of the same pairs.

"""


def digest(mutation: Mutation) -> str:
    """Return what changes when the text, or what is planted in it, does."""
    return hashlib.sha256(mutation.text().encode()).hexdigest()[:16]


def key(mutation: Mutation) -> str:
    return f"{mutation.kernel}: {mutation.what}"


def stored() -> dict[str, dict[str, str]]:
    return json.loads(STORE.read_text()) if STORE.exists() else {}


def known(results: dict[str, dict[str, str]], mutation: Mutation) -> Verdict | None:
    """Return the verdict on today's text, or None if there is none."""
    entry = dict(results.get(key(mutation), {}))
    return Verdict(**entry) if entry.pop("digest", "") == digest(mutation) else None


def document(results: dict[str, dict[str, str]]) -> str:
    """Return the table, and how many defects were found by what."""
    rows, counts = [], Counter()
    for mutation in MUTATIONS:
        verdict = known(results, mutation)
        if verdict is None:
            found, sort = ["not tried", "", ""], "not tried"
        elif verdict.test is None:
            found, sort = ["**SURVIVED**", "", ""], "no test"
        else:
            found, sort = [f"`{verdict.test}`", verdict.mode, verdict.sign], verdict.test.partition("::")[0]
        counts[sort] += 1
        rows.append([mutation.kernel, mutation.what, *found])
    summary = ", ".join(f"{count} by {sort}" for sort, count in counts.most_common())
    table = markdown(["kernel", "defect", "found by", "mode", "sign"], rows)
    return f"{HEAD}{len(MUTATIONS)} defects: {summary}.\n\n{table}\n"


def main(argv: list[str] | None = None) -> int:
    """Try the defects, store the results, write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", nargs="+", choices=MODULES, default=list(MODULES))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--most", type=int, help="no more than so many defects in this run")
    parser.add_argument("--missing", action="store_true", help="only what was not tried")
    arguments = parser.parse_args(argv)
    results = stored()
    chosen = [
        mutation
        for mutation in MUTATIONS
        if mutation.kernel in arguments.kernels and not (arguments.missing and known(results, mutation))
    ][: arguments.most]
    with tempfile.TemporaryDirectory() as root, ThreadPoolExecutor(arguments.workers) as pool:
        os.environ.setdefault("AIRNP_SIMT_CACHE", str(Path(root, "cache")))

        def attempt(module: str, text: str, *, late: bool) -> Verdict:
            return trial(module, text, Path(tempfile.mkdtemp(dir=root)), late=late)

        def check(modules: set[str], *, late: bool) -> None:
            """Make sure that the texts as they are pass these tests."""
            for module in sorted(modules):
                verdict = attempt(module, kernel_sources.module_source(module), late=late)
                if verdict.test is not None:
                    parser.error(f"{module} as it is fails in {verdict.test} ({verdict.sign})")

        check({mutation.module for mutation in chosen}, late=False)
        asked_late = set()
        verdicts = pool.map(lambda mutation: attempt(mutation.module, mutation.text(), late=True), chosen)
        for mutation, verdict in zip(chosen, verdicts, strict=True):
            print(f"{key(mutation)}: {verdict.test or 'SURVIVED'} {verdict.mode} {verdict.sign}", flush=True)
            results[key(mutation)] = {"digest": digest(mutation), **asdict(verdict)}
            if verdict.test is not None and verdict.test.startswith(LATE_FILES):
                asked_late.add(mutation.module)
        check(asked_late, late=True)
    STORE.parent.mkdir(parents=True, exist_ok=True)
    STORE.write_text(json.dumps(results, indent=1))
    DOCUMENT.write_text(document(results), encoding="utf-8")
    survivors = [mutation for mutation in MUTATIONS if (known(results, mutation) or Verdict()).test is None]
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

"""Compile kernels with g++, once for each text, mode and set of instantiations, with a cache on disk."""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from .errors import CompileError
from .source import wrap

_CPP = Path(__file__).parent / "cpp"
_CACHE_VARIABLE = "AIRNP_SIMT_CACHE"

# -fdata-sections gives each static variable a section that shared.ld can name. No contraction unless asked
# for: NumPy rounds each operation, and comparisons can then be exact.
_COMMON = (
    "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fdata-sections", "-ffp-contract=off", "-w",
)  # fmt: skip
_ASAN = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
KERNEL_FLAGS = {
    "fast": ("-O2",),
    "fma": ("-O2", "-mfma", "-ffp-contract=fast"),
    "asan": ("-O1", "-g", "-fno-omit-frame-pointer", *_ASAN),
    # The loops that g++ turns into calls of memset would be hidden from the race detector.
    "tsan": ("-O1", "-g", "-fsanitize=thread", "-DSIMT_RACES", "-fno-tree-loop-distribute-patterns"),
}
_RUNTIME_FLAGS = {"fast": (), "fma": (), "asan": ("-DSIMT_ASAN",), "tsan": ("-DSIMT_RACES",)}
_LINK_FLAGS = {
    "fast": (),
    "fma": (),
    "asan": _ASAN,
    "tsan": (),
}  # tsan: the run time is our own, see races.cpp
_RUNTIME_SOURCES = ("scheduler", "warp", "context")


def library(code: str, names: tuple[str, ...], options: tuple[str, ...], mode: str) -> Path:
    """Return the shared object of a kernel text, compiled now or earlier.

    Raises
    ------
    CompileError
        If the text does not compile.
    ValueError
        If the mode or an option is unknown.
    """
    if mode not in KERNEL_FLAGS:
        raise ValueError(f"unknown mode {mode!r}; valid modes are {', '.join(map(repr, KERNEL_FLAGS))}")
    unit = wrap(code, names)
    flags = tuple(dict.fromkeys((*_COMMON, *map(_checked, options), *KERNEL_FLAGS[mode])))

    def compile_kernels(folder: Path) -> None:
        (folder / "unit.cpp").write_text(unit, encoding="utf-8")
        _run(folder, *flags, "-I", str(_CPP), "-c", "unit.cpp", "-o", "unit.o")
        script = f"-Wl,-Bsymbolic,-T,{_CPP / 'shared.ld'}"
        objects = [str(path) for path in sorted(_runtime(mode).glob("*.o"))]
        _run(
            folder,
            "-shared",
            "-fuse-ld=bfd",
            script,
            *_LINK_FLAGS[mode],
            "unit.o",
            *objects,
            "-o",
            "kernels.so",
        )

    return _cached((mode, *flags, unit), compile_kernels) / "kernels.so"


def _runtime(mode: str) -> Path:
    """Return the folder with the object files of the run time."""
    flags = (*_COMMON, "-O2", *_RUNTIME_FLAGS[mode])

    def compile_runtime(folder: Path) -> None:
        sources = (*_RUNTIME_SOURCES, "races", "order") if mode == "tsan" else _RUNTIME_SOURCES
        _run(folder, *flags, "-c", *(str(_CPP / f"{name}.cpp") for name in sources))

    return _cached(("runtime", *flags), compile_runtime)


def _checked(option: str) -> str:
    """Return an option of NVRTC that g++ has too."""
    if not option.startswith(("-std=c++", "-D")):
        raise ValueError(f"the executor does not know the compiler option {option!r}")
    return option


def _cached(content: tuple[str, ...], make: Callable[[Path], None]) -> Path:
    """Return the folder named by a hash of ``content``; ``make(folder)`` fills it, in one process only."""
    digest = hashlib.sha256(repr((_fingerprint(), content)).encode()).hexdigest()[:32]
    root = _root()
    ready = root / digest
    if ready.is_dir():
        return ready
    with open(root / f"{digest}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.is_dir():
            folder = Path(tempfile.mkdtemp(dir=root))
            try:
                make(folder)
                folder.rename(ready)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    return ready


@functools.cache
def _fingerprint() -> str:
    """Return a text that changes with the executor or the compiler."""
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    files = sorted(path for path in _CPP.iterdir() if path.is_file())
    return version + "".join(path.name + path.read_text(encoding="utf-8") for path in files)


@functools.cache
def _root() -> Path:
    """Return the cache: what ``AIRNP_SIMT_CACHE`` names, or this user's folder for temporary files."""
    named = os.environ.get(_CACHE_VARIABLE)
    root = Path(named) if named else Path(tempfile.gettempdir()) / f"airnp-simt-{os.getuid()}"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = root.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{root} is not ours alone to write; name another cache by {_CACHE_VARIABLE}")
    return root


@functools.cache
def compiler() -> str:
    """Return the path of g++."""
    found = shutil.which("g++")
    if found is None:
        raise FileNotFoundError("g++ was not found; the executor compiles CUDA text with it")
    return found


def _run(folder: Path, *arguments: str) -> None:
    made = subprocess.run([compiler(), *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if made.returncode:
        raise CompileError(made.stderr)

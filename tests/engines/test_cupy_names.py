"""The real CuPy has every name of the double and every name that airnp uses, with matching signatures."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import airnp
from tests.cupy_double import modules
from tests.cupy_double.fixture import installed
from tests.cupy_double.memory import OutOfMemoryError
from tests.cupy_double.state import STATUSES, CUDARuntimeError

EMPTY = inspect.Parameter.empty
OWN_DUNDERS = {"__doc__", "__dict__", "__weakref__", "__module__", "__init__", "__qualname__"}
DOUBLE = modules.build()


def _import_real() -> ModuleType:
    try:
        cupy = importlib.import_module("cupy")
        importlib.import_module("cupyx.scipy.sparse")
    except ImportError as error:
        pytest.fail(
            f"CuPy is not installed ({error}); its names are checked without a GPU, so install the extra: "
            "pip install 'airnp[cuda12x]'"
        )
    return cupy


@pytest.fixture(scope="module")
def real() -> ModuleType:
    """The installed CuPy, which can be imported without a driver."""
    cupy = _import_real()
    assert cupy is not DOUBLE["cupy"]
    assert cupy.__file__ is not None
    return cupy


# --- signatures ---


def signature(thing: Any) -> inspect.Signature | None:
    """Return the signature of ``thing`` by inspection or from Cython's docstring, or None."""
    if hasattr(thing, "nin") and hasattr(thing, "nout"):  # a ufunc
        names = [inspect.Parameter(f"x{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(thing.nin)]
        return inspect.Signature(names)
    if inspect.isclass(thing):
        return _written(thing, "__init__") or _constructor(thing) or _written(thing, thing.__name__)
    try:
        return inspect.signature(thing)
    except (ValueError, TypeError):
        return _written(thing, thing.__name__)


def _constructor(cls: type) -> inspect.Signature | None:
    """Return the signature of the first constructor of a class or its bases with named arguments."""
    for base in cls.__mro__[:-1]:
        if (
            inspect.isfunction(own := vars(base).get("__init__"))
            or type(own).__name__ == "cython_function_or_method"
        ):
            found = inspect.signature(own)
            if not any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in found.parameters.values()):
                return found.replace(parameters=list(found.parameters.values())[1:])
    return None


def _written(thing: Any, name: str) -> inspect.Signature | None:
    """Return the signature that a docstring begins a line with, such as ``f(self, int a, b=None) -> int``."""
    match = re.search(rf"^\s*(?:\w+\.)*{name}\((.*)\)(?: ->.*)?$", thing.__doc__ or "", re.MULTILINE)
    if match is None:
        return None
    parameters = []
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for part in filter(None, (piece.strip() for piece in re.split(r",\s*(?![^()]*\))", match.group(1)))):
        declared, *default = part.replace("\\", "").split("=", 1)
        label = declared.split()[-1] if declared.strip() else ""
        if label == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif label.startswith("**"):
            parameters.append(inspect.Parameter(label[2:], inspect.Parameter.VAR_KEYWORD))
        elif label.startswith("*"):
            parameters.append(inspect.Parameter(label[1:], inspect.Parameter.VAR_POSITIONAL))
            kind = inspect.Parameter.KEYWORD_ONLY
        else:
            parameters.append(inspect.Parameter(label, kind, default=default[0] if default else EMPTY))
    return inspect.Signature(parameters)


def _calls(found: inspect.Signature) -> Iterator[tuple[list[str], list[str]]]:
    """Yield calls that a signature accepts, as names given by place and names given by keyword."""
    kinds = inspect.Parameter
    ordered = [
        p for p in found.parameters.values() if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    ]
    by_name = [p.name for p in found.parameters.values() if p.kind is kinds.KEYWORD_ONLY]
    only = [p.name for p in ordered if p.kind is kinds.POSITIONAL_ONLY or p.name == "self"]
    yield [p.name for p in ordered], by_name
    yield only, [p.name for p in ordered if p.name not in only] + by_name
    yield [p.name for p in ordered if p.default is EMPTY], []


def mismatch(ours: inspect.Signature, theirs: inspect.Signature) -> str | None:
    """Return why the real thing would not take a call that the double takes, or None."""
    for places, names in _calls(ours):
        try:
            bound = theirs.bind(*places, **{name: name for name in names})
        except TypeError as error:
            return f"{error} (called with {places}, {names})"
        for name, value in bound.arguments.items():
            parameter = theirs.parameters[name]
            named = parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            by_place = [p for p in ours.parameters.values() if p.name == value]
            if named and name != value and by_place[0].kind is not inspect.Parameter.POSITIONAL_ONLY:
                return f"its argument {name!r} is called {value!r} in the double"
    return None


def test_the_comparison_of_signatures_can_fail() -> None:
    def theirs(a: Any, b: Any = 1, *, c: Any = 2) -> None: ...
    def missing(a: Any, b: Any = 1, d: Any = 2) -> None: ...
    def renamed(a: Any, x: Any = 1) -> None: ...
    def swapped(b: Any, a: Any = 1) -> None: ...
    def by_place(a: Any, b: Any = 1, c: Any = 2) -> None: ...
    def fewer(b: Any = 1) -> None: ...
    def same(a: Any, *, c: Any = 2) -> None: ...

    expected = inspect.signature(theirs)
    for function in (missing, renamed, swapped, by_place, fewer):
        assert mismatch(inspect.signature(function), expected) is not None, function.__name__
    assert mismatch(inspect.signature(same), expected) is None


def test_signatures_are_read_from_docstrings() -> None:
    class Written:
        """Written(str code=None, *, tuple options=(), order='C', (int, int) pair=(1, 2), **rest) -> None

        And so on.
        """

    found = _written(Written, "Written")
    assert found is not None
    assert str(found) == "(code='None', *, options='()', order=\"'C'\", pair='(1, 2)', **rest)"
    assert _written(Written, "Other") is None


# --- the double against the real package ---


def offered() -> Iterator[tuple[str, str, Any]]:
    """Yield the module, name and value of everything that the double offers."""
    for name, module in DOUBLE.items():
        for label, value in vars(module).items():
            if not label.startswith("_") or label == "__version__":
                yield name, label, value


@pytest.mark.parametrize(("module", "name"), [item[:2] for item in offered()])
def test_every_name_of_the_double_is_in_cupy(module: str, name: str, real: ModuleType) -> None:
    ours, there = getattr(DOUBLE[module], name), importlib.import_module(module)
    assert hasattr(there, name), f"{module} has no {name}"
    theirs = getattr(there, name)
    if isinstance(ours, ModuleType):
        assert isinstance(theirs, ModuleType)
    elif ours is getattr(np, name, EMPTY):
        assert theirs is ours or theirs == ours or np.isnan(ours)
    elif inspect.isclass(ours):
        _check_class(ours, theirs)
    elif callable(ours) and not hasattr(ours, "unmodelled"):
        _check_call(f"{module}.{name}", ours, theirs)


def _check_call(name: str, ours: Any, theirs: Any) -> None:
    own, found = signature(ours), signature(theirs)
    assert own is not None
    assert found is not None, f"{name}: its signature is not known"
    problem = mismatch(own, found)
    assert problem is None, f"{name}: {problem}"


def _assigned(cls: type) -> set[str]:
    """Return the public attributes that the methods of a class give to ``self``."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    stored = (
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        if node.value.id == "self"
    )
    return {name for name in stored if not name.startswith("_")}


def _check_class(ours: type, theirs: type) -> None:
    name = ours.__name__
    assert inspect.isclass(theirs)
    for base in (RuntimeError, MemoryError):
        assert issubclass(ours, base) == issubclass(theirs, base), name
    if name not in ("RawKernel", "MemoryPointer", "Graph"):  # not constructed by users
        _check_call(name, ours, theirs)
    methods = {label: item for label, item in vars(ours).items() if not re.match(r"_[^_]", label)}
    for label, item in methods.items():
        if label in OWN_DUNDERS:
            continue
        assert hasattr(theirs, label), f"{name} has no {label}"
        if inspect.isfunction(item) and not label.startswith("__"):
            _check_call(f"{name}.{label}", item, getattr(theirs, label))
    for label in _assigned(ours) - set(methods):
        assert hasattr(theirs, label) or _has_instances_with(theirs, label), f"{name} has no {label}"


def _has_instances_with(cls: type, label: str) -> bool:
    """Whether an object of the class has an attribute that the class itself has not."""
    samples = {"Stream": lambda: cls.null, "CUDARuntimeError": lambda: cls(100)}  # type: ignore[attr-defined]
    if cls.__name__ in samples:
        return hasattr(samples[cls.__name__](), label)
    sources = (inspect.getsource(base) for base in cls.__mro__ if base.__module__.startswith("cupyx"))
    return any(re.search(rf"self\.{label}\b.*=[^=]", source) for source in sources)


def test_a_kernel_is_called_as_in_cupy(real: ModuleType) -> None:
    call = DOUBLE["cupy"].RawKernel.__call__
    _check_call("RawKernel.__call__", call, real.RawKernel.__call__)


def test_error_messages_are_those_of_cupy(real: ModuleType) -> None:
    for status in STATUSES:
        theirs = real.cuda.runtime.CUDARuntimeError(status)
        assert str(CUDARuntimeError(status)) == str(theirs)
        assert theirs.status == status
    for arguments in ((1234, 5678), (1234, 5678, 9999)):
        assert str(OutOfMemoryError(*arguments)) == str(real.cuda.memory.OutOfMemoryError(*arguments))


def test_devices_and_arrays_have_the_special_methods_of_cupy(real: ModuleType) -> None:
    for name in ("Device", "Stream"):
        ours, theirs = getattr(DOUBLE["cupy.cuda"], name), getattr(real.cuda, name)
        assert (ours.__hash__ is None) == (theirs.__hash__ is None), name
    for label in ("__index__", "__array_namespace__", "__contains__", "to_device"):
        assert hasattr(DOUBLE["cupy"].ndarray, label) == hasattr(real.ndarray, label), label


def test_the_real_package_is_restored(real: ModuleType) -> None:
    inside = importlib.import_module("cupyx.scipy.sparse")
    backend = importlib.import_module("cupy_backends.cuda.api.runtime")
    with installed():
        assert importlib.import_module("cupy") is DOUBLE["cupy"]
        with pytest.raises(ImportError):
            importlib.import_module("cupy_backends.cuda.api.runtime")
    assert importlib.import_module("cupy") is real
    assert importlib.import_module("cupyx.scipy.sparse") is inside
    assert importlib.import_module("cupy_backends.cuda.api.runtime") is backend
    compat = importlib.import_module("array_api_compat.cupy")
    assert compat.ndarray is real.ndarray
    with installed():
        assert importlib.import_module("array_api_compat.cupy").ndarray is DOUBLE["cupy"].ndarray
    assert importlib.import_module("array_api_compat.cupy") is compat


# --- names that airnp uses ---


class _Uses(ast.NodeVisitor):
    """Collects the dotted names below CuPy's packages in a source, and how they are called."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages
        self.roots = {name: name for name in packages} | {"cp": "cupy"}
        self.names: dict[str, int] = {}
        self.calls: list[tuple[str, ast.Call]] = []

    def visit_Import(self, node: ast.Import) -> None:
        for item in node.names:
            if item.name.split(".")[0] in self.packages:
                self.names[item.name] = node.lineno
                if item.asname:
                    self.roots[item.asname] = item.name

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and node.module.split(".")[0] in self.packages:
            for item in node.names:
                self.names[f"{node.module}.{item.name}"] = node.lineno
                self.roots[item.asname or item.name] = f"{node.module}.{item.name}"

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self._dotted(node)
        if name is None:
            self.generic_visit(node)
        else:
            self.names[name] = node.lineno

    def visit_Call(self, node: ast.Call) -> None:
        name = self._dotted(node.func)
        if name is not None:
            self.calls.append((name, node))
        literal = [item.value for item in node.args if isinstance(item, ast.Constant)]
        if getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
            for text in literal:
                if isinstance(text, str) and text.split(".")[0] in self.packages:
                    self.names[text] = node.lineno
        self.generic_visit(node)

    def _dotted(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            return self.roots.get(node.id)
        if isinstance(node, ast.Attribute):
            before = self._dotted(node.value)
            return None if before is None else f"{before}.{node.attr}"
        return None


def _resolve(name: str) -> Any:
    """Return what a dotted name means in whatever ``cupy`` is installed; AttributeError if nothing."""
    first, *rest = name.split(".")
    value, path = importlib.import_module(first), first
    for part in rest:
        path = f"{path}.{part}"
        if not hasattr(value, part) and isinstance(value, ModuleType):
            try:
                importlib.import_module(path)
            except ImportError:
                raise AttributeError(f"there is no {path}") from None
        value = getattr(value, part)
    return value


PACKAGES = ("cupy", "cupyx", "cupy_backends")


def complaints(source: str, packages: tuple[str, ...] = PACKAGES) -> list[str]:
    """Return what is wrong with a source's use of CuPy, as it is installed now."""
    uses = _Uses(packages)
    uses.visit(ast.parse(source))
    found = []
    for name, line in uses.names.items():
        try:
            _resolve(name)
        except (AttributeError, ImportError) as error:
            found.append(f"line {line}: {name}: {error}")
    for name, call in uses.calls:
        try:
            target = _resolve(name)
        except (AttributeError, ImportError):
            continue  # reported above
        how = signature(target) if callable(target) else None
        starred = any(isinstance(item, ast.Starred) for item in call.args) or None in [
            k.arg for k in call.keywords
        ]
        if how is not None and not starred:
            try:
                how.bind(*call.args, **{str(item.arg): item for item in call.keywords})
            except TypeError as error:
                found.append(f"line {call.lineno}: {name}: {error}")
    return found


def test_complaints_are_found(real: ModuleType) -> None:
    good = """
        import importlib
        import cupy as xp
        from cupy.cuda import runtime
        from cupyx.scipy.sparse import csr_matrix
        def f(cupy):
            stream = xp.cuda.Stream(non_blocking=True)
            runtime.getDeviceProperties(0)
            cupy.RawModule(code="", options=(), name_expressions=["f<int>"])
            cupy.empty((3,), dtype=xp.float32)
            with cupy.cuda.Device(stream.device_id):
                return importlib.import_module("cupy.cuda.memory").OutOfMemoryError
    """
    assert complaints(textwrap.dedent(good)) == []
    for bad in (
        "import cupy.no_such_module",
        "from cupy_backends.cuda.libs import cublast",
        "from cupy.cuda import StreamOfNothing",
        "importlib.import_module('cupy.nothing')",
        "cupy.cuda.Streams()",
        "cupy.empty((3,), device=0)",
        "cupy.cuda.Stream(nonblocking=True)",
        "cupy.cuda.runtime.getDeviceProperties()",
        "import cupy as q\nq.RawModule(codes='')",
        "f(cupy.cuda.runtime.memoryInfo())",
        "cupy.cuda.Device(0).use().x(cupy.zeross)",
        "cupy.exp(1, 2)",
    ):
        assert len(complaints(bad)) == 1, bad


SOURCES = sorted(Path(airnp.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(SOURCES[0].parents[0])))
def test_airnp_uses_only_names_of_cupy(path: Path, real: ModuleType) -> None:
    assert complaints(path.read_text(encoding="utf-8")) == []


def test_airnp_uses_only_names_of_the_double() -> None:
    packages = ("cupy", "cupyx")  # cuBLAS, for which the others are asked, is replaced as a whole
    with installed():
        found = {str(path): complaints(path.read_text(encoding="utf-8"), packages) for path in SOURCES}
    assert {path: problems for path, problems in found.items() if problems} == {}

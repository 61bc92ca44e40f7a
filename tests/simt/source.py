"""Turn the text of a kernel into a translation unit for g++."""

import re

from .errors import CompileError

FILENAME = "kernel.cu"  # the name of the text in messages

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_C_KERNEL = re.compile(
    r'extern\s*"C"\s*__global__\s+(?:void\s+|__launch_bounds__\s*\([^()]*\)\s*)+(\w+)\s*\('
)
_BOUND = re.compile(r"__launch_bounds__\s*\(([^(),]*)[^()]*\)\s*(?:void\s+)?(\w+)\s*\(")
_REFUSED = {
    r"extern\s+__shared__": "dynamic shared memory (extern __shared__)",
    r"#\s*include": "#include: NVRTC finds no headers either",
    r"\basm\b": "inline PTX",
    r"\bcooperative_groups\b": "cooperative groups",
}


def wrap(code: str, names: tuple[str, ...]) -> str:
    """Return a translation unit with the unmodified text and a table of its kernels.

    The text is in an unnamed namespace: other loaded modules do not see its names, and AddressSanitizer also
    protects the static variables of templates.

    Parameters
    ----------
    code : str
        CUDA C++.
    names : tuple of str
        The name expressions, such as ``"adam<float>"``; ``extern "C"`` kernels are found without being named.
    """
    plain = _COMMENT.sub(" ", code)
    for pattern, what in _REFUSED.items():
        if re.search(pattern, plain):
            raise CompileError(f"the executor does not support {what}")
    kernels = sorted({*names, *_C_KERNEL.findall(plain)})
    if not kernels:
        raise CompileError('the text has no extern "C" kernel, and name_expressions names no template')
    bounds = {kernel: limit for limit, kernel in _BOUND.findall(plain)}
    entries = "".join(
        f'simt::entry("{name}", {name}, {bounds.get(name.split("<")[0].strip(), 1024)}),\n'
        for name in kernels
    )
    return f'''#include "cuda.h"
namespace {{
#line 1 "{FILENAME}"
{code}
}}
#line 1 "entries"
extern "C" __attribute__((visibility("default"))) const simt::Entry simt_entries[] = {{
{entries}{{}}}};
'''

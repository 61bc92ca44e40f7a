"""The process that runs kernels under AddressSanitizer, as a script that needs only the standard library.

It reads pickled requests from its standard input and answers them on its standard output. Each launch runs in
a fork: an error ends only the fork, and the next launch starts from a clean process with everything loaded.
"""

import ctypes
import functools
import os
import pickle
import signal
import sys
import tempfile
from typing import Any

from binary import SLOT, Binary

_PATIENCE = 1800  # seconds until a launch is taken for an endless one
_ALIGNMENT = 256  # of cudaMalloc


@functools.cache
def load(path: str) -> Binary:
    """Return the library of this path, loaded once."""
    return Binary(path)


def allocate(content: bytes) -> int:
    """Return the address of a copy on the heap, where red zones begin with the byte after the last one."""
    address = ctypes.c_void_p()
    if ctypes.CDLL(None).posix_memalign(ctypes.byref(address), _ALIGNMENT, ctypes.c_size_t(len(content))):
        raise MemoryError
    ctypes.memmove(address, content, len(content))
    return address.value or 0


def launch(request: dict[str, Any]) -> dict[str, Any]:
    """Run a launch in this process; return the kernel's error, if any, and the buffers after it."""
    library = load(request["path"])
    contents, links = request["buffers"], request["links"]
    places = [allocate(content) for content in contents]
    for buffer, word, target in links:  # words of tables that are addresses of buffers
        ctypes.c_uint64.from_address(places[buffer] + 8 * word).value = places[target]
    memory = bytearray(SLOT * len(request["slots"]))
    for i, slot in enumerate(request["slots"]):
        value = slot if isinstance(slot, bytes) else places[slot].to_bytes(8, "little")
        memory[SLOT * i : SLOT * i + len(value)] = value
    message = library.launch(request["name"], request["grid"], request["block"], memory, request["order"])
    after = [ctypes.string_at(place, len(content)) for place, content in zip(places, contents, strict=True)]
    return {"message": message, "buffers": after}


def launch_in_a_fork(request: dict[str, Any]) -> dict[str, Any]:
    """Run a launch in a fork; return its answer, or the report of the sanitizers that ended it."""
    load(request["path"])
    with tempfile.TemporaryFile() as report:
        reading, writing = os.pipe()
        fork = os.fork()
        if fork == 0:
            os.close(reading)
            os.dup2(report.fileno(), 2)
            signal.alarm(_PATIENCE)
            with os.fdopen(writing, "wb") as answers:
                pickle.dump(launch(request), answers)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answers:
            answer = answers.read()
        status = os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])
        if status == 0:
            return pickle.loads(answer)
        report.seek(0)
        text = report.read().decode(errors="replace")
    return {"report": text or f"the launch ended with status {status} (it may take {_PATIENCE} seconds)"}


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep other output away from the answers
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        signatures = "name" not in request
        pickle.dump(load(request["path"]).signatures() if signatures else launch_in_a_fork(request), answers)
        answers.flush()


if __name__ == "__main__":
    main()

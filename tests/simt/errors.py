"""Errors of compiling and launching kernels."""


class CompileError(ValueError):
    """g++ (or the executor) refuses the text; the message is the compiler's."""


class LaunchError(ValueError):
    """A grid or block that CUDA does not accept."""


class ArgumentError(TypeError):
    """The arguments do not fit the kernel's parameters; a GPU would read garbage."""


class KernelError(RuntimeError):
    """The kernel broke a rule of CUDA while it ran: a divergent barrier, an absent lane, a deadlock."""


class SanitizerError(RuntimeError):
    """A sanitizer or the race detector fired.

    Parameters
    ----------
    report : str
        Its full output.
    """

    def __init__(self, report: str) -> None:
        super().__init__(report)
        self.report = report

"""A strict stand-in for the parts of CuPy that airnp uses, on NumPy, for machines without a GPU.

It refuses what CuPy or CUDA refuses, and some things that they let pass although they go wrong:

* NumPy arrays as operands, implicit conversion to NumPy, arrays of a device that is not the current one;
* kernel arguments that are host arrays, not contiguous, freed, or on another device;
* allocations, copies and synchronisation while a stream is being captured;
* work on one stream that uses what another stream has not finished;
* graphs whose memory was freed since they were captured, writes beyond an allocation.

Memory that was not written yet, or was freed, holds NaN.

========================= ==========================================================================
``state``                 counters, settings, current device, CUDA's errors
``memory``                allocations with guard zones, memory in use on each device
``streams``               streams, capture, graphs, order between streams
``array``, ``functions``  ``cupy.ndarray`` and the functions of ``cupy``
``raw``                   ``RawModule``, whose kernels run in ``tests.simt``
``cublas``                ``gemm_strided_batched`` on raw addresses
``sparse``                ``cupyx.scipy.sparse.csr_matrix``
``modules``               puts these together as modules
``fixture``               the pytest fixture ``cupy_double`` installs them for one test
========================= ==========================================================================
"""

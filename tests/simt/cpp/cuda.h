// The shim: with this in front, g++ compiles the unmodified text of a CUDA C++ kernel.
//
// __shared__ becomes a function's static variable. shared.ld gathers those of the kernel text in one section,
// which the run time fills with NaN before each block; AddressSanitizer has its red zones between them. (A
// section attribute would say this directly, but g++ drops it inside templates.)
#pragma once

#include "arithmetic.h"
#include "atomics.h"
#include "entry.h"
#include "intrinsics.h"
#include "types.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

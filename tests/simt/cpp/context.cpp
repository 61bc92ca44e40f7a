// The callee-saved registers of the System V ABI are all that a switch has to keep.
#include "context.h"

#ifndef __x86_64__
#error "the executor's switch between stacks is written for x86-64"
#endif

__asm__(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch, @function
simt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size simt_switch, . - simt_switch
)");

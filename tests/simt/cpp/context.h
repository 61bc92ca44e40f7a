// Switching between stacks: what makes a CUDA thread a fiber.
#pragma once

// Saves the running stack in *from and continues on `to`, which was saved before or made by simt_new_stack.
extern "C" void simt_switch(void** from, void* to);

// Makes a stack that ends at `top`, a multiple of 16. Switching to it starts `entry`, which never returns.
inline void* simt_new_stack(char* top, void (*entry)()) {
    void** place = reinterpret_cast<void**>(top);
    *--place = nullptr;  // keeps the stack aligned as the System V ABI wants it at a function's entry
    *--place = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; ++saved) *--place = nullptr;
    return place;
}

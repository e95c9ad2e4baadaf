/* Start code for a processor without an operating system; the result of main is in memory.
 *
 * An example for RISC-V and Cortex-M. Your firmware has start code and a linker script of its own.
 */
#include <stddef.h>
#include <stdint.h>

/* A debugger or an emulator reads the result of main here. */
volatile int dla_main_result = -1;
/* Address at which an emulator stops. A platform may define another function. */
void dla_stop(void);

void *memcpy(void *to, const void *from, size_t count);
void *memset(void *to, int value, size_t count);
int main(void);
void dla_start(void);

__attribute__((weak, noinline)) void dla_stop(void) {
    for (;;) {
        __asm__ volatile("");
    }
}

static void run_main(void) {
    dla_main_result = main();
    dla_stop();
}

#if defined(__riscv)
__attribute__((naked, section(".dla_start"))) void dla_start(void) {
    __asm__ volatile("la sp, dla_stack_end\n"
                     "j %0" ::"i"(run_main));
}
#elif defined(__arm__)
extern uint32_t dla_stack_end[];
void dla_start(void) {
    run_main();
}
/* Vector table: initial stack pointer, reset. */
__attribute__((used, section(".dla_start"))) static void (*const vectors[2])(void) = {
    (void (*)(void))dla_stack_end,
    dla_start,
};
#endif

/* Compilers call these for copies and clears of structures; firmware usually has them. */
void *memcpy(void *to, const void *from, size_t count) {
    uint8_t *target = (uint8_t *)to;
    const uint8_t *source = (const uint8_t *)from;
    for (size_t n = 0; n < count; n++) {
        target[n] = source[n];
    }
    return to;
}

void *memset(void *to, int value, size_t count) {
    uint8_t *target = (uint8_t *)to;
    for (size_t n = 0; n < count; n++) {
        target[n] = (uint8_t)value;
    }
    return to;
}

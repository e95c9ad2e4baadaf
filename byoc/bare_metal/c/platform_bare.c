/* Platform without an operating system: start code, memory-mapped device, result in memory.
 *
 * An example for RISC-V and Cortex-M. Your firmware has start code and a linker script of its own.
 * DLA_BASE is the bus address of the device's registers. With DLA_INTERRUPT, the number of the
 * device's interrupt in the NVIC or in the register mie, the processor sleeps instead of polling.
 */
#include "platform.h"

#ifndef DLA_BASE
#define DLA_BASE 0x40000000u
#endif

/* A debugger or an emulator reads the result of main here. */
volatile int dla_main_result = -1;
/* Address at which an emulator stops. */
void dla_stop(void);

#ifdef DLA_INTERRUPT
/* The interrupt is enabled and masked: it ends WFI and needs no handler. */
static int wait_for_interrupt(void *context) {
    (void)context;
#if defined(__riscv)
    __asm__ volatile("csrci mstatus, 8\n"
                     "csrs mie, %0\n"
                     "wfi" ::"r"(1u << DLA_INTERRUPT)
                     : "memory");
#elif defined(__arm__)
    volatile uint32_t *const enable = (volatile uint32_t *)0xE000E100u + DLA_INTERRUPT / 32;
    volatile uint32_t *const clear = (volatile uint32_t *)0xE000E280u + DLA_INTERRUPT / 32;
    __asm__ volatile("cpsid i" ::: "memory");
    *enable = 1u << DLA_INTERRUPT % 32;
    __asm__ volatile("dsb\n"
                     "wfi" ::
                         : "memory");
    *clear = 1u << DLA_INTERRUPT % 32;
#endif
    return 0;
}

static const struct dla_port device_port = {.base = DLA_BASE, .wait = wait_for_interrupt};
#else
static const struct dla_port device_port = {.base = DLA_BASE};
#endif

const struct dla_port *platform_port(void) {
    return &device_port;
}

#ifdef DLA_PRINT
void platform_print(const char *text) {
    while (*text != '\0') {
        *(volatile uint32_t *)DLA_PRINT = (uint32_t)(unsigned char)*text++;
    }
}
#else
void platform_print(const char *text) {
    (void)text;
}
#endif

int main(void);
void dla_start(void);

__attribute__((noinline)) void dla_stop(void) {
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

/* Platform without an operating system: the device is memory-mapped.
 *
 * An example for RISC-V and Cortex-M. DLA_BASE is the bus address of the device's registers. With
 * DLA_INTERRUPT, the number of the device's interrupt in the NVIC or in the register mie, the
 * processor sleeps instead of polling.
 */
#include "platform.h"

#ifndef DLA_BASE
#define DLA_BASE 0x40000000u
#endif

#ifdef DLA_INTERRUPT
/* The interrupt is enabled and masked: it ends WFI and needs no handler. */
static int wait_for_interrupt(void *context) {
    (void)context;
#if defined(__riscv)
    __asm__ volatile(".option push\n"
                     ".option arch, +zicsr\n"
                     "csrci mstatus, 8\n"
                     "csrs mie, %0\n"
                     ".option pop\n"
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

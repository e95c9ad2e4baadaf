/* Platform of QEMU's machines mps2-an386 (Cortex-M4) and virt (RISC-V).
 *
 * QEMU emulates no accelerator. The registers are behind the machine's UART, with the requests of
 * docs/device.md; the memory is shared, because QEMU and the device map one file. With
 * QEMU_INTERRUPT the processor sleeps until the UART's interrupt brings the reply to a WAIT.
 */
#include "platform.h"

extern volatile int dla_main_result;
void dla_stop(void);

enum { READ32 = 1, WRITE32 = 2, WAIT = 5 }; /* kinds of requests */

#if defined(__arm__)
static volatile uint32_t *const uart = (volatile uint32_t *)0x40004000u; /* CMSDK UART 0 */
#define DATA uart[0]
#define CAN_SEND (!(uart[1] & 1u))
#define HAS_DATA (uart[1] & 2u)
static void open_uart(void) {
    uart[4] = 16; /* divisor */
    uart[2] = 3;  /* send and receive */
}
static void sleep_until_data(void) {
    __asm__ volatile("cpsid i" ::: "memory");
    uart[2] = 3 | 8;                                /* receive interrupt */
    *(volatile uint32_t *)0xE000E100u = 1u;         /* NVIC: enable interrupt 0 */
    while (!HAS_DATA) __asm__ volatile("dsb\n"
                                       "wfi" ::
                                           : "memory");
    uart[2] = 3;
    uart[3] = 2;                                    /* clear it in the UART and in the NVIC */
    *(volatile uint32_t *)0xE000E280u = 1u;
}
static uint32_t call_host(uint32_t operation, const void *argument) {
    register uint32_t number __asm__("r0") = operation;
    register const void *pointer __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(number) : "r"(pointer) : "memory");
    return number;
}
#elif defined(__riscv)
static volatile uint8_t *const uart = (volatile uint8_t *)0x10000000u; /* NS16550A */
#define DATA uart[0]
#define CAN_SEND (uart[5] & 0x20u)
#define HAS_DATA (uart[5] & 1u)
static volatile uint32_t *const plic = (volatile uint32_t *)0x0C000000u;
static void open_uart(void) {
    uart[3] = 3; /* 8 bits */
    uart[2] = 1; /* FIFO */
}
static void sleep_until_data(void) {
    uint32_t number;
    uart[1] = 1;                         /* receive interrupt */
    plic[10] = 1;                        /* its priority, interrupt 10 */
    plic[0x2000 / 4] = 1u << 10;         /* enable it for hart 0, machine mode */
    plic[0x200000 / 4] = 0;              /* threshold */
    __asm__ volatile(".option push\n"
                     ".option arch, +zicsr\n"
                     "csrci mstatus, 8\n"
                     "csrs mie, %0\n"
                     ".option pop\n" ::"r"(1u << 11)
                     : "memory");
    while (!HAS_DATA) __asm__ volatile("wfi" ::: "memory");
    number = plic[0x200004 / 4];         /* claim and complete */
    uart[1] = 0;
    plic[0x200004 / 4] = number;
}
static uint32_t call_host(uint32_t operation, const void *argument) {
    register uint32_t number __asm__("a0") = operation;
    register const void *pointer __asm__("a1") = argument;
    __asm__ volatile(".option push\n"
                     ".option norvc\n"
                     ".balign 16\n"
                     "slli x0, x0, 0x1f\n"
                     "ebreak\n"
                     "srai x0, x0, 7\n"
                     ".option pop\n"
                     : "+r"(number)
                     : "r"(pointer)
                     : "memory");
    return number;
}
#endif

static void send(uint32_t value, unsigned bytes) {
    for (; bytes; --bytes, value >>= 8) {
        while (!CAN_SEND) {
        }
        DATA = (uint8_t)value;
    }
}

static uint32_t ask(uint8_t kind, uint32_t address, uint32_t value) {
    uint32_t reply = 0;
    unsigned n;
    send(kind, 1);
    send(address, 4);
    send(value, 4);
    if (kind == WAIT) sleep_until_data();
    for (n = 0; n < 4; ++n) {
        while (!HAS_DATA) {
        }
        reply |= (DATA & 0xFFu) << (8 * n);
    }
    return reply;
}

static uint32_t read_register(void *context, uint32_t offset) {
    (void)context;
    return ask(READ32, offset, 0);
}

static void write_register(void *context, uint32_t offset, uint32_t value) {
    (void)context;
    (void)ask(WRITE32, offset, value);
}

#ifdef QEMU_INTERRUPT
static int wait_for_end(void *context) {
    (void)context;
    return ask(WAIT, 0, 0) != 1; /* 1: the interrupt line */
}
#endif

const struct dla_port *platform_port(void) {
    static struct dla_port port;
    open_uart();
    port.read = read_register;
    port.write = write_register;
#ifdef QEMU_INTERRUPT
    port.wait = wait_for_end;
#endif
    return &port;
}

void platform_print(const char *text) {
    (void)call_host(4, text); /* SYS_WRITE0 */
}

void dla_stop(void) {
    const uint32_t reason[2] = {0x20026u, (uint32_t)dla_main_result};
    for (;;) (void)call_host(0x20, reason); /* SYS_EXIT_EXTENDED: the application ended */
}

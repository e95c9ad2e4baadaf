/* Driver of the accelerator behind the registers of docs/device.md: C99, freestanding, no memory of its own. */
#ifndef DLA_DRIVER_H
#define DLA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "dla_device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dla_status {
    DLA_OK = 0,
    DLA_ERROR_ID,       /* no device: the register ID has another value */
    DLA_ERROR_VERSION,  /* the device has another register map */
    DLA_ERROR_BUSY,     /* the device runs a program that another caller started */
    DLA_ERROR_STOPPED,  /* the port's wait stopped the run; the device was reset */
    DLA_ERROR_PROGRAM,  /* a pointer that the program needs is NULL */
    DLA_ERROR_INDEX,    /* an index of a look-up on the processor is out of range */
    DLA_ERROR_FAULT = 32 /* DLA_ERROR_FAULT + n: fault with the reason n of dla_device.h */
};

/* Events of the port's `profile`; the driver reports the first two. */
enum dla_event { DLA_REGION_BEGINS, DLA_REGION_ENDS, DLA_HOST_BEGINS, DLA_HOST_ENDS };

/* How the driver reaches the device. Every function may be NULL; `context` is its first argument. */
struct dla_port {
    uint32_t (*read)(void *context, uint32_t offset); /* NULL: registers are memory at `base` */
    void (*write)(void *context, uint32_t offset, uint32_t value);
    void *context;
    uintptr_t base;
    void (*clean)(void *context, const void *data, size_t size);      /* write a cache's bytes to memory */
    void (*invalidate)(void *context, const void *data, size_t size); /* drop a cache's bytes */
    /* Sleep until the interrupt, at the latest; return 0 to go on, another value to stop the run. It is called
       again until the run ends, and must return at once if the interrupt is pending. NULL: poll STATUS. */
    int (*wait)(void *context);
    void (*profile)(void *context, int event, const char *name); /* enum dla_event, name of the program */
    uint32_t (*bus_address)(void *context, const void *data);    /* NULL: the pointer's value */
};

/* A compiled region. Words, constants, activations and state must be aligned to DLA_DEVICE_ALIGNMENT bytes. */
struct dla_program {
    uint32_t hash[4];
    const uint64_t *words;
    uint32_t word_count, command_start;
    const uint8_t *constants;
    uint32_t constant_bytes, constant_start;
    uint32_t activation_bytes, activation_start;
    uint32_t state_bytes, state_start;
    const char *name;
};

/* Counters of a run, and after a fault its word and address. The units are LD, EX, ST; the causes are in the order of
   docs/device.md. */
struct dla_counters {
    uint64_t cycles;
    uint64_t units[DLA_DEVICE_UNITS][DLA_DEVICE_CAUSES];
    uint32_t fault_word, fault_address;
};

/* Return DLA_OK if a device with this register map answers. */
enum dla_status dla_check(const struct dla_port *port);

/* Run a program to its end. `activations` has activation_bytes, with the inputs in place; outputs are there
   afterwards. `state` has state_bytes and may be NULL if that is 0; `counters` may be NULL. */
enum dla_status dla_run(const struct dla_port *port, const struct dla_program *program, void *activations, void *state,
                        struct dla_counters *counters);

/* Return a status in words. */
const char *dla_status_text(enum dla_status status);

#ifdef __cplusplus
}
#endif

#endif

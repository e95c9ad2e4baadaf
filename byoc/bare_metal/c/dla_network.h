/* A network of the bundle, for the application. */
#ifndef DLA_NETWORK_H
#define DLA_NETWORK_H

#include "dla_driver.h"
#include "dla_host.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Linker sections; define them to another attribute, or to nothing, before including this file. */
#ifndef DLA_CONSTANTS
#define DLA_CONSTANTS __attribute__((section(".dla_constants"), aligned(64)))
#endif
#ifndef DLA_COMMANDS
#define DLA_COMMANDS __attribute__((section(".dla_commands"), aligned(64)))
#endif
#ifndef DLA_ARENA
#define DLA_ARENA __attribute__((section(".bss.dla_arena"), aligned(64)))
#endif

/* Input or output: a dense tensor at byte `offset` of the arena, last dimension innermost. */
struct dla_tensor {
    const char *name;
    enum dla_type type;
    uint32_t rank;
    uint32_t shape[8];
    uint32_t offset, bytes;
    float scale;        /* quantisation of an integer tensor: real = (q - zero_point) * scale, */
    int32_t zero_point; /* or scale 0 without one */
};

/* Report the begin or the end of calls on the processor (enum dla_event). */
static inline void dla_profile_host(const struct dla_port *port, int event, const char *name) {
    if (port->profile != NULL) {
        port->profile(port->context, event, name);
    }
}

struct dla_sample {
    const void *const *inputs;  /* one for each input of the network */
    const void *const *outputs; /* bytes that `dla run` computed */
    const uint64_t *cycles;     /* cycles of each region; 0: the region does not run */
};

struct dla_network {
    const char *name;
    uint32_t arena_bytes, input_count, output_count, region_count, sample_count;
    const struct dla_tensor *inputs, *outputs;
    const struct dla_sample *samples;
    /* Write the initial state into the arena; a network without state does nothing. */
    void (*reset)(void *arena);
    /* Run one inference. `arena` has arena_bytes bytes, aligned to DLA_DEVICE_ALIGNMENT.
     * `counters` is NULL or has an entry for each region. */
    enum dla_status (*run)(const struct dla_port *port, void *arena, struct dla_counters *counters);
};

/* All networks of the bundle (networks.c). */
extern const struct dla_network *const dla_networks[];
extern const uint32_t dla_network_count;
/* Arena that serves any of them, one at a time. */
extern uint8_t dla_arena[];
extern const uint32_t dla_arena_bytes;
/* Counters of the regions of any of them. */
extern struct dla_counters dla_region_counters[];

#ifdef __cplusplus
}
#endif

#endif

#include "dla_driver.h"

/* Keep the compiler from moving accesses to shared memory across the start and the end of a run. */
#if defined(__GNUC__)
#define DLA_BARRIER() __asm__ volatile("" ::: "memory")
#else
#define DLA_BARRIER() ((void)0)
#endif

static uint32_t get(const struct dla_port *port, uint32_t offset) {
    if (port->read) return port->read(port->context, offset);
    return *(const volatile uint32_t *)(port->base + offset);
}

static void put(const struct dla_port *port, uint32_t offset, uint32_t value) {
    if (port->write)
        port->write(port->context, offset, value);
    else
        *(volatile uint32_t *)(port->base + offset) = value;
}

static uint64_t get_counter(const struct dla_port *port, uint32_t offset) {
    const uint64_t high = get(port, offset + 4u);
    return (high << 32) | get(port, offset);
}

/* Write the three registers of a window: base, size, start. The cache is cleaned first. */
static void put_window(const struct dla_port *port, const void *data, uint32_t size, uint32_t count, uint32_t start,
                       const uint32_t offsets[3]) {
    uint32_t base = 0;
    if (size) {
        if (port->clean) port->clean(port->context, data, size);
        base = port->bus_address ? port->bus_address(port->context, data) : (uint32_t)(uintptr_t)data;
    }
    put(port, offsets[0], base);
    put(port, offsets[1], count);
    put(port, offsets[2], start);
}

static void put_program(const struct dla_port *port, const struct dla_program *program, const void *activations,
                        const void *state) {
    static const uint32_t command[] = {DLA_DEVICE_COMMAND_BASE, DLA_DEVICE_COMMAND_WORDS, DLA_DEVICE_COMMAND_START};
    static const uint32_t constant[] = {DLA_DEVICE_CONSTANT_BASE, DLA_DEVICE_CONSTANT_BYTES, DLA_DEVICE_CONSTANT_START};
    static const uint32_t activation[] = {DLA_DEVICE_ACTIVATION_BASE, DLA_DEVICE_ACTIVATION_BYTES,
                                          DLA_DEVICE_ACTIVATION_START};
    static const uint32_t lasting[] = {DLA_DEVICE_STATE_BASE, DLA_DEVICE_STATE_BYTES, DLA_DEVICE_STATE_START};
    uint32_t number;
    for (number = 0; number < 4; ++number) put(port, DLA_DEVICE_PROGRAM_HASH0 + 4u * number, program->hash[number]);
    put_window(port, program->words, 8u * program->word_count, program->word_count, program->command_start, command);
    put_window(port, program->constants, program->constant_bytes, program->constant_bytes, program->constant_start,
               constant);
    put_window(port, activations, program->activation_bytes, program->activation_bytes, program->activation_start,
               activation);
    put_window(port, state, program->state_bytes, program->state_bytes, program->state_start, lasting);
}

static void get_counters(const struct dla_port *port, struct dla_counters *counters) {
    uint32_t offset = DLA_DEVICE_LD_BUSY_LOW;
    unsigned unit, cause;
    counters->cycles = get_counter(port, DLA_DEVICE_CYCLES_LOW);
    for (unit = 0; unit < DLA_DEVICE_UNITS; ++unit)
        for (cause = 0; cause < DLA_DEVICE_CAUSES; ++cause, offset += 8u)
            counters->units[unit][cause] = get_counter(port, offset);
    counters->fault_word = get(port, DLA_DEVICE_FAULT_WORD);
    counters->fault_address = get(port, DLA_DEVICE_FAULT_ADDRESS);
}

/* Start the run and wait for its end; return the value of STATUS, or 0 if the port stopped it. */
static uint32_t run(const struct dla_port *port) {
    uint32_t status;
    put(port, DLA_DEVICE_INTERRUPT, DLA_DEVICE_INTERRUPT_PENDING);
    put(port, DLA_DEVICE_INTERRUPT_ENABLE, port->wait ? DLA_DEVICE_INTERRUPT_ENABLE_ENABLE : 0u);
    DLA_BARRIER();
    put(port, DLA_DEVICE_CONTROL, DLA_DEVICE_CONTROL_RUN);
    for (;;) {
        status = get(port, DLA_DEVICE_STATUS);
        if (!(status & DLA_DEVICE_STATUS_BUSY)) break;
        if (port->wait && port->wait(port->context)) {
            put(port, DLA_DEVICE_CONTROL, DLA_DEVICE_CONTROL_RESET);
            return 0;
        }
    }
    DLA_BARRIER();
    put(port, DLA_DEVICE_INTERRUPT, DLA_DEVICE_INTERRUPT_PENDING);
    return status;
}

enum dla_status dla_check(const struct dla_port *port) {
    if (get(port, DLA_DEVICE_ID) != DLA_DEVICE_IDENTITY) return DLA_ERROR_ID;
    if (get(port, DLA_DEVICE_MAP_VERSION) != DLA_DEVICE_VERSION) return DLA_ERROR_VERSION;
    return DLA_OK;
}

enum dla_status dla_run(const struct dla_port *port, const struct dla_program *program, void *activations, void *state,
                        struct dla_counters *counters) {
    uint32_t status;
    enum dla_status found = dla_check(port);
    if (found != DLA_OK) return found;
    if (!program->words || (program->constant_bytes && !program->constants) ||
        (program->activation_bytes && !activations) || (program->state_bytes && !state))
        return DLA_ERROR_PROGRAM;
    if (get(port, DLA_DEVICE_STATUS) & DLA_DEVICE_STATUS_BUSY) return DLA_ERROR_BUSY;
    put_program(port, program, activations, state);
    if (port->profile) port->profile(port->context, DLA_REGION_BEGINS, program->name);
    status = run(port);
    if (status && port->invalidate) {
        if (program->activation_bytes) port->invalidate(port->context, activations, program->activation_bytes);
        if (program->state_bytes) port->invalidate(port->context, state, program->state_bytes);
    }
    if (port->profile) port->profile(port->context, DLA_REGION_ENDS, program->name);
    if (!status) return DLA_ERROR_STOPPED;
    if (counters) get_counters(port, counters);
    if (status & DLA_DEVICE_STATUS_FAULT)
        return (enum dla_status)(DLA_ERROR_FAULT + get(port, DLA_DEVICE_FAULT_REASON));
    return DLA_OK;
}

const char *dla_status_text(enum dla_status status) {
    switch ((unsigned)status) {
        case DLA_OK: return "ok";
        case DLA_ERROR_ID: return "no device at this address";
        case DLA_ERROR_VERSION: return "the device has another register map; use its version of the driver";
        case DLA_ERROR_BUSY: return "the device is busy";
        case DLA_ERROR_STOPPED: return "the run was stopped before its end";
        case DLA_ERROR_PROGRAM: return "the program, its activations or its state is NULL";
        case DLA_ERROR_INDEX: return "an index of a look-up is out of range";
        case DLA_ERROR_FAULT + DLA_FAULT_HASH: return "fault: the program is for another machine; compile it again";
        case DLA_ERROR_FAULT + DLA_FAULT_ALIGNMENT: return "fault: a buffer is not aligned to 64 bytes";
        case DLA_ERROR_FAULT + DLA_FAULT_MEMORY: return "fault: a buffer is outside the device's memory";
        case DLA_ERROR_FAULT + DLA_FAULT_OVERLAP: return "fault: two buffers overlap";
        case DLA_ERROR_FAULT + DLA_FAULT_WORD: return "fault: illegal command word";
        case DLA_ERROR_FAULT + DLA_FAULT_ADDRESS: return "fault: an operand is outside its window";
        case DLA_ERROR_FAULT + DLA_FAULT_DEADLOCK: return "fault: deadlock";
        case DLA_ERROR_FAULT + DLA_FAULT_HAZARD: return "fault: two commands collide in memory";
        case DLA_ERROR_FAULT + DLA_FAULT_OVERFLOW: return "fault: overflow";
        case DLA_ERROR_FAULT + DLA_FAULT_OPERAND: return "fault: a command cannot be executed";
        case DLA_ERROR_FAULT + DLA_FAULT_LIMIT: return "fault: the model of the device lacks memory or time";
        default: return "unknown status";
    }
}

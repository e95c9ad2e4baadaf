/* Runs the driver on registers that this file imitates, and checks every access. Exit status 0: all is right. */
#include "dla_driver.h"

#include <stdio.h>
#include <string.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            ++failures; \
        } \
    } while (0)

static int failures;
static uint32_t registers[DLA_DEVICE_BYTES / 4];
static uint32_t end_status, busy_reads, run_reads; /* STATUS at the end of a run, and reads until then */
static char order[256];                            /* of events: one letter each */
static int stop;

static void note(char letter) {
    const size_t length = strlen(order);
    if (length + 1 < sizeof order) {
        order[length] = letter;
        order[length + 1] = 0;
    }
}

static uint32_t read_register(void *context, uint32_t offset) {
    (void)context;
    CHECK(offset % 4 == 0 && offset < DLA_DEVICE_BYTES);
    if (offset == DLA_DEVICE_STATUS && registers[offset / 4] == DLA_DEVICE_STATUS_BUSY && !run_reads--)
        registers[offset / 4] = end_status;
    return registers[offset / 4];
}

static void write_register(void *context, uint32_t offset, uint32_t value) {
    (void)context;
    CHECK(offset % 4 == 0 && offset < DLA_DEVICE_BYTES);
    registers[offset / 4] = value;
    if (offset == DLA_DEVICE_CONTROL && value == DLA_DEVICE_CONTROL_RUN) {
        note('R');
        run_reads = busy_reads;
        registers[DLA_DEVICE_STATUS / 4] = DLA_DEVICE_STATUS_BUSY;
    }
    if (offset == DLA_DEVICE_CONTROL && value == DLA_DEVICE_CONTROL_RESET) {
        note('X');
        registers[DLA_DEVICE_STATUS / 4] = 0;
    }
}

static uint64_t words[3];
static uint8_t constants[64], activations[128], state[32];

static char letter_of(const void *data) {
    return data == words ? 'w' : data == constants ? 'c' : data == activations ? 'a' : data == state ? 's' : '?';
}

static void clean(void *context, const void *data, size_t size) {
    (void)context;
    CHECK(size == (data == words ? sizeof words : data == constants ? sizeof constants
                   : data == activations ? sizeof activations : sizeof state));
    note(letter_of(data));
}

static void invalidate(void *context, const void *data, size_t size) {
    (void)context;
    CHECK(size == (data == activations ? sizeof activations : sizeof state));
    note(data == activations ? 'A' : data == state ? 'S' : '?');
}

static int wait_for_end(void *context) {
    (void)context;
    CHECK(registers[DLA_DEVICE_INTERRUPT_ENABLE / 4] == 1);
    note('.');
    return stop;
}

static void profile(void *context, int event, const char *name) {
    (void)context;
    CHECK(!strcmp(name, "net"));
    note(event == DLA_REGION_BEGINS ? '(' : event == DLA_REGION_ENDS ? ')' : '?');
}

static uint32_t bus_address(void *context, const void *data) {
    (void)context;
    return 0x1000u * (uint32_t)letter_of(data);
}

static const struct dla_program program = {
    .hash = {1, 2, 3, 4}, .words = words, .word_count = 3, .command_start = 0x400, .constants = constants,
    .constant_bytes = sizeof constants, .constant_start = 0x200, .activation_bytes = sizeof activations,
    .activation_start = 0x40, .state_bytes = sizeof state, .state_start = 0x300, .name = "net"};

static void restart(void) {
    memset(registers, 0, sizeof registers);
    registers[DLA_DEVICE_ID / 4] = DLA_DEVICE_IDENTITY;
    registers[DLA_DEVICE_MAP_VERSION / 4] = DLA_DEVICE_VERSION;
    end_status = DLA_DEVICE_STATUS_DONE;
    busy_reads = 2;
    stop = 0;
    order[0] = 0;
}

static void check_port(const struct dla_port *port) {
    struct dla_counters counters;
    uint32_t number;
    restart();
    for (number = DLA_DEVICE_CYCLES_LOW; number < DLA_DEVICE_BYTES; number += 4) registers[number / 4] = number;
    CHECK(dla_run(port, &program, activations, state, &counters) == DLA_OK);
    CHECK(!strcmp(order, port->wait ? "wcas(R..AS)" : "wcas(RAS)"));
    CHECK(counters.cycles == ((uint64_t)0x84 << 32 | 0x80));
    CHECK(counters.units[0][0] == ((uint64_t)0x8c << 32 | 0x88));
    CHECK(counters.units[2][DLA_DEVICE_CAUSES - 1] ==
          ((uint64_t)DLA_DEVICE_ST_DRAINED_HIGH << 32 | DLA_DEVICE_ST_DRAINED_LOW));
    CHECK(!memcmp(&registers[DLA_DEVICE_PROGRAM_HASH0 / 4], program.hash, sizeof program.hash));
    CHECK(registers[DLA_DEVICE_COMMAND_BASE / 4] == 0x1000u * 'w');
    CHECK(registers[DLA_DEVICE_COMMAND_WORDS / 4] == 3 && registers[DLA_DEVICE_COMMAND_START / 4] == 0x400);
    CHECK(registers[DLA_DEVICE_CONSTANT_BASE / 4] == 0x1000u * 'c');
    CHECK(registers[DLA_DEVICE_CONSTANT_BYTES / 4] == 64 && registers[DLA_DEVICE_CONSTANT_START / 4] == 0x200);
    CHECK(registers[DLA_DEVICE_ACTIVATION_BASE / 4] == 0x1000u * 'a');
    CHECK(registers[DLA_DEVICE_ACTIVATION_BYTES / 4] == 128 && registers[DLA_DEVICE_ACTIVATION_START / 4] == 0x40);
    CHECK(registers[DLA_DEVICE_STATE_BASE / 4] == 0x1000u * 's');
    CHECK(registers[DLA_DEVICE_STATE_BYTES / 4] == 32 && registers[DLA_DEVICE_STATE_START / 4] == 0x300);
    CHECK(registers[DLA_DEVICE_INTERRUPT / 4] == 1);
}

static void check_errors(const struct dla_port *port) {
    struct dla_counters counters;
    struct dla_program other = program;
    uint32_t reason;
    restart();
    registers[DLA_DEVICE_ID / 4] = 0;
    CHECK(dla_check(port) == DLA_ERROR_ID && dla_run(port, &program, activations, state, NULL) == DLA_ERROR_ID);
    restart();
    registers[DLA_DEVICE_MAP_VERSION / 4] = 2;
    CHECK(dla_check(port) == DLA_ERROR_VERSION);
    restart();
    CHECK(dla_check(port) == DLA_OK);
    CHECK(dla_run(port, &program, NULL, state, NULL) == DLA_ERROR_PROGRAM);
    CHECK(dla_run(port, &program, activations, NULL, NULL) == DLA_ERROR_PROGRAM);
    other.words = NULL;
    CHECK(dla_run(port, &other, activations, state, NULL) == DLA_ERROR_PROGRAM);
    other = program;
    other.constants = NULL;
    CHECK(dla_run(port, &other, activations, state, NULL) == DLA_ERROR_PROGRAM);
    other.constant_bytes = other.state_bytes = 0;
    CHECK(dla_run(port, &other, activations, NULL, NULL) == DLA_OK);
    restart();
    registers[DLA_DEVICE_STATUS / 4] = DLA_DEVICE_STATUS_BUSY;
    run_reads = 5;
    CHECK(dla_run(port, &program, activations, state, NULL) == DLA_ERROR_BUSY && !order[0]);
    restart();
    stop = 1;
    CHECK(dla_run(port, &program, activations, state, NULL) == DLA_ERROR_STOPPED);
    CHECK(!strcmp(order, "wcas(R.X)"));
    for (reason = 1; reason <= DLA_FAULT_LIMIT; ++reason) {
        enum dla_status status;
        restart();
        end_status = DLA_DEVICE_STATUS_FAULT;
        registers[DLA_DEVICE_FAULT_REASON / 4] = reason;
        registers[DLA_DEVICE_FAULT_WORD / 4] = 7;
        registers[DLA_DEVICE_FAULT_ADDRESS / 4] = 9;
        status = dla_run(port, &program, activations, state, &counters);
        CHECK(status == (enum dla_status)(DLA_ERROR_FAULT + reason));
        CHECK(counters.fault_word == 7 && counters.fault_address == 9);
        printf("%s\n", dla_status_text(status));
    }
    for (reason = 0; reason <= DLA_ERROR_INDEX; ++reason) printf("%s\n", dla_status_text((enum dla_status)reason));
    printf("%s\n", dla_status_text((enum dla_status)63));
}

/* The registers are memory, the device answers at once, and the port has no functions. */
static void check_memory_mapped(void) {
    struct dla_port port = {0};
    port.base = (uintptr_t)registers;
    restart();
    registers[DLA_DEVICE_STATUS / 4] = DLA_DEVICE_STATUS_DONE;
    CHECK(dla_run(&port, &program, activations, state, NULL) == DLA_OK);
    CHECK(registers[DLA_DEVICE_CONTROL / 4] == DLA_DEVICE_CONTROL_RUN);
    CHECK(registers[DLA_DEVICE_ACTIVATION_BASE / 4] == (uint32_t)(uintptr_t)activations);
    CHECK(registers[DLA_DEVICE_INTERRUPT_ENABLE / 4] == 0);
}

int main(void) {
    struct dla_port port = {read_register, write_register, NULL, 0, clean, invalidate, wait_for_end, profile, bus_address};
    check_port(&port);
    check_errors(&port);
    port.wait = NULL;
    check_port(&port);
    check_memory_mapped();
    return failures != 0;
}

/* Run the recorded samples of every network and compare outputs and cycles.
 *
 * Return 0 if all are equal, else the number of differences (at most 100), or 101 without a device.
 * Build with DLA_ANY_CYCLES for a device whose memory has another speed than the simulated one.
 */
#include "dla_network.h"
#include "platform.h"

static void print_number(uint64_t number) {
    char digits[21];
    uint32_t at = sizeof digits - 1;
    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + (char)(number % 10u));
        number /= 10u;
    } while (number != 0);
    platform_print(digits + at);
}

static void print_begin(const char *name, uint32_t sample, const char *text) {
    platform_print(name);
    platform_print(", sample ");
    print_number(sample);
    platform_print(": ");
    platform_print(text);
}

static void print_line(const char *name, uint32_t sample, const char *text, uint64_t number) {
    print_begin(name, sample, text);
    print_number(number);
    platform_print("\n");
}

static int bytes_equal(const uint8_t *one, const uint8_t *other, uint32_t count) {
    for (uint32_t n = 0; n < count; n++) {
        if (one[n] != other[n]) {
            return 0;
        }
    }
    return 1;
}

/* Run one sample; return the number of differences. */
static int run_sample(const struct dla_port *port, const struct dla_network *network,
                      uint32_t number) {
    const struct dla_sample *sample = &network->samples[number];
    enum dla_status status;
    uint64_t cycles = 0;
    int differences = 0;
    network->reset(dla_arena);
    for (uint32_t n = 0; n < network->input_count; n++) {
        const struct dla_tensor *input = &network->inputs[n];
        memcpy(dla_arena + input->offset, sample->inputs[n], input->bytes);
    }
    for (uint32_t n = 0; n < network->region_count; n++) {
        dla_region_counters[n].cycles = 0;
    }
    status = network->run(port, dla_arena, dla_region_counters);
    if (status != DLA_OK) {
        print_begin(network->name, number, dla_status_text(status));
        platform_print("\n");
        return 1;
    }
    for (uint32_t n = 0; n < network->output_count; n++) {
        const struct dla_tensor *output = &network->outputs[n];
        const uint8_t *wanted = (const uint8_t *)sample->outputs[n];
        if (!bytes_equal(dla_arena + output->offset, wanted, output->bytes)) {
            print_line(network->name, number, "other bytes in output ", n);
            differences++;
        }
    }
    for (uint32_t n = 0; n < network->region_count; n++) {
        cycles += dla_region_counters[n].cycles;
#ifndef DLA_ANY_CYCLES
        if (dla_region_counters[n].cycles != sample->cycles[n]) {
            print_line(network->name, number, "other cycles in region ", n);
            differences++;
        }
#endif
    }
    print_line(network->name, number, differences == 0 ? "equal, cycles " : "DIFFERENT, cycles ",
               cycles);
    return differences;
}

int main(void) {
    const struct dla_port *port = platform_port();
    int differences = 0;
    if (port == NULL || dla_check(port) != DLA_OK) {
        platform_print("no device\n");
        return 101;
    }
    for (uint32_t n = 0; n < dla_network_count; n++) {
        for (uint32_t sample = 0; sample < dla_networks[n]->sample_count; sample++) {
            differences += run_sample(port, dla_networks[n], sample);
        }
    }
    return differences < 100 ? differences : 100;
}

// Drives one engine of EX, command after command, as the unit EX would: see engine_bench.py, which writes `ports.h`.
//
//   bench CASES RESULTS
//
// CASES: for each command the inputs in the order of INPUTS, then `factor` (cycles a step), `limit` (steps), `drain`
// (cycles after the last step), all 64-bit, and the scratchpad. RESULTS: steps, cycle sum of `fault`, outputs in the
// order of OUTPUTS as they are before the first step, and the scratchpad.

#include "ports.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

using std::uint64_t;

static bool get(std::FILE *file, void *place, std::size_t bytes) { return std::fread(place, 1, bytes, file) == bytes; }

int main(int count, char **words) {
    if (count != 3) return 2;
    std::FILE *cases = std::fopen(words[1], "rb"), *results = std::fopen(words[2], "wb");
    if (!cases || !results) return 3;
    auto top = std::make_unique<Model>();
    auto tick = [&] {  // inputs are set in the first half of the cycle, which begins with the rising edge
        top->eval();
        top->clk = 0;
        top->eval();
        top->clk = 1;
        top->eval();
    };
    top->clk = 1;
    top->eval();  // what `initial` does is over
    for (uint64_t inputs[INPUT_COUNT]; get(cases, inputs, sizeof inputs);) {
        uint64_t factor, limit, drain, steps = 0, outputs[OUTPUT_COUNT];
        if (!get(cases, &factor, 8) || !get(cases, &limit, 8) || !get(cases, &drain, 8)) return 4;
        if (!get(cases, SCRATCHPAD(*top), SCRATCHPAD_BYTES)) return 5;
        SET_INPUTS(*top, inputs);
        top->engine_bench_advance = 0;
        top->rst = 1;
        for (int cycle = 0; cycle < 2; cycle++) tick();
        top->rst = 0;
        tick();
        tick();
        top->eval();
        GET_OUTPUTS(*top, outputs);
        for (bool last = top->engine_bench_empty; !last && steps < limit; steps++) {
            top->engine_bench_advance = 1;
            top->eval();
            last = top->engine_bench_last;
            tick();
            top->engine_bench_advance = 0;
            for (uint64_t cycle = 1; cycle < factor; cycle++) tick();
        }
        for (uint64_t cycle = 0; cycle < drain; cycle++) tick();
        uint64_t fault = top->engine_bench_fault;
        std::fwrite(&steps, 8, 1, results);
        std::fwrite(&fault, 8, 1, results);
        std::fwrite(outputs, sizeof outputs, 1, results);
        std::fwrite(SCRATCHPAD(*top), 1, SCRATCHPAD_BYTES, results);
    }
    return std::fclose(results);
}

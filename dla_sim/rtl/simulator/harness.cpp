// Runs cases on the machine, one after another in one process, and compares them with the simulator (docs/rtl.md).
//
//   harness OUTPUTS CASE...                       print one line of JSON per case, write its outputs to OUTPUTS
//   harness OUTPUTS CASE WAVES FIRST END          (traced builds) also write the signals of cycles [FIRST, END)
//
// Verilator reads words that begin with +: +verilator+rand+reset+2 and +verilator+seed+N give registers random values.
//
// A case is a file of 64-bit little-endian numbers. case_file.py writes them; Reader reads them in the same order.

#include "machine.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using Bytes = std::vector<std::uint8_t>;
using std::uint64_t;

constexpr uint64_t MAGIC = 0x3145534143414c44;  // "DLACASE1"
constexpr uint64_t NONE = ~uint64_t{0};
constexpr int UNITS = 3;
constexpr int IDLE = 0, DRAINED = 9, CAUSES = 10;  // the codes of ports.Cause; IDLE counts as queue_empty
constexpr int RESET_CYCLES = 3;
constexpr std::size_t SHOWN_BYTES = 16, SHOWN_DIFFERENCES = 20;
const char *const UNIT_NAMES[UNITS] = {"LD", "EX", "ST"};
const char *const SPACE_NAMES[] = {"sram", "dram"};
enum Space { SRAM, DRAM };

[[noreturn]] void fail(const std::string &message) {
    std::fprintf(stderr, "harness: %s\n", message.c_str());
    std::exit(3);
}

struct Run {  // of bytes
    uint64_t address;
    Bytes content;
};

struct Range {
    uint64_t first, end;
};

struct Write {  // bytes that a command writes: rows of `nbytes`; dimensions from the outermost to the innermost
    Space space;
    uint64_t address, nbytes;
    std::vector<std::pair<uint64_t, uint64_t>> dims;  // count, stride
    Bytes content;
};

struct Command {
    uint64_t unit, word, layer, start, end;
    std::vector<Write> writes;
};

struct Case {
    std::vector<uint64_t> straps;
    uint64_t command_address, command_words, memory_bytes, sram_bytes, cycle_limit;
    std::vector<Run> memory, sram;
    std::vector<Range> constants, outputs;
    uint64_t total, stopper, until;  // NONE: unknown; no command stops the machine; compare to the end
    uint64_t causes[UNITS][CAUSES];
    std::vector<Command> commands;
};

class Reader {
  public:
    explicit Reader(const char *path) {
        std::FILE *file = std::fopen(path, "rb");
        if (!file) fail(std::string(path) + " cannot be read");
        std::fseek(file, 0, SEEK_END);
        content_.resize(std::ftell(file));
        std::rewind(file);
        if (std::fread(content_.data(), 1, content_.size(), file) != content_.size()) fail("a case cannot be read");
        std::fclose(file);
    }

    Case read() {
        if (number() != MAGIC) fail("this is no case");
        Case found;
        found.straps = list<uint64_t>([this] { return number(); });
        for (uint64_t *to : {&found.command_address, &found.command_words, &found.memory_bytes, &found.sram_bytes,
                             &found.cycle_limit})
            *to = number();
        found.memory = list<Run>([this] { return run(); });
        found.sram = list<Run>([this] { return run(); });
        found.constants = list<Range>([this] { return range(); });
        found.outputs = list<Range>([this] { return range(); });
        found.total = number();
        found.stopper = number();
        found.until = number();
        for (auto &unit : found.causes)
            for (uint64_t &cycles : unit) cycles = number();
        found.commands = list<Command>([this] { return command(); });
        return found;
    }

  private:
    Bytes content_;
    std::size_t at_ = 0;

    uint64_t number() {
        uint64_t value;
        if (at_ + sizeof value > content_.size()) fail("a case ends too early");
        std::memcpy(&value, &content_[at_], sizeof value);
        at_ += sizeof value;
        return value;
    }

    Bytes bytes() {
        const uint64_t size = number();
        if (size > content_.size() - at_) fail("a case ends too early");
        Bytes found(content_.begin() + at_, content_.begin() + at_ + size);
        at_ += (size + 7) / 8 * 8;
        return found;
    }

    template <class Item, class Read> std::vector<Item> list(Read read) {
        std::vector<Item> found(number());
        for (Item &item : found) item = read();
        return found;
    }

    Run run() {
        const uint64_t address = number();
        return {address, bytes()};
    }

    Range range() {
        const uint64_t first = number();
        return {first, number()};
    }

    Write write() {
        Write found;
        found.space = number() ? DRAM : SRAM;
        found.address = number();
        found.nbytes = number();
        found.dims = list<std::pair<uint64_t, uint64_t>>([this] {
            const uint64_t count = number();
            return std::pair<uint64_t, uint64_t>{count, number()};
        });
        found.content = bytes();
        return found;
    }

    Command command() {
        Command found;
        for (uint64_t *to : {&found.unit, &found.word, &found.layer, &found.start, &found.end}) *to = number();
        found.writes = list<Write>([this] { return write(); });
        return found;
    }
};

// Call `visit(address, offset)` for every row, in order; `offset` is the position of the row in the content.
template <class Visit> void rows(const Write &write, Visit visit) {
    if (write.content.empty()) return;
    std::vector<uint64_t> place(write.dims.size(), 0);
    for (uint64_t offset = 0; offset < write.content.size(); offset += write.nbytes) {
        uint64_t address = write.address;
        for (std::size_t axis = 0; axis < place.size(); ++axis) address += place[axis] * write.dims[axis].second;
        visit(address, offset);
        for (std::size_t axis = place.size(); axis-- > 0 && ++place[axis] == write.dims[axis].first;) place[axis] = 0;
    }
}

std::string hexadecimal(const std::uint8_t *first, std::size_t count) {
    std::string text;
    char digits[3];
    for (std::size_t i = 0; i < count; ++i) {
        std::snprintf(digits, sizeof digits, "%02x", first[i]);
        text += digits;
    }
    return text;
}

std::string format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
std::string format(const char *pattern, ...) {
    char text[512];
    va_list values;
    va_start(values, pattern);
    std::vsnprintf(text, sizeof text, pattern, values);
    va_end(values);
    return text;
}

// Access the words of a port of any type; the lowest bytes come first.
template <class Port> std::uint8_t *port_bytes(Port &port) { return reinterpret_cast<std::uint8_t *>(&port); }

class Simulation {
  public:
    explicit Simulation(Machine &top) : top_(top) { top_.eval(); }  // the model initialises itself

    // Run one case from reset to interrupt, fault or limit; print its line of JSON; write its outputs.
    void run(const Case &given, std::FILE *outputs) {
        case_ = &given;
        differences_.clear();
        count_ = 0;
        prepare();
        const auto begun = std::chrono::steady_clock::now();
        reset();
        const char *how = loop();
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
        conclude(how);
        for (const Range &range : given.outputs)
            std::fwrite(&memory_[range.first], 1, range.end - range.first, outputs);
        report(how, seconds.count());
    }

#ifdef TRACED
    void trace(Waves &waves, uint64_t first, uint64_t end) {
        waves_ = &waves;
        first_ = first;
        end_ = end;
    }
#endif

  private:
    Machine &top_;
    const Case *case_ = nullptr;
    Bytes memory_, expected_[2];
    std::uint8_t *sram_ = nullptr;
    uint64_t cycle_ = 0, completed_ = 0;
    std::vector<uint64_t> members_[UNITS];         // numbers of the commands of each unit
    std::size_t started_[UNITS], done_[UNITS];     // counts of these commands
    uint64_t causes_[UNITS][CAUSES];
    std::vector<uint64_t> finished_;               // commands that completed in the last cycle
    std::vector<std::string> differences_;
    uint64_t count_ = 0;
#ifdef TRACED
    Waves *waves_ = nullptr;
    uint64_t first_ = 0, end_ = 0;
#endif

    bool followed() const { return case_->total != NONE; }

    void differ(const std::string &what) {
        if (++count_ <= SHOWN_DIFFERENCES) differences_.push_back(what);
    }

    void prepare() {
        for (int unit = 0; unit < UNITS; ++unit) {
            members_[unit].clear();
            started_[unit] = done_[unit] = 0;
        }
        for (uint64_t number = 0; number < case_->commands.size(); ++number)
            members_[case_->commands[number].unit].push_back(number);
        std::memset(causes_, 0, sizeof causes_);
        finished_.clear();
        cycle_ = completed_ = 0;
    }

    // Fill the memories as at reset. All transfers of the previous case are complete by then.
    void load() {
        sram_ = SCRATCHPAD(top_);
        if (case_->sram_bytes > SCRATCHPAD_BYTES(top_)) fail("the scratchpad of this build is too small for a case");
        std::memset(sram_, 0, SCRATCHPAD_BYTES(top_));
        memory_.assign(case_->memory_bytes + 4096, 0);  // a beat may read a whole word at the end
        for (const Run &run : case_->memory) std::copy(run.content.begin(), run.content.end(), &memory_[run.address]);
        for (const Run &run : case_->sram) std::copy(run.content.begin(), run.content.end(), &sram_[run.address]);
        if (followed()) {
            expected_[SRAM].assign(sram_, sram_ + case_->sram_bytes);
            expected_[DRAM] = memory_;
        }
    }

    void reset() {
        std::size_t place = 0;
#define SET_STRAP(name) top_.configuration_##name = case_->straps.at(place++);
        STRAPS(SET_STRAP)
        if (place != case_->straps.size()) fail("a case has other straps than this build");
        top_.command_address = case_->command_address;
        top_.command_words = case_->command_words;
        top_.lookup_ld_constant = top_.lookup_st_constant = 0;
        top_.rst = 1;
        tick(RESET_CYCLES);
        load();
        tick(1);
        top_.rst = 0;
        top_.eval();
    }

    void tick(int cycles) {
        for (int edge = 0; edge < 2 * cycles; ++edge) {
            top_.clk = edge & 1;
            top_.eval();
        }
    }

    // Run cycles until the end, and return the reason of the end. Every cycle begins after the rising edge.
    const char *loop() {
        for (;; ++cycle_) {
            if (!finished_.empty()) complete();
            look_up();
            if (top_.memory_valid && !top_.memory_write) read();
            show(0);
            top_.clk = 0;
            top_.eval();
            show(1);
            if (top_.__SYM__interrupt) return "interrupt";  // Verilator reserves the plain name
            if (top_.fault) return "fault";
            if (cycle_ == case_->until) return "until";
            if (cycle_ == case_->cycle_limit) return "limit";
            observe(0, top_.probe_ld_start, top_.probe_ld_done, top_.probe_ld_cause);
            observe(1, top_.probe_ex_start, top_.probe_ex_done, top_.probe_ex_cause);
            observe(2, top_.probe_st_start, top_.probe_st_done, top_.probe_st_cause);
            if (top_.memory_valid && top_.memory_write) write();
            top_.clk = 1;
            top_.eval();
        }
    }

    bool constant(uint64_t address) const {
        for (const Range &range : case_->constants)
            if (range.first <= address && address < range.end) return true;
        return false;
    }

    void look_up() {
        const bool ld = constant(top_.lookup_ld_address), st = constant(top_.lookup_st_address);
        if (ld == top_.lookup_ld_constant && st == top_.lookup_st_constant) return;
        top_.lookup_ld_constant = ld;
        top_.lookup_st_constant = st;
        top_.eval();
    }

    std::uint8_t *beat(const char *what) {
        const uint64_t address = top_.memory_address, count = top_.memory_count;
        if (count <= sizeof top_.memory_read_data && address + count <= case_->memory_bytes) return &memory_[address];
        differ(format("{\"kind\":\"outside\",\"cycle\":%" PRIu64 ",\"access\":\"%s\",\"address\":%" PRIu64
                      ",\"count\":%" PRIu64 "}",
                      cycle_, what, address, count));
        return nullptr;
    }

    void read() {
        if (const std::uint8_t *from = beat("read"))
            std::memcpy(port_bytes(top_.memory_read_data), from, top_.memory_count);
    }

    void write() {
        if (std::uint8_t *to = beat("write")) std::memcpy(to, port_bytes(top_.memory_write_data), top_.memory_count);
    }

    void observe(int unit, bool start, bool done, unsigned cause) {
        if (cause < DRAINED) ++causes_[unit][cause];
        if (start) moment(unit, "start", started_[unit], cycle_);
        if (done) {
            moment(unit, "end", done_[unit], cycle_ + 1);
            causes_[unit][IDLE] += std::exchange(causes_[unit][DRAINED], 0);
        }
        if (cause == IDLE) {  // drained, unless another command follows
            --causes_[unit][IDLE];
            ++causes_[unit][DRAINED];
        }
    }

    // Record that the next command of a unit starts or ends at `at`.
    void moment(int unit, const char *what, std::size_t &place, uint64_t at) {
        const bool end = *what == 'e';
        completed_ += end;
        if (!followed()) return;
        if (place == members_[unit].size()) {
            differ(format("{\"kind\":\"%s\",\"unit\":\"%s\",\"actual\":%" PRIu64 "}", what, UNIT_NAMES[unit], at));
            return;
        }
        const uint64_t number = members_[unit][place++];
        const Command &command = case_->commands[number];
        const uint64_t expected = end ? command.end : command.start;
        if (at != expected)
            differ(format("{\"kind\":\"%s\",\"command\":%" PRIu64 ",\"expected\":%" PRIu64 ",\"actual\":%" PRIu64 "}",
                          what, number, expected, at));
        if (end) finished_.push_back(number);
    }

    // Compare the results of commands that ended in the last cycle, as soon as they must be complete.
    void complete() {
        for (const uint64_t number : finished_)
            for (const Write &write : case_->commands[number].writes) compare(number, write);
        finished_.clear();
    }

    void compare(uint64_t number, const Write &write) {
        const std::uint8_t *actual = write.space == SRAM ? sram_ : memory_.data();
        uint64_t wrong = 0, first = 0, first_offset = 0;
        rows(write, [&](uint64_t address, uint64_t offset) {
            std::memcpy(&expected_[write.space][address], &write.content[offset], write.nbytes);
            if (!std::memcmp(actual + address, &write.content[offset], write.nbytes)) return;
            for (uint64_t i = 0; i < write.nbytes; ++i)
                if (actual[address + i] != write.content[offset + i] && !wrong++)
                    first = address + i, first_offset = offset + i;
        });
        if (!wrong) return;
        const uint64_t row_left = write.nbytes - first_offset % write.nbytes;
        const std::size_t shown = std::min<uint64_t>(SHOWN_BYTES, row_left);
        differ(format("{\"kind\":\"bytes\",\"command\":%" PRIu64 ",\"space\":\"%s\",\"address\":%" PRIu64
                      ",\"offset\":%" PRIu64 ",\"differing\":%" PRIu64 ",\"of\":%zu,\"expected\":\"%s\",\"actual\":\"%s\"}",
                      number, SPACE_NAMES[write.space], first, first_offset, wrong, write.content.size(),
                      hexadecimal(&write.content[first_offset], shown).c_str(), hexadecimal(actual + first, shown).c_str()));
    }

    // Compare what is known only at the end: length, causes, commands that never ran, unexpected writes.
    void conclude(const char *how) {
        const bool stopped = *how == 'f', partial = stopped || *how == 'u' || case_->stopper != NONE;
        if (*how == 'l') differ(format("{\"kind\":\"never\",\"cycles\":%" PRIu64 "}", cycle_));
        if (stopped != (case_->stopper != NONE)) differ(format("{\"kind\":\"fault\",\"cycle\":%" PRIu64 ",\"expected\":%s}",
                                                               cycle_, stopped ? "false" : "true"));
        if (!followed()) return;
        if (!partial) {
            if (cycle_ != case_->total)
                differ(format("{\"kind\":\"total\",\"expected\":%" PRIu64 ",\"actual\":%" PRIu64 "}", case_->total, cycle_));
            for (int unit = 0; unit < UNITS; ++unit)
                for (int cause = 0; cause < CAUSES; ++cause)
                    if (causes_[unit][cause] != case_->causes[unit][cause])
                        differ(format("{\"kind\":\"cause\",\"unit\":\"%s\",\"cause\":%d,\"expected\":%" PRIu64
                                      ",\"actual\":%" PRIu64 "}",
                                      UNIT_NAMES[unit], cause, case_->causes[unit][cause], causes_[unit][cause]));
        }
        missing(partial);
        if (!partial) {
            stray(SRAM, sram_);
            stray(DRAM, memory_.data());
        }
    }

    void missing(bool partial) {
        const uint64_t until = !partial ? NONE : case_->stopper != NONE ? case_->commands[case_->stopper].start : cycle_;
        for (int unit = 0; unit < UNITS; ++unit)
            for (std::size_t place = done_[unit]; place < members_[unit].size(); ++place)
                if (case_->commands[members_[unit][place]].end <= until)
                    differ(format("{\"kind\":\"missing\",\"command\":%" PRIu64 "}", members_[unit][place]));
        if (case_->stopper == NONE) return;
        const Command &command = case_->commands[case_->stopper];
        if (cycle_ < command.start || cycle_ > command.end)
            differ(format("{\"kind\":\"stop\",\"command\":%" PRIu64 ",\"cycle\":%" PRIu64 "}", case_->stopper, cycle_));
    }

    void stray(Space space, const std::uint8_t *actual) {
        const Bytes &expected = expected_[space];
        const std::size_t size = space == SRAM ? case_->sram_bytes : case_->memory_bytes;
        const auto found = std::mismatch(expected.begin(), expected.begin() + size, actual);
        const std::size_t at = found.first - expected.begin();
        if (at != size)
            differ(format("{\"kind\":\"stray\",\"space\":\"%s\",\"address\":%zu,\"expected\":\"%02x\",\"actual\":\"%02x\"}",
                          SPACE_NAMES[space], at, expected[at], actual[at]));
    }

    void report(const char *how, double seconds) const {
        std::printf("{\"ended\":\"%s\",\"cycles\":%" PRIu64 ",\"seconds\":%.6f,\"commands\":%" PRIu64
                    ",\"count\":%" PRIu64 ",\"causes\":[",
                    how, cycle_, seconds, completed_, count_);
        for (int unit = 0; unit < UNITS; ++unit) {
            std::printf("%s[", unit ? "," : "");
            for (int cause = 0; cause < CAUSES; ++cause)
                std::printf("%s%" PRIu64, cause ? "," : "", causes_[unit][cause]);
            std::printf("]");
        }
        std::printf("],\"differences\":[");
        for (std::size_t i = 0; i < differences_.size(); ++i)
            std::printf("%s%s", i ? "," : "", differences_[i].c_str());
        std::printf("]}\n");
        std::fflush(stdout);
    }

    // In traced builds: write the signals of half a cycle, and the numbers of the commands that the units execute.
    void show([[maybe_unused]] int half) {
#ifdef TRACED
        if (cycle_ < first_ || cycle_ >= end_) return;
        if (!half) {
            name(0, top_.probe_ld_start, top_.ld_word, top_.ld_layer);
            name(1, top_.probe_ex_start, top_.ex_word, top_.ex_layer);
            name(2, top_.probe_st_start, top_.st_word, top_.st_layer);
            top_.cycle = cycle_;
            top_.eval();
        }
        waves_->dump(1000 * cycle_ + 500 * half);
#endif
    }

#ifdef TRACED
    template <class Port> void name(int unit, bool start, Port &word, Port &layer) {
        const bool executing = start || started_[unit] > done_[unit];
        const std::size_t place = executing && !start ? started_[unit] - 1 : started_[unit];
        const bool known = executing && place < members_[unit].size();
        const Command *command = known ? &case_->commands[members_[unit][place]] : nullptr;
        word = command ? command->word : ~0u;
        layer = command ? command->layer : ~0u;
    }
#endif
};

}  // namespace

int main(int count, char **words) {
    if (count < 3) fail("usage: harness OUTPUTS CASE...");
    VerilatedContext context;
    context.commandArgs(count, words);
    while (words[count - 1][0] == '+') --count;
#ifdef TRACED
    context.traceEverOn(true);
#endif
    const auto top = std::make_unique<Machine>(&context);
    std::FILE *outputs = std::fopen(words[1], "wb");
    if (!outputs) fail(std::string(words[1]) + " cannot be written");
    Simulation simulation(*top);
    int last = count;
#ifdef TRACED
    Waves waves;
    last = 3;
    if (count != 6) fail("usage: harness OUTPUTS CASE WAVES FIRST END");
    top->trace(&waves, 99);
    waves.open(words[3]);
    simulation.trace(waves, std::strtoull(words[4], nullptr, 10), std::strtoull(words[5], nullptr, 10));
#endif
    for (int number = 2; number < last; ++number) simulation.run(Reader(words[number]).read(), outputs);
#ifdef TRACED
    waves.close();
#endif
    top->final();
    return std::fclose(outputs) == 0 ? 0 : 3;
}

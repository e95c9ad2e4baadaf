/* socket_check SOCKET IMAGE RESULT poll|interrupt: run the program in IMAGE twice; write counters and activations.

   IMAGE has twelve 32-bit numbers (hash, word_count, command_start, constant_bytes, constant_start, activation_bytes,
   activation_start, two unused) and then words, constants and activations. */
#include "dla_socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *load(FILE *file, size_t size) {
    void *data = calloc(size + 1, 1);
    if (!data || fread(data, 1, size, file) != size) exit(3);
    return data;
}

int main(int count, char **words) {
    static struct dla_socket link;
    struct dla_port port;
    struct dla_program program;
    struct dla_counters counters;
    enum dla_status status;
    uint32_t *head;
    void *program_words, *constants, *activations, *inputs;
    FILE *file = count == 5 ? fopen(words[2], "rb") : NULL;
    if (!file) return 3;
    head = load(file, 48);
    memset(&program, 0, sizeof program);
    memset(&counters, 0, sizeof counters);
    memcpy(program.hash, head, sizeof program.hash);
    program.word_count = head[4];
    program.command_start = head[5];
    program.constant_bytes = head[6];
    program.constant_start = head[7];
    program.activation_bytes = head[8];
    program.activation_start = head[9];
    program.words = program_words = load(file, 8u * program.word_count);
    program.constants = constants = load(file, program.constant_bytes);
    activations = load(file, program.activation_bytes);
    inputs = calloc(program.activation_bytes + 1u, 1);
    if (!inputs) return 3;
    memcpy(inputs, activations, program.activation_bytes);
    fclose(file);
    if (dla_socket_open(&link, words[1], !strcmp(words[4], "interrupt"), &port)) {
        perror(words[1]);
        exit(2); /* with buffers that are still reachable */
    }
    status = dla_run(&port, &program, activations, NULL, &counters);
    if (status == DLA_OK) {
        memcpy(activations, inputs, program.activation_bytes);
        status = dla_run(&port, &program, activations, NULL, &counters);
    }
    printf("%s, word %u\n", dla_status_text(status), (unsigned)counters.fault_word);
    file = fopen(words[3], "wb");
    if (!file) return 3;
    fwrite(&counters.cycles, 8, 1, file);
    fwrite(counters.units, sizeof counters.units, 1, file);
    fwrite(activations, 1, program.activation_bytes, file);
    fclose(file);
    dla_socket_close(&link);
    free(head);
    free(program_words);
    free(constants);
    free(activations);
    free(inputs);
    return status != DLA_OK;
}

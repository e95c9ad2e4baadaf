#define _POSIX_C_SOURCE 200809L

#include "dla_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { READ32 = 1, WRITE32, READ, WRITE, WAIT }; /* kinds of requests */

static int send_all(int file, const uint8_t *data, size_t size) {
    while (size) {
        const ssize_t done = send(file, data, size, MSG_NOSIGNAL);
        if (done <= 0) return -1;
        data += done;
        size -= (size_t)done;
    }
    return 0;
}

static int receive_all(int file, uint8_t *data, size_t size) {
    while (size) {
        const ssize_t done = read(file, data, size);
        if (done <= 0) return -1;
        data += done;
        size -= (size_t)done;
    }
    return 0;
}

static void store32(uint8_t *to, uint32_t value) {
    int i;
    for (i = 0; i < 4; ++i) to[i] = (uint8_t)(value >> (8 * i));
}

/* Send a request and return its reply; after an error 0, which is no valid ID or STATUS. */
static uint32_t ask(struct dla_socket *self, uint8_t kind, uint32_t address, uint32_t value, const void *data) {
    uint8_t head[9], reply[4];
    head[0] = kind;
    store32(head + 1, address);
    store32(head + 5, value);
    if (self->failed || send_all(self->file, head, sizeof head) ||
        (data && send_all(self->file, data, value)) || receive_all(self->file, reply, sizeof reply)) {
        self->failed = 1;
        return 0;
    }
    return (uint32_t)reply[0] | (uint32_t)reply[1] << 8 | (uint32_t)reply[2] << 16 | (uint32_t)reply[3] << 24;
}

static uint32_t read_register(void *context, uint32_t offset) { return ask(context, READ32, offset, 0, NULL); }

static void write_register(void *context, uint32_t offset, uint32_t value) {
    (void)ask(context, WRITE32, offset, value, NULL);
}

static uint32_t find(const struct dla_socket *self, const void *data) {
    uint32_t number = 0;
    while (number < self->count && self->buffers[number] != data) ++number;
    return number;
}

/* Copy a buffer to the device's memory; a new or longer buffer gets an address at a multiple of 64. */
static void clean(void *context, const void *data, size_t size) {
    struct dla_socket *self = context;
    const uint32_t number = find(self, data);
    if (number == DLA_SOCKET_BUFFERS || size > UINT32_MAX - 64u - self->end) {
        self->failed = 1;
        return;
    }
    if (number == self->count || self->sizes[number] < size) {
        self->buffers[number] = data;
        self->sizes[number] = size;
        self->addresses[number] = self->end;
        self->end += ((uint32_t)size + 63u) / 64u * 64u;
        self->count += number == self->count;
    }
    if (ask(self, WRITE, self->addresses[number], (uint32_t)size, data)) self->failed = 1;
}

static void invalidate(void *context, const void *data, size_t size) {
    struct dla_socket *self = context;
    const uint32_t number = find(self, data);
    if (number == self->count || ask(self, READ, self->addresses[number], (uint32_t)size, NULL) ||
        self->failed || receive_all(self->file, (uint8_t *)(uintptr_t)data, size))
        self->failed = 1;
}

static uint32_t bus_address(void *context, const void *data) {
    struct dla_socket *self = context;
    const uint32_t number = find(self, data);
    return number < self->count ? self->addresses[number] : 0;
}

static int wait_for_end(void *context) {
    struct dla_socket *self = context;
    (void)ask(self, WAIT, 0, 0, NULL);
    return self->failed;
}

int dla_socket_open(struct dla_socket *self, const char *path, int interrupts, struct dla_port *port) {
    struct sockaddr_un address;
    memset(self, 0, sizeof *self);
    memset(port, 0, sizeof *port);
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, path);
    self->file = socket(AF_UNIX, SOCK_STREAM, 0);
    if (self->file < 0) return -1;
    if (connect(self->file, (const struct sockaddr *)&address, sizeof address)) {
        close(self->file);
        return -1;
    }
    port->read = read_register;
    port->write = write_register;
    port->context = self;
    port->clean = clean;
    port->invalidate = invalidate;
    port->wait = interrupts ? wait_for_end : NULL;
    port->bus_address = bus_address;
    return 0;
}

void dla_socket_close(struct dla_socket *self) { close(self->file); }

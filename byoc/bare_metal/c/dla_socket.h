/* Port of the driver to a device in another process (POSIX; docs/device.md, "The device as a process"). */
#ifndef DLA_SOCKET_H
#define DLA_SOCKET_H

#include "dla_driver.h"

#define DLA_SOCKET_BUFFERS 1024

/* Connection, and the copies of buffers in the device's memory: buffer n is at bus address `addresses[n]`. */
struct dla_socket {
    int file;
    int failed;     /* 1 after an error of the connection, or if the device's memory is too small */
    uint32_t count, end;
    const void *buffers[DLA_SOCKET_BUFFERS];
    uint32_t addresses[DLA_SOCKET_BUFFERS];
    size_t sizes[DLA_SOCKET_BUFFERS];
};

/* Connect to the socket at `path` and fill in the port; return 0, or -1 with errno. `self` must stay in place. */
int dla_socket_open(struct dla_socket *self, const char *path, int interrupts, struct dla_port *port);
void dla_socket_close(struct dla_socket *self);

#endif

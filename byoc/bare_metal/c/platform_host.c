/* Platform of a computer with POSIX: the device is a process behind a socket (docs/device.md).
 *
 * The environment variable DLA_SOCKET has the path of the socket; the default is device.sock.
 */
#include <stdio.h>
#include <stdlib.h>

#include "dla_socket.h"
#include "platform.h"

const struct dla_port *platform_port(void) {
    static struct dla_socket connection;
    static struct dla_port port;
    const char *path = getenv("DLA_SOCKET");
    return dla_socket_open(&connection, path == NULL ? "device.sock" : path, 1, &port) == 0 ? &port
                                                                                            : NULL;
}

void platform_print(const char *text) {
    fputs(text, stdout);
}

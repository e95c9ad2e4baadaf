/* What main.c needs of the platform. platform_host.c and platform_bare.c are two examples. */
#ifndef DLA_PLATFORM_H
#define DLA_PLATFORM_H

#include "dla_driver.h"

/* Return the port of the device, or NULL if there is no device. */
const struct dla_port *platform_port(void);
/* Print a text; a platform without output may do nothing. */
void platform_print(const char *text);

#endif

#ifndef RCCLX_TOPO_SYSFS_H
#define RCCLX_TOPO_SYSFS_H

#include <stdbool.h>
#include <stddef.h>

/* Small files of the kernel. Paths are written like printf's. */

/* The first line, trimmed at its end; false: there is none. */
bool rcclx_sysfs_text(char *text, size_t n, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Decimal or with 0x. */
long long rcclx_sysfs_number(long long otherwise, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "name value" lines: the value of `name` in the file. */
long long rcclx_sysfs_property(const char *path, const char *name, long long otherwise);

/* Names in a folder, sorted as people count ("eth2" before "eth10"); at most `most`, each up to 63 characters. */
int rcclx_sysfs_list(char (*names)[64], int most, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif

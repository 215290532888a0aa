/* Reading what the kernel tells in files: a line, a number, a folder. */
#include "topo/sysfs.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool first_line(char *text, size_t n, const char *path)
{
    FILE *in = fopen(path, "re");
    const bool read = in && fgets(text, (int)n, in);

    if (in)
        fclose(in);
    for (size_t k = read ? strlen(text) : 0; k > 0 && isspace((unsigned char)text[k - 1]); k--)
        text[k - 1] = 0;
    return read;
}

#define PATH_FROM(path, format)                                               \
    char path[1024];                                                          \
    va_list args;                                                             \
    va_start(args, format);                                                   \
    vsnprintf(path, sizeof(path), format, args);                              \
    va_end(args)

bool rcclx_sysfs_text(char *text, size_t n, const char *format, ...)
{
    PATH_FROM(path, format);
    text[0] = 0;
    return first_line(text, n, path);
}

long long rcclx_sysfs_number(long long otherwise, const char *format, ...)
{
    char text[64], *end;

    PATH_FROM(path, format);
    if (!first_line(text, sizeof(text), path))
        return otherwise;
    const long long value = strtoll(text, &end, 0);
    return end == text ? otherwise : value;
}

long long rcclx_sysfs_property(const char *path, const char *name, long long otherwise)
{
    char line[256], key[128];
    long long value, found = otherwise;
    FILE *in = fopen(path, "re");

    while (in && fgets(line, sizeof(line), in))
        if (sscanf(line, "%127s %lld", key, &value) == 2 && !strcmp(key, name))
            found = value;
    if (in)
        fclose(in);
    return found;
}

static int by_number(const void *a, const void *b)
{
    return strverscmp(a, b);
}

int rcclx_sysfs_list(char (*names)[64], int most, const char *format, ...)
{
    int n = 0;

    PATH_FROM(path, format);
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && n < most && (e = readdir(folder));)
        if (e->d_name[0] != '.' && strlen(e->d_name) < sizeof(*names))
            memcpy(names[n++], e->d_name, strlen(e->d_name) + 1);
    if (folder)
        closedir(folder);
    qsort(names, (size_t)n, sizeof(*names), by_number);
    return n;
}

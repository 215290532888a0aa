#ifndef RCCLX_BASE_LIBRARY_H
#define RCCLX_BASE_LIBRARY_H

#include <stddef.h>

/* Shared libraries that users plug in, found and spoken to by NCCL's rules.
 *
 *   name            tried in this order
 *   ""              PREFIX.so
 *   a/b.so  libx.so itself
 *   aws             "aws" itself, then PREFIX-aws.so
 *   STATIC_PLUGIN   the program itself
 *
 * NULL: none of them, and `why` has the loader's words. A library stays loaded. */
void *rcclx_library_open(const char *prefix, const char *name, char *why, size_t nwhy);

/* The log as plug-ins are handed it: level and subsystem are NCCL's numbers, which are ours. */
void rcclx_library_log(int level, unsigned long subsys, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* What a plug-in has last warned of in this thread, if that was within a second; "" else. Told once. */
void rcclx_library_words(char *text, size_t n);

/* The text of a ncclResult_t that a plug-in has returned. */
const char *rcclx_library_result(int result);

#endif

#ifndef RCCLX_TOOL_TAG_H
#define RCCLX_TOOL_TAG_H

#include <stddef.h>

/* One stream of one rank, passed on line by line behind "[rank] ". Long lines
 * are passed on in parts. */
typedef struct {
    int    fd;   /* read end of the rank's pipe; -1: closed */
    int    to;   /* 1 or 2 */
    int    rank;
    size_t used;
    char   line[4096];
} tool_tag;

/* Pass on what can be read without waiting. Closes at the end of the stream. */
void tool_tag_pump(tool_tag *t);

/* Pass on what is left, an unfinished line included, and close. */
void tool_tag_close(tool_tag *t);

#endif

#ifndef RCCLX_TOOL_TAG_H
#define RCCLX_TOOL_TAG_H

#include <stdbool.h>
#include <stddef.h>

/* One stream of one rank, passed on line by line behind a prefix. Long lines
 * are passed on in parts. */
typedef struct {
    int    fd; /* read end of the rank's pipe; -1: closed */
    int    to; /* 1 or 2 */
    int    rank;
    bool   raw; /* parts of long lines do not become lines */
    char   prefix[16];
    bool (*take)(void *arg, int rank, const char *line); /* true: it is not passed on; NULL: all are */
    void  *arg;
    size_t used;
    char   line[4096 + 64]; /* a part that was passed on with a prefix fits */
} tool_tag;

/* Pass on what can be read without waiting. Closes at the end of the stream. */
void tool_tag_pump(tool_tag *t);

/* Pass on what is left, an unfinished line included, and close. */
void tool_tag_close(tool_tag *t);

#endif

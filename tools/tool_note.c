/* A note is built in one piece, so that it can be written to a pipe at once. */
#include "tool_note.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool grow(tool_note *n, size_t more)
{
    char *bytes = n->failed || n->size + more > TOOL_NOTE_MAX ? NULL : realloc(n->bytes, n->size + more);

    if (bytes)
        n->bytes = bytes;
    n->failed = !bytes;
    return bytes;
}

void tool_note_add(tool_note *n, char letter, const char *format, ...)
{
    const size_t head = n->size ? 0 : TOOL_NOTE_HEADER;
    va_list      args, again;

    va_start(args, format);
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, args);
    if (length >= 0 && grow(n, head + (size_t)length + 2)) {
        n->size += head;
        n->bytes[n->size++] = letter;
        vsnprintf(n->bytes + n->size, (size_t)length + 1, format, again);
        n->size += (size_t)length + 1;
    }
    va_end(again);
    va_end(args);
}

bool tool_note_close(tool_note *n)
{
    char header[32];

    if (n->failed || n->size < TOOL_NOTE_HEADER)
        return false;
    snprintf(header, sizeof(header), "rcclx job %08u\n", (unsigned)(n->size - TOOL_NOTE_HEADER));
    memcpy(n->bytes, header, TOOL_NOTE_HEADER);
    return true;
}

void tool_note_fini(tool_note *n)
{
    free(n->bytes);
    *n = (tool_note){0};
}

long tool_note_header(const char header[TOOL_NOTE_HEADER])
{
    long x = 0;

    if (memcmp(header, "rcclx job ", 10) || header[TOOL_NOTE_HEADER - 1] != '\n')
        return -1;
    for (int i = 10; i < TOOL_NOTE_HEADER - 1; i++) {
        if (header[i] < '0' || header[i] > '9')
            return -1;
        x = 10 * x + (header[i] - '0');
    }
    return x <= TOOL_NOTE_MAX ? x : -1;
}

const char *tool_note_next(const char *body, size_t size, const char *at)
{
    if (!size || body[size - 1])
        return NULL;
    const char *next = at ? at + strlen(at) + 1 : body;
    return next < body + size ? next : NULL;
}

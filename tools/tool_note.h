#ifndef RCCLX_TOOL_NOTE_H
#define RCCLX_TOOL_NOTE_H

#include <stdbool.h>
#include <stddef.h>

/* What `rcclx run` tells its other self on another machine: a header, then
 * strings, each a letter and its text, each ending with a zero byte.
 *
 *     "rcclx job 00000123\n"  "vVERSION\0" "hHOST\0" "n4 4 8\0" ... "eNAME=VALUE\0" ... "aPROGRAM\0" "a-x\0"
 *
 * Afterwards lines go both ways: "go PORT" to the far side; from it, in its
 * standard error behind TOOL_NOTE_MARK, "up PORT", "dead RANK PID e|s CODE", "end CODE". */
#define TOOL_NOTE_MARK "\036rcclx "

enum { TOOL_NOTE_HEADER = 19, TOOL_NOTE_MAX = 1 << 20 };

typedef struct {
    char  *bytes;
    size_t size;
    bool   failed; /* out of memory, or more than TOOL_NOTE_MAX */
} tool_note;

/* Appends "letter text"; what goes wrong shows in failed. The header comes first by itself. */
void tool_note_add(tool_note *n, char letter, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The header gets its number. False if the note has failed. */
bool tool_note_close(tool_note *n);
void tool_note_fini(tool_note *n);

/* The number of bytes that follow a header; -1: it is none. */
long tool_note_header(const char header[TOOL_NOTE_HEADER]);

/* The next string behind `at` (NULL: the first) of a body; NULL at the end. A
 * body whose last byte is not zero has none. */
const char *tool_note_next(const char *body, size_t size, const char *at);

#endif

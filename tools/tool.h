#ifndef RCCLX_TOOL_H
#define RCCLX_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* What the subcommands of `rcclx` share: exit codes, command lines, text. */

/* Exit codes. A job whose rank died ends with the rank's own code, or with 128
 * plus the number of the signal that killed it. */
enum {
    TOOL_OK      = 0,
    TOOL_WRONG   = 1,   /* it ran, and a result was wrong or too slow (NCCL_TESTS_MIN_BW) */
    TOOL_USAGE   = 2,   /* the command line makes no sense */
    TOOL_FAILED  = 3,   /* a library or the system refused */
    TOOL_TIMEOUT = 124, /* --timeout passed */
};

/* One subcommand each: argv[0] is its name; the result is the exit code. */
int tool_run(int argc, char **argv);
int tool_info(int argc, char **argv);
int tool_plan(int argc, char **argv);
int tool_perf(int argc, char **argv, const char *collective); /* collective: started as <collective>_perf; or NULL */

/* One line to standard error, "rcclx <who>: text", written at once. Returns
 * TOOL_USAGE or TOOL_FAILED, so that the caller can say return tool_usage(...). */
int tool_usage(const char *who, const char *format, ...) __attribute__((format(printf, 2, 3)));
int tool_fail(const char *who, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- options -------------------------------------------------------------
 *
 * A row an option: `-x`, `--name`, with an argument word for the help (NULL: a
 * switch). `value` goes to `set` with the row's own number; what `set` answers
 * other than TOOL_OK ends the parsing. A default for a missing argument makes
 * it optional: it is taken if the next word does not begin with '-'. */
typedef struct {
    int         id;
    char        letter; /* 0: none */
    const char *name;
    const char *arg;
    const char *about;
} tool_option;

/* Next option or word of a command line. */
typedef struct {
    const char        *who;
    const tool_option *options; /* ends with name NULL */
    int                argc;
    char             **argv;
    int                at;    /* start with 1 */
    const char        *value; /* out: the argument, or the word itself */
    const char        *asked; /* out: the option as it was written */
    int                rest;  /* the character of "-abc" to go on with */
} tool_args;

enum { TOOL_ARGS_END = -1, TOOL_ARGS_WORD = -2, TOOL_ARGS_BAD = -3 };

/* The id of the next option, or one of the above; BAD has been reported. "--"
 * ends the options: what follows are words. */
int tool_args_next(tool_args *a);

/* The word after the present option if it does not look like an option, which
 * is then consumed; else NULL. For options whose argument may be left out. */
const char *tool_args_maybe(tool_args *a);

/* A table of options for --help. */
void tool_options_print(FILE *out, const tool_option *options);

/* Numbers, with the bounds in the error text. Sizes take K, M, G, T (powers of
 * 1024), also as KiB or KB. 0, or TOOL_USAGE after a message. */
int tool_int(const tool_args *a, long min, long max, int *result);
int tool_size(const tool_args *a, size_t *result);
int tool_real(const tool_args *a, double min, double *result);

/* The text of a size ("64K", "1.5M" -> bytes): 0 or -1. */
int tool_size_parse(const char *text, size_t *result);

/* The nearest of the words by edit distance, or NULL if none is near. */
const char *tool_nearest(const char *word, const char *const *words, size_t nwords);

/* Index of `word` in a list "a|b|c", any case; -1: none. */
int tool_word_index(const char *list, const char *word);

#endif

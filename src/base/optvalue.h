#ifndef RCCLX_BASE_OPTVALUE_H
#define RCCLX_BASE_OPTVALUE_H

#include "base/option.h"

#include <stddef.h>
#include <stdint.h>

/* Behind option.h: what a row of options.h is at run time, and how its text
 * becomes a value and a value becomes text. Nothing here keeps state. */
typedef enum {
    RCCLX_OPTTYPE_INT,
    RCCLX_OPTTYPE_BOOL,
    RCCLX_OPTTYPE_SIZE,
    RCCLX_OPTTYPE_REAL,
    RCCLX_OPTTYPE_SECONDS,
    RCCLX_OPTTYPE_STR,
    RCCLX_OPTTYPE_ENUM,
    RCCLX_OPTTYPE_LIST
} rcclx_opttype;

enum { RCCLX_OPTFLAG_0 = 0, RCCLX_OPTFLAG_AGREE = 1 };

typedef struct {
    const char   *name, *preset, *help;
    rcclx_opttype type;
    unsigned      flags;
    const char   *words; /* ENUM: "a|b|c" */
    int64_t       imin, imax;
    double        rmin, rmax;
} rcclx_optrow;

typedef struct {
    int64_t     i;    /* INT, BOOL, SIZE, ENUM */
    double      r;    /* REAL, SECONDS */
    const char *text; /* STR, LIST; borrowed from the text that was parsed */
} rcclx_optvalue;

/* TAKEN as asked, MOVED to the nearest bound, or REFUSED (value untouched). */
typedef enum { RCCLX_OPT_TAKEN, RCCLX_OPT_MOVED, RCCLX_OPT_REFUSED } rcclx_optverdict;

rcclx_optverdict rcclx_optvalue_parse(const rcclx_optrow *row, const char *text, rcclx_optvalue *value);

/* Both return what snprintf would. Equal values give equal text, however they
 * were written. */
int rcclx_optvalue_print(const rcclx_optrow *row, const rcclx_optvalue *value, char *buf, size_t nbytes);
int rcclx_optvalue_allowed(const rcclx_optrow *row, char *buf, size_t nbytes);

/* ENUM: the word that `text` may have meant; "" when none is near. */
void rcclx_optvalue_nearest(const rcclx_optrow *row, const char *text, char *buf, size_t nbytes);

const char *rcclx_opttype_name(rcclx_opttype type);

/* Edits (insert, delete, replace, swap neighbours; case ignored) that turn a
 * into b. Names of up to 63 characters; longer ones count as far away. */
int rcclx_optname_distance(const char *a, const char *b);

/* What option.c has read, for the printers. */
const rcclx_optrow   *rcclx_option_row(rcclx_option o);
const rcclx_optvalue *rcclx_option_value(rcclx_option o);
const char           *rcclx_option_source(rcclx_option o); /* "default", "environment", or a path */

#endif

#ifndef RCCLX_BASE_OPTION_H
#define RCCLX_BASE_OPTION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Settings. One row an option in options.h (name, type, bounds, default, help)
 * gives parsing, the environment (every NCCL_X also as RCCL_X and RCCLX_X),
 * the configuration files (NCCL_CONF_FILE, ~/.nccl.conf, /etc/nccl.conf; the
 * environment wins), `rcclx info --options` and the page docs/environment.md.
 *
 * Values are read once. A name with our prefixes that no row knows gives one
 * warning with the nearest known name; a bad value gives a warning that shows
 * asked, used and allowed, and the default (or the nearest bound) is used. */
#include "base/options.h"

typedef enum {
#define X(id, ...) RCCLX_OPT_##id,
    RCCLX_OPTION_LIST(X)
#undef X
    RCCLX_OPT_COUNT
} rcclx_option;

int64_t     rcclx_option_int(rcclx_option o);    /* INT, BOOL, ENUM (index of the word), SIZE (bytes) */
double      rcclx_option_real(rcclx_option o);   /* REAL, SECONDS */
const char *rcclx_option_str(rcclx_option o);    /* as it stands; "" when unset and no default */
bool        rcclx_option_is_set(rcclx_option o); /* by environment or file */

/* Everything in force: text lines "NAME=value  (source)  help", or JSON. */
void rcclx_option_dump(FILE *out, bool json);
void rcclx_option_markdown(FILE *out); /* docs/environment.md, whole */

/* 64-bit hash over the options marked AGREE: ranks compare it at init. The
 * text form ("NAME=value\n" lines) is what rank 0 hands to the others. */
uint64_t rcclx_option_agree_hash(void);
int      rcclx_option_agree_text(char *buf, size_t nbytes);

/* Read everything again (tests; after a setenv). */
void rcclx_option_reload(void);

#endif

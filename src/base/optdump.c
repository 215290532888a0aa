/* The printers over the rows: what is in force as text and JSON, what ranks
 * compare, and the page for users. */
#include "base/optvalue.h"

#include "base/conf.h"
#include "base/json.h"

#include <string.h>

enum { VALUE_BYTES = RCCLX_CONF_LINE };

static void print_value(rcclx_option o, char *buf)
{
    rcclx_optvalue_print(rcclx_option_row(o), rcclx_option_value(o), buf, VALUE_BYTES);
}

static void dump_text(FILE *out)
{
    char value[VALUE_BYTES];

    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++) {
        print_value(o, value);
        fprintf(out, "%s=%s  (%s)  %s\n", rcclx_option_row(o)->name, value, rcclx_option_source(o),
                rcclx_option_row(o)->help);
    }
}

static void dump_value(rcclx_json *j, rcclx_option o)
{
    char value[VALUE_BYTES];

    switch (rcclx_option_row(o)->type) {
    case RCCLX_OPTTYPE_BOOL:
        rcclx_json_bool(j, "value", rcclx_option_int(o));
        break;
    case RCCLX_OPTTYPE_INT:
    case RCCLX_OPTTYPE_SIZE:
        rcclx_json_int(j, "value", rcclx_option_int(o));
        break;
    case RCCLX_OPTTYPE_REAL:
    case RCCLX_OPTTYPE_SECONDS:
        rcclx_json_real(j, "value", rcclx_option_real(o));
        break;
    case RCCLX_OPTTYPE_STR:
    case RCCLX_OPTTYPE_ENUM:
    case RCCLX_OPTTYPE_LIST:
        print_value(o, value);
        rcclx_json_string(j, "value", value);
        break;
    }
}

static void dump_json(FILE *out)
{
    rcclx_json j;

    rcclx_json_init(&j, out);
    rcclx_json_object_open(&j, NULL);
    rcclx_json_array_open(&j, "options");
    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++) {
        const rcclx_optrow *row = rcclx_option_row(o);
        rcclx_json_object_open(&j, NULL);
        rcclx_json_string(&j, "name", row->name);
        dump_value(&j, o);
        rcclx_json_string(&j, "source", rcclx_option_source(o));
        rcclx_json_string(&j, "type", rcclx_opttype_name(row->type));
        rcclx_json_string(&j, "default", row->preset);
        rcclx_json_bool(&j, "agree", row->flags & RCCLX_OPTFLAG_AGREE);
        rcclx_json_string(&j, "help", row->help);
        rcclx_json_object_close(&j);
    }
    rcclx_json_array_close(&j);
    rcclx_json_object_close(&j);
}

void rcclx_option_dump(FILE *out, bool json)
{
    if (json)
        dump_json(out);
    else
        dump_text(out);
}

/* FNV-1a. */
static uint64_t mix(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t rcclx_option_agree_hash(void)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char value[VALUE_BYTES];

    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++) {
        if (!(rcclx_option_row(o)->flags & RCCLX_OPTFLAG_AGREE))
            continue;
        print_value(o, value);
        hash = mix(mix(mix(mix(hash, rcclx_option_row(o)->name), "="), value), "\n");
    }
    return hash;
}

int rcclx_option_agree_text(char *buf, size_t nbytes)
{
    char value[VALUE_BYTES];
    size_t n = 0;

    if (nbytes)
        *buf = '\0';
    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++) {
        if (!(rcclx_option_row(o)->flags & RCCLX_OPTFLAG_AGREE))
            continue;
        print_value(o, value);
        n += (size_t)snprintf(n < nbytes ? buf + n : NULL, n < nbytes ? nbytes - n : 0, "%s=%s\n",
                              rcclx_option_row(o)->name, value);
    }
    return (int)n;
}

static const char page_top[] =
    "# Settings\n"
    "\n"
    "<!-- Made by `rcclx info --options --markdown` from the table in src/base/options.h; edit that. -->\n"
    "\n"
    "Settings are environment variables, or `NAME=VALUE` lines of a file. `rcclx info --options` shows\n"
    "what is in force and where each value came from.\n"
    "\n"
    "- **Names.** Every `NCCL_X` is also accepted as `RCCL_X` and as `RCCLX_X`; when several are set,\n"
    "  `RCCLX_X` wins over `RCCL_X`, and that over `NCCL_X`. A setting named `RCCLX_X` here is also\n"
    "  accepted as `RCCL_X`. A name with one of these prefixes that is not known gives one warning with\n"
    "  the nearest known name.\n"
    "- **Order.** The environment wins over the user's file (`NCCL_CONF_FILE`, or `~/.nccl.conf` when\n"
    "  that is not set), and that over `/etc/nccl.conf`. Within a file the first line for a name counts.\n"
    "- **Files.** One `NAME=VALUE` a line; blanks around both are dropped. A `#` at the start of a line\n"
    "  or after a blank begins a comment. Names that are nothing like ours are for others.\n"
    "- **Empty** is the same as not set, so an empty variable lets the file's value through.\n"
    "- **Integers** are read as C does (`0x10` and `010` are 16 and 8). **Bytes** take `K`, `M`, `G`,\n"
    "  `T` (powers of 1024). **Seconds** may have a fraction and take `ms`, `s`, `m`, `h`. **Switches**\n"
    "  are 0 or 1, also off/on, no/yes, false/true. **Words** may be in either case.\n"
    "- **Bad values.** What is out of range is moved to the nearest bound; what is not understood leaves\n"
    "  the default. Either gives one warning with what was asked, what is used and what is allowed.\n"
    "  Warnings about settings go to standard error, or to the log if `NCCL_DEBUG` is WARN or more;\n"
    "  `NCCL_DEBUG=NONE` silences them.\n"
    "- **Agree.** Settings marked so must be the same on all ranks; this is compared at init.\n"
    "- Values are read once, at the first use of the library.\n"
    "\n";

static void print_cell(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void print_row(FILE *out, const rcclx_optrow *row)
{
    char allowed[128];

    rcclx_optvalue_allowed(row, allowed, sizeof(allowed));
    fprintf(out, "| `%s` | %s | ", row->name, rcclx_opttype_name(row->type));
    if (*row->preset) {
        fputc('`', out);
        print_cell(out, row->preset);
        fputc('`', out);
    }
    fprintf(out, " | %s | %s | ", row->type == RCCLX_OPTTYPE_STR || row->type == RCCLX_OPTTYPE_LIST ? "" : allowed,
            row->flags & RCCLX_OPTFLAG_AGREE ? "yes" : "");
    print_cell(out, row->help);
    fputs(" |\n", out);
}

void rcclx_option_markdown(FILE *out)
{
    static const char *const accepted[] = {
#define X(name) name,
        RCCLX_OPTION_ACCEPTED_LIST(X)
#undef X
    };

    fputs(page_top, out);
    fputs("| name | type | default | allowed | agree | what it does |\n|---|---|---|---|---|---|\n", out);
    for (rcclx_option o = 0; o < RCCLX_OPT_COUNT; o++)
        print_row(out, rcclx_option_row(o));
    fputs("\n## Accepted without effect\n\n"
          "Known to NCCL, RCCL, their plug-ins or the images they come in. They give no warning; at\n"
          "`NCCL_DEBUG=INFO` a line says that they have no effect.\n\n", out);
    for (size_t i = 0; i < sizeof(accepted) / sizeof(accepted[0]); i++)
        fprintf(out, "%s`%s`%s", i % 4 ? " " : "", accepted[i],
                i + 1 == sizeof(accepted) / sizeof(accepted[0]) ? ".\n" : i % 4 == 3 ? ",\n" : ",");
}

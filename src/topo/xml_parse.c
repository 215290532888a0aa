/* The reader: one pass, one character of look-ahead, no recursion.
 *
 *   <system version="2">          open: push       stack: system
 *     <cpu numaid="0">            open: push              system cpu
 *       <nic/>                    open and close          system cpu
 *     </cpu>                      close: pop              system
 *   </system>                     close: pop, the end
 *
 * It takes what files of this kind hold: elements, attributes in either quotes,
 * the five named entities and numbers of ASCII characters, comments, <?...?>,
 * and a <!DOCTYPE ...> without a list of its own. Whatever else is there is an
 * error, told with its line. */
#include "topo/xml.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
    rcclx_xml  *x;
    const char *at, *end;
    int         line;
    int         open[RCCLX_XML_DEPTH], depth;
    char        token[4096]; /* the name or value just read */
} reader;

__attribute__((format(printf, 2, 3))) static rcclx_status broken(const reader *r, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return RCCLX_FAIL(RCCLX_USAGE, "%s, line %d: %s", r->x->source, r->line, text);
}

/* --- characters ---------------------------------------------------------------- */

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool in_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || c == ':';
}

static void step(reader *r)
{
    r->line += *r->at++ == '\n';
}

static bool skip_blanks(reader *r)
{
    const char *from = r->at;

    while (r->at < r->end && blank(*r->at))
        step(r);
    return r->at > from;
}

static bool starts(const reader *r, const char *word)
{
    const size_t n = strlen(word);

    return (size_t)(r->end - r->at) >= n && !memcmp(r->at, word, n);
}

/* Past the next `word`; false: it never comes. */
static bool skip_past(reader *r, const char *word)
{
    while (r->at < r->end) {
        if (starts(r, word)) {
            r->at += strlen(word);
            return true;
        }
        step(r);
    }
    return false;
}

/* --- names and values -------------------------------------------------------------- */

static rcclx_status read_name(reader *r, const char *of)
{
    size_t n = 0;

    while (r->at < r->end && in_name(*r->at)) {
        if (n == 64)
            return broken(r, "the name of %s is longer than 64 characters", of);
        r->token[n++] = *r->at++;
    }
    r->token[n] = 0;
    if (!n || (r->token[0] >= '0' && r->token[0] <= '9') || r->token[0] == '-' || r->token[0] == '.')
        return broken(r, "the name of %s is expected here", of);
    return RCCLX_OK;
}

/* &amp; and so on: the character, 0 if there is no such. */
static char entity(reader *r)
{
    static const struct { const char *text; char is; } named[] = {
        { "&lt;", '<' }, { "&gt;", '>' }, { "&amp;", '&' }, { "&quot;", '"' }, { "&apos;", '\'' },
    };
    int code = 0, digits = 0;

    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
        if (starts(r, named[i].text)) {
            r->at += strlen(named[i].text);
            return named[i].is;
        }
    if (!starts(r, "&#"))
        return 0;
    for (r->at += 2; r->at < r->end && *r->at >= '0' && *r->at <= '9' && digits < 3; r->at++, digits++)
        code = code * 10 + (*r->at - '0');
    if (r->at == r->end || *r->at != ';' || code > 126 || (code < 32 && !blank((char)code)))
        return 0;
    r->at++;
    return (char)code;
}

static rcclx_status read_value(reader *r, const char *key)
{
    const char quote = r->at < r->end ? *r->at : 0;
    size_t n = 0;

    if (quote != '"' && quote != '\'')
        return broken(r, "the value of attribute '%s' must stand in quotes", key);
    for (r->at++; r->at < r->end && *r->at != quote;) {
        if (n == sizeof(r->token) - 1)
            return broken(r, "the value of attribute '%s' is longer than %zu characters", key, sizeof(r->token) - 1);
        if (*r->at == '<')
            return broken(r, "a '<' in the value of attribute '%s': is its closing quote missing?", key);
        if ((unsigned char)*r->at < 32 && !blank(*r->at))
            return broken(r, "a control character in the value of attribute '%s'", key);
        if (*r->at == '&') {
            r->token[n] = entity(r);
            if (!r->token[n++])
                return broken(r, "an unknown &entity; in the value of attribute '%s'", key);
        } else {
            r->token[n++] = *r->at;
            step(r);
        }
    }
    r->token[n] = 0;
    if (r->at == r->end)
        return broken(r, "the file ends in the value of attribute '%s'", key);
    r->at++;
    return RCCLX_OK;
}

/* --- elements ------------------------------------------------------------------------ */

static rcclx_status read_attribute(reader *r, int element)
{
    char key[65];

    RCCLX_TRY(read_name(r, "an attribute"));
    snprintf(key, sizeof(key), "%.64s", r->token);
    skip_blanks(r);
    if (r->at == r->end || *r->at != '=')
        return broken(r, "attribute '%s' has no value", key);
    r->at++;
    skip_blanks(r);
    RCCLX_TRY(read_value(r, key));
    if (rcclx_xml_get(r->x, element, key))
        return broken(r, "attribute '%s' stands twice in <%s>", key, r->x->elements[element].name);
    if (r->x->elements[element].nattrs == RCCLX_XML_ATTRS)
        return broken(r, "<%s> has more than %d attributes", r->x->elements[element].name, RCCLX_XML_ATTRS);
    rcclx_xml_set(r->x, element, key, r->token);
    return r->x->status;
}

static rcclx_status open_element(reader *r)
{
    r->at++;
    RCCLX_TRY(read_name(r, "an element"));
    if (!r->depth && r->x->nelements)
        return broken(r, "<%s> behind the end of <%s>", r->token, r->x->elements[0].name);
    if (r->depth == RCCLX_XML_DEPTH)
        return broken(r, "elements are nested deeper than %d", RCCLX_XML_DEPTH);
    if (r->x->nelements == RCCLX_XML_ELEMENTS)
        return broken(r, "more than %d elements", RCCLX_XML_ELEMENTS);
    const int element = rcclx_xml_add(r->x, r->depth ? r->open[r->depth - 1] : -1, r->token);
    RCCLX_TRY(r->x->status);
    r->x->elements[element].line = r->line;
    for (;;) {
        const bool apart = skip_blanks(r);

        if (r->at == r->end)
            return broken(r, "the file ends within <%s", r->x->elements[element].name);
        if (*r->at == '>') {
            r->at++;
            r->open[r->depth++] = element;
            return RCCLX_OK;
        }
        if (starts(r, "/>")) {
            r->at += 2;
            return RCCLX_OK;
        }
        if (!apart)
            return broken(r, "unexpected '%c' in <%s>", *r->at >= 32 && *r->at < 127 ? *r->at : '?',
                          r->x->elements[element].name);
        RCCLX_TRY(read_attribute(r, element));
    }
}

static rcclx_status close_element(reader *r)
{
    r->at += 2;
    RCCLX_TRY(read_name(r, "an element"));
    skip_blanks(r);
    if (r->at == r->end || *r->at != '>')
        return broken(r, "</%s is not closed by '>'", r->token);
    r->at++;
    if (!r->depth)
        return broken(r, "</%s> closes nothing", r->token);
    const rcclx_xml_element *e = &r->x->elements[r->open[r->depth - 1]];
    if (strcmp(e->name, r->token))
        return broken(r, "</%s> where </%s> is expected, opened in line %d", r->token, e->name, e->line);
    r->depth--;
    return RCCLX_OK;
}

static rcclx_status read_next(reader *r)
{
    const int line = r->line;
    static const struct { const char *from, *to, *what; } skipped[] = {
        { "<!--", "-->", "a comment" }, { "<?", "?>", "<?...?>" }, { "<!DOCTYPE", ">", "<!DOCTYPE>" },
    };

    for (size_t i = 0; i < sizeof(skipped) / sizeof(skipped[0]); i++)
        if (starts(r, skipped[i].from)) {
            if (skip_past(r, skipped[i].to))
                return RCCLX_OK;
            r->line = line;
            return broken(r, "%s is not closed by '%s'", skipped[i].what, skipped[i].to);
        }
    if (starts(r, "</"))
        return close_element(r);
    if (*r->at == '<')
        return open_element(r);
    if (*r->at >= 33 && *r->at < 127)
        return broken(r, "'%c' is text, and only elements are expected here", *r->at);
    return broken(r, "byte 0x%02x where an element is expected; is this an XML file?", (unsigned char)*r->at);
}

static rcclx_status read_all(reader *r)
{
    if (starts(r, "\xef\xbb\xbf"))
        r->at += 3; /* a byte order mark */
    for (skip_blanks(r); r->at < r->end; skip_blanks(r))
        RCCLX_TRY(read_next(r));
    if (r->depth)
        return broken(r, "the file ends, and <%s> of line %d is still open", r->x->elements[r->open[r->depth - 1]].name,
                      r->x->elements[r->open[r->depth - 1]].line);
    return r->x->nelements ? RCCLX_OK : broken(r, "the file is empty");
}

rcclx_status rcclx_xml_parse(rcclx_xml *x, const char *text, size_t nbytes, const char *source)
{
    *x = (rcclx_xml){ .elements = NULL };
    snprintf(x->source, sizeof(x->source), "%s", source);
    reader *r = RCCLX_NEW(reader);
    if (!r)
        return RCCLX_FAIL(RCCLX_NOMEM, "%s: no memory to read it", source);
    *r = (reader){ .x = x, .at = text, .end = text + nbytes, .line = 1 };
    const rcclx_status s = read_all(r);
    rcclx_mem_free(r);
    if (s != RCCLX_OK)
        rcclx_xml_fini(x);
    return s;
}

rcclx_status rcclx_xml_read(rcclx_xml *x, const char *path)
{
    struct stat st;
    rcclx_status s = RCCLX_OK;

    *x = (rcclx_xml){ .elements = NULL };
    FILE *in = fopen(path, "re");
    if (!in)
        return RCCLX_FAIL_ERRNO("cannot open %s", path);
    char *text = NULL;
    size_t n = 0;
    if (fstat(fileno(in), &st) == 0 && S_ISDIR(st.st_mode))
        s = RCCLX_FAIL(RCCLX_USAGE, "%s is a directory, not a file", path);
    else if (!(text = rcclx_mem_alloc(RCCLX_XML_BYTES + 1)))
        s = RCCLX_FAIL(RCCLX_NOMEM, "no memory to read %s", path);
    else if ((n = fread(text, 1, RCCLX_XML_BYTES + 1, in)) > RCCLX_XML_BYTES)
        s = RCCLX_FAIL(RCCLX_USAGE, "%s is longer than %d bytes", path, RCCLX_XML_BYTES);
    else if (ferror(in))
        s = RCCLX_FAIL_ERRNO("cannot read %s", path);
    fclose(in);
    if (s == RCCLX_OK)
        s = rcclx_xml_parse(x, text, n, path);
    rcclx_mem_free(text);
    return s;
}

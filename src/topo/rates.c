/* Generations of links, not models of machines: what one link carries follows
 * from the kind of chip at its end. About three quarters of the signalling rate
 * arrive; the numbers are what programs measure. */
#include "topo/rates.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

double rcclx_rate_pci(const char *speed, int width)
{
    double gt = 0, unit = 1;

    if (!speed || width < 1 || !isdigit((unsigned char)*speed))
        return 0;
    for (; isdigit((unsigned char)*speed); speed++)
        gt = gt < 1e6 ? gt * 10 + (*speed - '0') : gt;
    if (*speed == '.')
        for (speed++; isdigit((unsigned char)*speed); speed++)
            gt += (unit /= 10) * (*speed - '0');
    /* 8 of 10 bits are data up to 5 GT/s, 128 of 130 above; headers take as much as they take */
    return gt * (gt < 6 ? 0.6 : 0.75) / 8 * width;
}

double rcclx_rate_xgmi(const char *gcn)
{
    /* the last digits of the architecture (older files write 90a as 910), and what one of its links carries */
    static const struct { const char *gfx; double rate; } rows[] = {
        { "906", 24 }, { "908", 24 }, { "90a", 36 }, { "910", 36 },
        { "940", 48 }, { "941", 48 }, { "942", 48 }, { "950", 57.6 },
    };

    if (!gcn)
        return 0;
    if (!strncmp(gcn, "gfx", 3))
        gcn += 3;
    const size_t n = strcspn(gcn, ":"); /* "gfx90a:sramecc+" */
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strlen(rows[i].gfx) == n && !strncmp(rows[i].gfx, gcn, n))
            return rows[i].rate;
    return 0;
}

double rcclx_rate_nvlink(int sm)
{
    static const struct { int from, to; double rate; } rows[] = {
        { 60, 69, 18 }, { 70, 79, 20 }, { 80, 85, 20 }, { 86, 89, 12 }, { 90, 99, 20.6 }, { 100, 109, 40.1 },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (sm >= rows[i].from && sm <= rows[i].to)
            return rows[i].rate;
    return 0;
}

double rcclx_rate_socket(const char *arch, const char *vendor, int family, int model)
{
    static const struct { const char *arch, *vendor; int family, least, most; double rate; } rows[] = {
        { "x86_64", "AuthenticAMD", 143, 0, 255, 16 },  /* Zen, Zen 2 */
        { "x86_64", "AuthenticAMD", 175, 0, 255, 24 },  /* Zen 3, Zen 4 */
        { "x86_64", "AuthenticAMD", 191, 0, 255, 32 },  /* Zen 5 */
        { "x86_64", "GenuineIntel", 6, 0, 84, 6 },      /* up to Broadwell */
        { "x86_64", "GenuineIntel", 6, 85, 105, 10 },   /* Skylake and its kin */
        { "x86_64", "GenuineIntel", 6, 106, 142, 10 },
        { "x86_64", "GenuineIntel", 6, 143, 172, 22 },  /* Sapphire Rapids, Emerald Rapids */
        { "x86_64", "GenuineIntel", 6, 173, 255, 40 },
        { "ppc64", NULL, -1, 0, 255, 32 },
        { "arm64", NULL, -1, 0, 255, 6 },
    };

    for (size_t i = 0; arch && i < sizeof(rows) / sizeof(rows[0]); i++)
        if (!strcmp(arch, rows[i].arch) && (!rows[i].vendor || (vendor && !strcmp(vendor, rows[i].vendor))) &&
            (rows[i].family < 0 || (family == rows[i].family && model >= rows[i].least && model <= rows[i].most)))
            return rows[i].rate;
    return 0;
}

#ifndef RCCLX_DEVICE_KERNELS_CODED_H
#define RCCLX_DEVICE_KERNELS_CODED_H

/* COPY and REDUCE in low precision: slots hold runs of codes and scales (codec/codec.h,
 * docs/wire-format.md), IN and OUT elements.
 *
 *   wave's tile    row 0 | row 1 | row 2 | row 3        a row: 16 bytes of elements a lane; f32 four rows, else two
 *   block          32 elements: 8 lanes (f32) or 4 of a row
 *
 *   load    own elements, and of every slot the lane's codes and its block's scale
 *   add     in f32, in rank order; what a code stands for times its scale is exact, so that the
 *           fused multiply and add rounds as an addition does
 *   scale   lanes of a block exchange maxima until each knows that of one row: two or four
 *           rows cost little more than one, and one division serves four rows
 *   store   codes into slots; into OUT what they stand for, or the sum
 *
 * A wave does a tile in one of two ways: `plain` tiles are whole, aligned and hold nothing that
 * wants care; what the next one needs is asked for before this one is worked on. All others go the
 * long way. There, lanes without elements go along, with zeros, since all lanes of a wave meet in
 * its shuffles. A block that holds Inf or NaN, or comes near the type's largest value, wants
 * care: it is done element by element, and its scale's sign tells readers to do so.
 *
 * Part of run.h. */

enum { GP_CODED_ROWS = 4, GP_CODED_BLOCK = 32, GP_CODED_ALIGN = 128 };

GP_DEV int gp_coded_lanes(int type) { return type == GP_F32 ? 8 : 4; }    /* of a block */
GP_DEV int gp_coded_each(int type) { return type == GP_F32 ? 4 : 8; }     /* elements of a lane in a row */
GP_DEV int gp_coded_count(int type) { return type == GP_F32 ? 4 : 2; }    /* rows: 16 elements a lane */
GP_DEV uint32_t gp_coded_near(int type) { return type == GP_F16 ? 0x47000000u : 0x7f000000u; } /* care from here on */
GP_DEV uint32_t gp_coded_inf(int type) { return type == GP_F16 ? 0x477ff000u : 0x7f800000u; }  /* Inf from here on */
GP_DEV float gp_coded_most(int type) { return gp_bits_f32(type == GP_F16 ? 0x477fe000u : type == GP_BF16 ? 0x7f7f0000u : 0x7f7fffffu); }

/* What a block's largest code stands for; the scale beyond which it would leave f32. */
GP_DEV float gp_coded_top(int codec) { return codec == GP_CODEC_INT8 ? 126.0f : 416.0f; }
GP_DEV float gp_coded_inverse(int codec) { return gp_bits_f32(codec == GP_CODEC_INT8 ? 0x3c020821u : 0x3b1d89d9u); }
GP_DEV uint32_t gp_coded_limit(int codec) { return codec == GP_CODEC_INT8 ? 0x7c020000u : 0x7b1d0000u; }

/* --- with care: what may be Inf, NaN, or too large ------------------------------------ */

GP_DEV float gp_care_value(const int codec, int type, uint32_t code, float scale)
{
    const float most = gp_coded_most(type);
    const uint32_t last = codec == GP_CODEC_INT8 ? 127 : 126;
    const uint32_t size = codec == GP_CODEC_INT8 && code & 0x80 ? 0x100 - code : codec == GP_CODEC_INT8 ? code : code & 0x7f;
    float f[4];

    if (size >= last)
        return gp_bits_f32(size > last ? 0x7fc00000u : 0x7f800000u | (code & 0x80) << 24);
    if (codec == GP_CODEC_INT8)
        gp_open_i8(code, f);
    else
        gp_open_small_e4m3(code, f);
    const float x = gp_mul_f32(f[0], scale);
    return x > most ? most : x < -most ? -most : x;
}

GP_DEV uint32_t gp_care_code(const int codec, int type, float x, float inverse)
{
    const uint32_t bits = gp_f32_bits(x), size = bits & 0x7fffffffu, negative = bits >> 31;
    const float top = gp_coded_top(codec);
    float t[4];

    if (size > 0x7f800000u)
        return codec == GP_CODEC_INT8 ? 0x80 : 0x7f;
    if (size >= gp_coded_inf(type))
        return codec == GP_CODEC_INT8 ? (negative ? 0x81 : 0x7f) : 0x7e | negative << 7;
    x = codec == GP_CODEC_INT8 ? gp_add_f32(gp_fma_f32(x, inverse, 12582912.0f), -12582912.0f) : gp_mul_f32(x, inverse);
    x = x > top ? top : x < -top ? -top : x;
    if (codec == GP_CODEC_INT8)
        return (uint32_t)(int32_t)x & 0xff;
    t[0] = x, t[1] = t[2] = t[3] = 0;
    return gp_pack_small_e4m3(t) & 0xff;
}

/* Four of them, as bits of f32. */
GP_SLOW gp_v4 gp_care_values(int codec, int type, uint32_t word, float scale)
{
    gp_v4 v = gp_v4_make(0, 0, 0, 0);

    GP_UNROLL
    for (int i = 0; i < 4; i++)
        gp_set(&v, i, gp_f32_bits(gp_care_value(codec, type, word >> 8 * i & 0xff, scale)));
    return v;
}

GP_SLOW uint32_t gp_care_word(int codec, int type, gp_v4 x, float inverse)
{
    uint32_t word = 0;

    GP_UNROLL
    for (int i = 0; i < 4; i++)
        word |= gp_care_code(codec, type, gp_bits_f32(gp_get(x, i)), inverse) << 8 * i;
    return word;
}

/* --- four at a time ------------------------------------------------------------------ */

/* What a word of codes stands for. */
GP_DEV void gp_coded_values(const int codec, uint32_t word, float scale, float f[4])
{
    if (codec == GP_CODEC_INT8)
        gp_open_i8(word, f);
    else
        gp_open_small_e4m3(word, f);
    GP_UNROLL
    for (int i = 0; i < 4; i++)
        f[i] = gp_mul_f32(f[i], scale);
}

GP_DEV uint32_t gp_coded_word(const int codec, const float x[4], float inverse)
{
    float t[4];
    uint32_t q[4];

    GP_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = codec == GP_CODEC_INT8 ? gp_fma_f32(x[i], inverse, 12582912.0f) : gp_mul_f32(x[i], inverse);
        q[i] = gp_f32_bits(t[i]);
    }
    return codec == GP_CODEC_INT8 ? gp_join_low(q) : gp_pack_small_e4m3(t);
}

/* The same, and if need be with care. */
GP_DEV void gp_any_values(const int codec, const int type, uint32_t word, float scale, uint32_t care, float f[4])
{
    if (!care) {
        gp_coded_values(codec, word, scale, f);
        return;
    }
    const gp_v4 v = gp_care_values(codec, type, word, scale);
    GP_UNROLL
    for (int i = 0; i < 4; i++)
        f[i] = gp_bits_f32(gp_get(v, i));
}

GP_DEV uint32_t gp_any_word(const int codec, const int type, const float x[4], float inverse, uint32_t care)
{
    if (!care)
        return gp_coded_word(codec, x, inverse);
    return gp_care_word(codec, type, gp_v4_make(gp_f32_bits(x[0]), gp_f32_bits(x[1]), gp_f32_bits(x[2]), gp_f32_bits(x[3])), inverse);
}

/* --- where a thread is ------------------------------------------------------------------ */

/* A step's piece, alike in all threads; positions are elements of it. */
typedef struct {
    const char *own;                 /* the source that is not a run; NULL: none */
    uint32_t    before, runs;        /* runs among the sources: before it, in all */
    uint32_t    scales;              /* where they begin in a run */
    uint32_t    count;
    int         divisor, aligned;    /* aligned: tiles may go the short way */
    int         fills, gives;        /* there are runs, plain operands among the destinations */
} gp_coded_piece;

typedef struct { float x[GP_CODED_ROWS][8]; } gp_coded_rows;
typedef struct { gp_v4 v[GP_CODED_ROWS]; } gp_coded_own;
typedef struct { uint32_t word[GP_CODED_ROWS][2], wire[GP_CODED_ROWS]; } gp_coded_run;

/* Element of row u for the lane whose element of row 0 is `at`. */
GP_DEV uint32_t gp_coded_row(const int type, uint32_t at, int u) { return at + (uint32_t)u * GP_WAVE * (uint32_t)gp_coded_each(type); }

/* The k-th source that is a run. */
GP_DEV const char *gp_coded_source(const gp_ctx *c, const gp_coded_piece *p, uint32_t k)
{
    return gp_src(c, k + (p->own && k >= p->before));
}

/* --- loading. whole: all of it is there, and aligned -------------------------------------- */

GP_DEV void gp_coded_load_run(const gp_coded_piece *p, const int type, const int whole, const char *run, uint32_t at, gp_coded_run *r)
{
    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++) {
        const uint32_t e = gp_coded_row(type, at, u);
        r->word[u][0] = r->word[u][1] = r->wire[u] = 0;
        if (!whole && e >= p->count)
            continue;
        if (type == GP_F32) {
            r->word[u][0] = gp_ld4(run + e);
        } else {
            const uint64_t both = gp_ld8(run + e);
            r->word[u][0] = (uint32_t)both, r->word[u][1] = (uint32_t)(both >> 32);
        }
        r->wire[u] = gp_ld2(run + p->scales + e / GP_CODED_BLOCK * 2);
    }
}

GP_DEV void gp_coded_load_own(const gp_coded_piece *p, const int type, const int whole, uint32_t at, gp_coded_own *o)
{
    const uint32_t each = (uint32_t)gp_coded_each(type), size = 16 / each;

    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++) {
        const uint32_t e = gp_coded_row(type, at, u);
        o->v[u] = gp_v4_make(0, 0, 0, 0);
        if (whole)
            o->v[u] = gp_ld16_nt(p->own + e * size);
        else if (e < p->count)
            o->v[u] = gp_load16_odd(p->own + e * size, (int64_t)(p->count - e) * size);
    }
}

/* --- adding ------------------------------------------------------------------------------------ */

GP_DEV void gp_coded_add_own(const int type, const gp_coded_own *o, int first, gp_coded_rows *a)
{
    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++) {
        gp_acc acc;
        gp_f32_open(&acc, type, GP_OP_SUM, o->v[u], 0, 0);
        GP_UNROLL
        for (int i = 0; i < gp_coded_each(type); i++)
            a->x[u][i] = first ? acc.f[i] : gp_add_f32(a->x[u][i], acc.f[i]);
    }
}

GP_DEV void gp_coded_add_run(const int codec, const int type, const int whole, const gp_coded_run *r, int first, gp_coded_rows *a)
{
    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++)
        GP_UNROLL
        for (int h = 0; h < gp_coded_each(type) / 4; h++) {
            const float scale = gp_bits_f32((whole ? r->wire[u] : r->wire[u] & 0x7fffu) << 16);
            float f[4];
            if (whole)
                gp_coded_values(codec, r->word[u][h], scale, f);
            else
                gp_any_values(codec, type, r->word[u][h], scale, r->wire[u] & 0x8000u, f);
            GP_UNROLL
            for (int i = 0; i < 4; i++)
                a->x[u][4 * h + i] = first ? f[i] : gp_add_f32(a->x[u][4 * h + i], f[i]);
        }
}

/* Does a block of the wave's rows want care? */
GP_DEV int gp_coded_cares(const int type, const gp_coded_run *r)
{
    uint32_t care = 0;

    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++)
        care |= r->wire[u];
    return gp_ballot((int)(care & 0x8000u)) != 0;
}

/* Any sources, in order; `run` is the first run. 0: a whole tile that wants care. */
GP_DEV int gp_coded_sum(const gp_ctx *c, const gp_coded_piece *p, const int codec, const int type, const int whole, uint32_t at,
                        const gp_coded_own *own, const gp_coded_run *run, gp_coded_rows *a)
{
    gp_coded_run next = *run;

    if (p->own && p->before == 0)
        gp_coded_add_own(type, own, 1, a);
    GP_NO_UNROLL
    for (uint32_t k = 0; k < p->runs; k++) {
        const gp_coded_run now = next;
        if (k + 1 < p->runs)
            gp_coded_load_run(p, type, whole, gp_coded_source(c, p, k + 1), at, &next);
        if (whole && gp_coded_cares(type, &now))
            return 0;
        gp_coded_add_run(codec, type, whole, &now, k == 0 && !(p->own && p->before == 0), a);
        if (p->own && p->before == k + 1)
            gp_coded_add_own(type, own, 0, a);
    }
    return 1;
}

GP_DEV void gp_coded_divide(const gp_coded_piece *p, const int type, const int whole, gp_coded_rows *a)
{
    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++)
        GP_UNROLL
        for (int i = 0; i < gp_coded_each(type); i++)
            a->x[u][i] = whole ? gp_mul_f32(a->x[u][i], gp_inverse((float)p->divisor)) : gp_div_f32(a->x[u][i], (float)p->divisor);
}

/* --- scales ----------------------------------------------------------------------------- */

GP_DEV uint32_t gp_max32(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* The greatest magnitude of a row's elements here, of those below `below`. */
GP_DEV uint32_t gp_coded_max(const int type, const float *x, uint32_t below)
{
    uint32_t m = 0;

    GP_UNROLL
    for (int i = 0; i < gp_coded_each(type); i++) {
        const uint32_t bits = gp_f32_bits(x[i]) & 0x7fffffffu;
        m = gp_max32(m, bits < below ? bits : 0);
    }
    return m;
}

/* Of the rows' maxima in the lanes of a block: that of one row, which follows from the lane; two lanes have it. */
GP_DEV uint32_t gp_coded_exchange(const int type, const uint32_t m[GP_CODED_ROWS])
{
    const uint32_t lane = gp_lane(), high = lane & 4, odd = lane & 2;
    uint32_t a = m[0], b = m[1];

    if (type == GP_F32) {
        a = high ? m[2] : m[0], b = high ? m[3] : m[1];
        a = gp_max32(a, gp_shuffle(high ? m[0] : m[2], lane ^ 4));
        b = gp_max32(b, gp_shuffle(high ? m[1] : m[3], lane ^ 4));
    }
    a = gp_max32(odd ? b : a, gp_shuffle(odd ? a : b, lane ^ 2));
    return gp_max32(a, gp_shuffle(a, lane ^ 1));
}

/* Which row that is, and a lane that has row u's. */
GP_DEV uint32_t gp_coded_mine(const int type) { return gp_lane() % (uint32_t)gp_coded_lanes(type) / 2; }
GP_DEV uint32_t gp_coded_keeper(const int type, int u) { return (gp_lane() & ~((uint32_t)gp_coded_lanes(type) - 1)) + 2 * (uint32_t)u; }

/* The bits of the scale for a block with this greatest magnitude. */
GP_DEV uint32_t gp_coded_fit(const int codec, uint32_t most)
{
    const uint32_t scale = gp_f32_bits(gp_mul_f32(gp_bits_f32(most), gp_coded_inverse(codec)));

    return gp_max32((scale + 0xffffu) & 0xffff0000u, 0x00800000u);
}

/* The scale of the lane's row; its lowest bit says whether the block wants care. Of a whole tile: 0 in all lanes if any does. */
GP_DEV uint32_t gp_coded_choose(const int codec, const int type, const int whole, const gp_coded_rows *a)
{
    uint32_t m[GP_CODED_ROWS], most, scale, care;

    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++)
        m[u] = type == GP_F32 ? gp_magnitude(a->x[u]) : gp_max32(gp_magnitude(a->x[u]), gp_magnitude(a->x[u] + 4));
    most = gp_coded_exchange(type, m);
    care = most >= gp_coded_near(type);
    if (!gp_ballot((int)care))
        return gp_coded_fit(codec, most);
    if (whole)
        return 0;
    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++)
        m[u] = gp_coded_max(type, a->x[u], gp_coded_inf(type));
    scale = gp_coded_fit(codec, gp_coded_exchange(type, m));
    if (care)
        scale = scale < gp_coded_limit(codec) ? scale : gp_coded_limit(codec);
    return scale | care;
}

/* --- storing ---------------------------------------------------------------------------- */

/* Codes; in `a` comes back what they stand for, if somebody gets that. */
GP_DEV void gp_coded_encode(const gp_coded_piece *p, const int codec, const int type, const int whole, uint32_t mine, gp_coded_rows *a,
                            uint32_t word[GP_CODED_ROWS][2])
{
    const uint32_t inverse = gp_f32_bits(gp_inverse(gp_bits_f32(mine & 0xffff0000u)));

    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++) {
        const uint32_t keeper = gp_coded_keeper(type, u);
        const float by = gp_bits_f32(gp_shuffle(inverse, keeper));
        const uint32_t scale = !whole || p->gives ? gp_shuffle(mine, keeper) : 0;
        GP_UNROLL
        for (int h = 0; h < gp_coded_each(type) / 4; h++) {
            float *x = &a->x[u][4 * h];
            word[u][h] = whole ? gp_coded_word(codec, x, by) : gp_any_word(codec, type, x, by, scale & 1);
            if (p->gives && whole)
                gp_coded_values(codec, word[u][h], gp_bits_f32(scale), x);
            else if (p->gives)
                gp_any_values(codec, type, word[u][h], gp_bits_f32(scale & 0xffff0000u), scale & 1, x);
        }
    }
}

GP_DEV void gp_coded_put_run(const gp_coded_piece *p, const int type, const int whole, uint32_t at, char *run, uint32_t mine,
                             uint32_t word[GP_CODED_ROWS][2])
{
    const uint32_t block = gp_coded_row(type, at, (int)gp_coded_mine(type)) / GP_CODED_BLOCK;

    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++) {
        const uint32_t e = gp_coded_row(type, at, u);
        if (!whole && e >= p->count)
            continue;
        if (type == GP_F32)
            gp_st4(run + e, word[u][0]);
        else
            gp_st8(run + e, word[u][0] | (uint64_t)word[u][1] << 32);
    }
    if (!(gp_lane() & 1) && (whole || block * GP_CODED_BLOCK < p->count))
        gp_st2(run + p->scales + block * 2, mine >> 16 | (mine & 1) << 15);
}

GP_DEV void gp_coded_put_plain(const gp_coded_piece *p, const int type, const int whole, uint32_t at, char *dst, const gp_coded_rows *a)
{
    const uint32_t each = (uint32_t)gp_coded_each(type), size = 16 / each;

    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++) {
        const uint32_t e = gp_coded_row(type, at, u);
        gp_acc acc;
        GP_UNROLL
        for (uint32_t i = 0; i < each; i++)
            acc.f[i] = a->x[u][i];
        const gp_v4 v = gp_f32_close(&acc, type, GP_OP_SUM, 0);
        if (whole)
            gp_st16(dst + e * size, v);
        else if (e < p->count)
            gp_store16_odd(dst + e * size, v, (int64_t)(p->count - e) * size);
    }
}

/* What has been added to where it belongs. 0: a whole tile that wants care; nothing has been stored. */
GP_DEV int gp_coded_store(const gp_ctx *c, const gp_step *s, const gp_coded_piece *p, const int codec, const int type, const int whole,
                          uint32_t at, gp_coded_rows *a)
{
    const gp_ref *dst = c->refs + s->first + s->nsrc;
    uint32_t word[GP_CODED_ROWS][2], mine = 1;

    if (p->divisor)
        gp_coded_divide(p, type, whole, a);
    if (p->fills) {
        mine = gp_coded_choose(codec, type, whole, a);
        if (whole && !mine)
            return 0;
        gp_coded_encode(p, codec, type, whole, mine, a, word);
    }
    GP_NO_UNROLL
    for (uint32_t m = 0; m < s->ndst; m++)
        if (dst[m].buf == GP_SCRATCH)
            gp_coded_put_run(p, type, whole, at, gp_dst(c, m), mine, word);
        else
            gp_coded_put_plain(p, type, whole, at, gp_dst(c, m), a);
    return 1;
}

/* --- tiles, and a block of a step ------------------------------------------------------------- */

GP_DEV gp_coded_piece gp_coded_open(const gp_ctx *c, const gp_step *s, uint32_t count)
{
    const gp_ref *refs = c->refs + s->first;
    gp_coded_piece p = { .count = count, .divisor = s->final && c->w->op == GP_OP_AVG ? c->f->nranks : 0 };
    uint64_t bits = 0;

    p.scales = (count + GP_CODED_ALIGN - 1) / GP_CODED_ALIGN * GP_CODED_ALIGN;
    GP_NO_UNROLL
    for (uint32_t k = 0; k < s->nsrc; k++)
        if (refs[k].buf == GP_SCRATCH)
            p.runs++;
        else
            p.before = p.runs, p.own = gp_src(c, k), bits |= c->sh->src[k];
    GP_NO_UNROLL
    for (uint32_t m = 0; m < s->ndst; m++)
        if (refs[s->nsrc + m].buf == GP_SCRATCH)
            p.fills = 1;
        else
            p.gives = 1, bits |= c->sh->dst[m];
    /* by a power of two a product is the same as a quotient; others go the long way */
    p.aligned = !(bits & 15) && !(p.divisor & (p.divisor - 1));
    return p;
}

/* Whole tiles from *first on, at most 32; those that want care are left: a bit each. own, run: the sources are the own one
 * (and) one run; neither: any. */
GP_DEV uint32_t gp_coded_whole(const gp_ctx *c, const gp_step *s, const gp_coded_piece *p, const int codec, const int type,
                               const int own, const int run, uint32_t whole, uint32_t stride, uint32_t *first)
{
    const uint32_t lane = gp_lane() * (uint32_t)gp_coded_each(type);
    const char *from = own && !run ? NULL : gp_coded_source(c, p, 0);
    uint32_t left = 0;
    gp_coded_own next_own;
    gp_coded_run next_run;

    if (own)
        gp_coded_load_own(p, type, 1, *first + lane, &next_own);
    if (run)
        gp_coded_load_run(p, type, 1, from, *first + lane, &next_run);
    GP_NO_UNROLL
    for (uint32_t bit = 1; bit && *first < whole; bit <<= 1, *first += stride) {
        const uint32_t at = *first + lane;
        gp_coded_own now_own = next_own;
        gp_coded_run now_run = next_run;
        gp_coded_rows a;
        int fine = 1;
        if (own && *first + stride < whole)
            gp_coded_load_own(p, type, 1, at + stride, &next_own);
        if (run && *first + stride < whole)
            gp_coded_load_run(p, type, 1, from, at + stride, &next_run);
        if (!own && !run) {
            if (p->own)
                gp_coded_load_own(p, type, 1, at, &now_own);
            gp_coded_load_run(p, type, 1, from, at, &now_run);
            fine = gp_coded_sum(c, p, codec, type, 1, at, &now_own, &now_run, &a);
        }
        if (own)
            gp_coded_add_own(type, &now_own, 1, &a);
        if (run)
            fine = !gp_coded_cares(type, &now_run);
        if (run) /* two are the same in either order */
            gp_coded_add_run(codec, type, 1, &now_run, !own, &a);
        if (!fine || !gp_coded_store(c, s, p, codec, type, 1, at, &a))
            left |= bit;
    }
    return left;
}

/* A tile the long way; called seldom, so that it shares no registers with the short one. */
GP_SLOW void gp_coded_long(gp_shared *sh, const gp_work *w, const gp_step *s, const gp_ref *refs, int nranks, uint32_t count, uint32_t at,
                           int codec, int type)
{
    const gp_frame frame = { .nranks = (uint8_t)nranks };
    gp_ctx c = { .f = &frame, .w = w, .refs = refs, .sh = sh };
    const gp_coded_piece p = gp_coded_open(&c, s, count);
    gp_coded_own own;
    gp_coded_run run;
    gp_coded_rows a;

    if (p.own)
        gp_coded_load_own(&p, type, 0, at, &own);
    if (p.runs)
        gp_coded_load_run(&p, type, 0, gp_coded_source(&c, &p, 0), at, &run);
    gp_coded_sum(&c, &p, codec, type, 0, at, &own, &run, &a);
    gp_coded_store(&c, s, &p, codec, type, 0, at, &a);
}

GP_DEV void gp_coded_block(const gp_ctx *c, const gp_step *s, uint32_t piece, uint32_t b, const int codec, const int type)
{
    const gp_span span = gp_move_begin(c, s, piece, b);
    const gp_coded_piece p = gp_coded_open(c, s, (uint32_t)span.end / (uint32_t)gp_type_bytes(type));
    const uint32_t tile = (uint32_t)gp_coded_count(type) * GP_WAVE * (uint32_t)gp_coded_each(type);
    const uint32_t stride = tile, lane = gp_lane() * (uint32_t)gp_coded_each(type);
    const uint32_t whole = p.aligned ? p.count / tile * tile : 0;
    uint32_t first = 0;

    GP_NO_UNROLL
    while (first < whole) {
        uint32_t at = first, left;
        if (!p.own && p.runs == 1)
            left = gp_coded_whole(c, s, &p, codec, type, 0, 1, whole, stride, &first);
        else if (p.runs == 0)
            left = gp_coded_whole(c, s, &p, codec, type, 1, 0, whole, stride, &first);
        else if (p.runs == 1)
            left = gp_coded_whole(c, s, &p, codec, type, 1, 1, whole, stride, &first);
        else
            left = gp_coded_whole(c, s, &p, codec, type, 0, 0, whole, stride, &first);
        GP_NO_UNROLL
        for (; left; left >>= 1, at += stride)
            if (left & 1)
                gp_coded_long(c->sh, c->w, s, c->refs, c->f->nranks, p.count, at + lane, codec, type);
    }
    GP_NO_UNROLL
    for (; first < p.count; first += stride)
        gp_coded_long(c->sh, c->w, s, c->refs, c->f->nranks, p.count, first + lane, codec, type);
}

#endif

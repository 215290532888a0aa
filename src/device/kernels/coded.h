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
 * Lanes without elements go along, with zeros: all lanes of a wave meet in its shuffles. A block
 * that holds Inf or NaN, or comes near the type's largest value, wants care: its wave takes the
 * slow way, element by element, and the scale's sign tells readers to do so.
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

/* What a word of codes stands for. care: look at each. */
GP_DEV void gp_coded_values(const int codec, const int type, uint32_t word, float scale, uint32_t care, float f[4])
{
    if (care) {
        const gp_v4 v = gp_care_values(codec, type, word, scale);
        GP_UNROLL
        for (int i = 0; i < 4; i++)
            f[i] = gp_bits_f32(gp_get(v, i));
        return;
    }
    if (codec == GP_CODEC_INT8)
        gp_open_i8(word, f);
    else
        gp_open_small_e4m3(word, f);
    GP_UNROLL
    for (int i = 0; i < 4; i++)
        f[i] = gp_mul_f32(f[i], scale);
}

GP_DEV uint32_t gp_coded_word(const int codec, const int type, const float x[4], float inverse, uint32_t care)
{
    float t[4];
    uint32_t q[4];

    if (care)
        return gp_care_word(codec, type, gp_v4_make(gp_f32_bits(x[0]), gp_f32_bits(x[1]), gp_f32_bits(x[2]), gp_f32_bits(x[3])), inverse);
    GP_UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = codec == GP_CODEC_INT8 ? gp_fma_f32(x[i], inverse, 12582912.0f) : gp_mul_f32(x[i], inverse);
        q[i] = gp_f32_bits(t[i]);
    }
    return codec == GP_CODEC_INT8 ? gp_join_low(q) : gp_pack_small_e4m3(t);
}

/* --- a tile ---------------------------------------------------------------------------- */

/* Where a thread is: its element in the rows of a tile. */
typedef struct {
    uint64_t at;      /* of row 0, from the piece's beginning; a row further: + GP_WAVE * each */
    int64_t  count;   /* elements of the piece */
    int      aligned; /* all plain operands, to 16 bytes */
} gp_coded_at;

typedef struct { float x[GP_CODED_ROWS][8]; } gp_coded_rows;
typedef struct { uint32_t word[GP_CODED_ROWS][2], wire[GP_CODED_ROWS]; } gp_coded_run;

GP_DEV uint64_t gp_coded_row(const int type, const gp_coded_at *t, int u)
{
    return t->at + (uint64_t)u * GP_WAVE * (uint64_t)gp_coded_each(type);
}

GP_DEV uint64_t gp_coded_scales(const gp_coded_at *t)
{
    return ((uint64_t)t->count + GP_CODED_ALIGN - 1) / GP_CODED_ALIGN * GP_CODED_ALIGN;
}

GP_DEV void gp_coded_load(const int type, const gp_coded_at *t, const char *run, gp_coded_run *r)
{
    GP_UNROLL
    for (int u = 0; u < GP_CODED_ROWS; u++) {
        const uint64_t e = gp_coded_row(type, t, u);
        const int in = u < gp_coded_count(type) && (int64_t)e < t->count;
        r->word[u][0] = r->word[u][1] = r->wire[u] = 0;
        if (in && type == GP_F32) {
            r->word[u][0] = gp_ld4(run + e);
        } else if (in) {
            const uint64_t both = gp_ld8(run + e);
            r->word[u][0] = (uint32_t)both, r->word[u][1] = (uint32_t)(both >> 32);
        }
        if (in)
            r->wire[u] = gp_ld2(run + gp_coded_scales(t) + e / GP_CODED_BLOCK * 2);
    }
}

GP_DEV void gp_coded_load_plain(const int type, const gp_coded_at *t, const char *src, gp_v4 v[GP_CODED_ROWS])
{
    const int each = gp_coded_each(type), size = 16 / each;

    GP_UNROLL
    for (int u = 0; u < GP_CODED_ROWS; u++) {
        const uint64_t e = gp_coded_row(type, t, u);
        const int64_t left = t->count - (int64_t)e;
        v[u] = gp_v4_make(0, 0, 0, 0);
        if (u >= gp_coded_count(type))
            continue;
        if (t->aligned && left >= each)
            v[u] = gp_ld16_nt(src + e * (uint64_t)size);
        else if (left > 0)
            v[u] = gp_load16_odd(src + e * (uint64_t)size, left * size);
    }
}

GP_DEV void gp_coded_take_plain(const int type, const gp_v4 v[GP_CODED_ROWS], int first, gp_coded_rows *a)
{
    GP_UNROLL
    for (int u = 0; u < GP_CODED_ROWS; u++) {
        gp_acc acc;
        if (u >= gp_coded_count(type))
            continue;
        gp_f32_open(&acc, type, GP_OP_SUM, v[u], 0, 0);
        GP_UNROLL
        for (int i = 0; i < 8; i++)
            if (i < gp_coded_each(type))
                a->x[u][i] = first ? acc.f[i] : gp_add_f32(a->x[u][i], acc.f[i]);
    }
}

GP_DEV void gp_coded_take(const int codec, const int type, const gp_coded_run *r, int first, gp_coded_rows *a)
{
    GP_UNROLL
    for (int u = 0; u < GP_CODED_ROWS; u++)
        GP_UNROLL
        for (int h = 0; h < 2; h++) {
            float f[4];
            if (u >= gp_coded_count(type) || h * 4 >= gp_coded_each(type))
                continue;
            gp_coded_values(codec, type, r->word[u][h], gp_bits_f32((r->wire[u] & 0x7fffu) << 16), r->wire[u] & 0x8000u, f);
            GP_UNROLL
            for (int i = 0; i < 4; i++)
                a->x[u][4 * h + i] = first ? f[i] : gp_add_f32(a->x[u][4 * h + i], f[i]);
        }
}

/* All sources of a step, in order; the plain one's bytes are asked for first, and a run's before the one
 * before it is added. */
GP_DEV void gp_coded_sum(const gp_ctx *c, const gp_step *s, const int codec, const int type, const gp_coded_at *t, gp_coded_rows *a)
{
    const gp_ref *refs = c->refs + s->first;
    gp_coded_run next;
    gp_v4 own[GP_CODED_ROWS];
    uint32_t plain = s->nsrc, k = 0, ahead = 0;

    GP_NO_UNROLL
    for (uint32_t i = 0; i < s->nsrc; i++)
        if (refs[i].buf != GP_SCRATCH)
            plain = i;
    if (plain < s->nsrc)
        gp_coded_load_plain(type, t, gp_src(c, plain), own);
    ahead = plain == 0;
    if (ahead < s->nsrc)
        gp_coded_load(type, t, gp_src(c, ahead), &next);
    GP_NO_UNROLL
    for (; k < s->nsrc; k++) {
        if (k == plain) {
            gp_coded_take_plain(type, own, k == 0, a);
            continue;
        }
        const gp_coded_run now = next;
        ahead += ahead + 1 == plain ? 2 : 1;
        if (ahead < s->nsrc)
            gp_coded_load(type, t, gp_src(c, ahead), &next);
        gp_coded_take(codec, type, &now, k == 0, a);
    }
}

/* --- scales ----------------------------------------------------------------------------- */

GP_DEV uint32_t gp_max32(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* The greatest magnitude of a row's elements here; `below`: of those below it. */
GP_DEV uint32_t gp_coded_max(const int type, const float *x, uint32_t below)
{
    uint32_t m = 0;

    GP_UNROLL
    for (int i = 0; i < 8; i++)
        if (i < gp_coded_each(type)) {
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
GP_DEV uint32_t gp_coded_keeper(const int type, uint32_t u) { return (gp_lane() & ~((uint32_t)gp_coded_lanes(type) - 1)) + 2 * u; }

/* The scale of the lane's row: its bits, the lowest of which says whether the block wants care. */
GP_DEV uint32_t gp_coded_choose(const int codec, const int type, const gp_coded_rows *a, uint64_t *cared)
{
    uint32_t m[GP_CODED_ROWS], most, care;

    GP_UNROLL
    for (int u = 0; u < GP_CODED_ROWS; u++)
        m[u] = u < gp_coded_count(type) ? gp_coded_max(type, a->x[u], ~0u) : 0;
    most = gp_coded_exchange(type, m);
    care = most >= gp_coded_near(type);
    *cared = gp_ballot((int)care);
    if (*cared) {
        GP_UNROLL
        for (int u = 0; u < GP_CODED_ROWS; u++)
            m[u] = u < gp_coded_count(type) ? gp_coded_max(type, a->x[u], gp_coded_inf(type)) : 0;
        most = gp_coded_exchange(type, m);
    }
    uint32_t scale = (gp_f32_bits(gp_mul_f32(gp_bits_f32(most), gp_coded_inverse(codec))) + 0xffffu) & 0xffff0000u;
    scale = gp_max32(scale, 0x00800000u);
    if (care)
        scale = scale < gp_coded_limit(codec) ? scale : gp_coded_limit(codec);
    return scale | care;
}

/* --- storing ---------------------------------------------------------------------------- */

/* Codes and scales into all slots of a step; values: what they stand for comes back in `a`. */
GP_DEV void gp_coded_put(const gp_ctx *c, const gp_step *s, const int codec, const int type, const gp_coded_at *t, gp_coded_rows *a,
                         int values)
{
    const gp_ref *refs = c->refs + s->first + s->nsrc;
    const uint64_t scales = gp_coded_scales(t), block = gp_coded_row(type, t, (int)gp_coded_mine(type)) / GP_CODED_BLOCK;
    uint64_t cared;
    const uint32_t mine = gp_coded_choose(codec, type, a, &cared);
    const float inverse = gp_div_f32(1.0f, gp_bits_f32(mine & 0xffff0000u));
    const int keeps = !(gp_lane() & 1) && (int64_t)(block * GP_CODED_BLOCK) < t->count;
    uint32_t word[GP_CODED_ROWS][2];

    GP_UNROLL
    for (int u = 0; u < GP_CODED_ROWS; u++) {
        if (u >= gp_coded_count(type))
            continue;
        const uint32_t keeper = gp_coded_keeper(type, (uint32_t)u);
        const float by = gp_bits_f32(gp_shuffle(gp_f32_bits(inverse), keeper));
        const uint32_t scale = values || cared ? gp_shuffle(mine, keeper) : 0;
        GP_UNROLL
        for (int h = 0; h < 2; h++) {
            if (h * 4 >= gp_coded_each(type))
                continue;
            word[u][h] = gp_coded_word(codec, type, &a->x[u][4 * h], by, scale & 1);
            if (values)
                gp_coded_values(codec, type, word[u][h], gp_bits_f32(scale & 0xffff0000u), scale & 1, &a->x[u][4 * h]);
        }
    }
    GP_NO_UNROLL
    for (uint32_t m = 0; m < s->ndst; m++) {
        char *run = gp_dst(c, m);
        if (refs[m].buf != GP_SCRATCH)
            continue;
        GP_UNROLL
        for (int u = 0; u < GP_CODED_ROWS; u++) {
            const uint64_t e = gp_coded_row(type, t, u);
            if (u >= gp_coded_count(type) || (int64_t)e >= t->count)
                continue;
            if (type == GP_F32)
                gp_st4(run + e, word[u][0]);
            else
                gp_st8(run + e, word[u][0] | (uint64_t)word[u][1] << 32);
        }
        if (keeps)
            gp_st2(run + scales + block * 2, mine >> 16 | mine << 15);
    }
}

GP_DEV void gp_coded_put_plain(const gp_ctx *c, const gp_step *s, const int type, const gp_coded_at *t, const gp_coded_rows *a)
{
    const gp_ref *refs = c->refs + s->first + s->nsrc;
    const int each = gp_coded_each(type), size = 16 / each;

    GP_NO_UNROLL
    for (uint32_t m = 0; m < s->ndst; m++) {
        if (refs[m].buf == GP_SCRATCH)
            continue;
        GP_UNROLL
        for (int u = 0; u < GP_CODED_ROWS; u++) {
            const uint64_t e = gp_coded_row(type, t, u);
            const int64_t left = t->count - (int64_t)e;
            gp_acc acc;
            if (u >= gp_coded_count(type))
                continue;
            GP_UNROLL
            for (int i = 0; i < 8; i++)
                acc.f[i] = a->x[u][i];
            const gp_v4 v = gp_f32_close(&acc, type, GP_OP_SUM, 0);
            if (t->aligned && left >= each)
                gp_st16(gp_dst(c, m) + e * (uint64_t)size, v);
            else if (left > 0)
                gp_store16_odd(gp_dst(c, m) + e * (uint64_t)size, v, left * size);
        }
    }
}

/* --- a block of a step --------------------------------------------------------------------- */

GP_DEV void gp_coded_divide(const int type, gp_coded_rows *a, int divisor)
{
    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++)
        gp_f32_divide(a->x[u], gp_coded_each(type) < 8 ? 4 : 8, divisor);
}

/* What the destinations and the plain operands are: bits. */
enum { GP_CODED_RUNS = 1, GP_CODED_PLAIN = 2 };

GP_DEV int gp_coded_kinds(const gp_ctx *c, const gp_step *s, int *aligned)
{
    const gp_ref *refs = c->refs + s->first;
    uint64_t bits = 0;
    int kinds = 0;

    GP_NO_UNROLL
    for (uint32_t k = 0; k < s->nsrc; k++)
        bits |= refs[k].buf == GP_SCRATCH ? 0 : c->sh->src[k];
    GP_NO_UNROLL
    for (uint32_t m = 0; m < s->ndst; m++) {
        const int run = refs[s->nsrc + m].buf == GP_SCRATCH;
        bits |= run ? 0 : c->sh->dst[m];
        kinds |= run ? GP_CODED_RUNS : GP_CODED_PLAIN;
    }
    *aligned = !(bits & 15);
    return kinds;
}

GP_DEV void gp_coded_block(const gp_ctx *c, const gp_step *s, uint32_t piece, uint32_t b, const int codec, const int type)
{
    const gp_span span = gp_move_begin(c, s, piece, b);
    const uint32_t nwaves = c->nthreads / GP_WAVE;
    const uint64_t tile = (uint64_t)gp_coded_count(type) * GP_WAVE * (uint64_t)gp_coded_each(type);
    gp_coded_at t = { 0, (int64_t)(span.end / (uint64_t)gp_type_bytes(type)), 0 };
    const int kinds = gp_coded_kinds(c, s, &t.aligned);
    const int divisor = s->final && c->w->op == GP_OP_AVG ? c->f->nranks : 0;

    GP_NO_UNROLL
    for (uint64_t first = gp_tid() / GP_WAVE * tile; (int64_t)first < t.count; first += nwaves * tile) {
        gp_coded_rows a;
        t.at = first + gp_lane() * (uint64_t)gp_coded_each(type);
        gp_coded_sum(c, s, codec, type, &t, &a);
        if (divisor)
            gp_coded_divide(type, &a, divisor);
        if (kinds & GP_CODED_RUNS)
            gp_coded_put(c, s, codec, type, &t, &a, kinds & GP_CODED_PLAIN);
        if (kinds & GP_CODED_PLAIN)
            gp_coded_put_plain(c, s, type, &t, &a);
    }
}

#endif

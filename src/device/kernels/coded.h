#ifndef RCCLX_DEVICE_KERNELS_CODED_H
#define RCCLX_DEVICE_KERNELS_CODED_H

/* COPY and REDUCE in low precision: slots hold runs of codes and scales (codec/codec.h,
 * docs/wire-format.md), IN and OUT elements.
 *
 *   wave's tile    row 0 | row 1 | row 2 | row 3        a row: 16 bytes of elements a lane; f32 four rows, else two
 *   block          32 elements: 8 lanes (f32) or 4 of a row
 *
 *   load    own elements, and of every slot the lane's codes and its block's scale
 *   add     in f32, in rank order; what a code stands for times its scale is exact
 *   scale   lanes of a block exchange maxima until each knows that of one row: two or four
 *           rows cost little more than one, and one division serves four rows
 *   store   codes into slots; into OUT what they stand for, or the sum
 *
 * Whole tiles of aligned operands go a short way, which has no instruction too many: the arithmetic,
 * not the link, is what low precision waits for. All else goes the long way, element by element:
 * the last tile, unaligned buffers, and blocks that hold Inf or NaN or come near the type's largest
 * value; those blocks' scales have a sign, which tells readers to go the long way, too.
 *
 * Part of run.h. */

enum { GP_CODED_ROWS = 4, GP_CODED_BLOCK = 32, GP_CODED_ALIGN = 128, GP_CODED_UNIT = 512 /* elements: pieces are multiples */ };

GP_DEV int gp_coded_lanes(int type) { return type == GP_F32 ? 8 : 4; }    /* of a block */
GP_DEV int gp_coded_each(int type) { return type == GP_F32 ? 4 : 8; }     /* elements of a lane in a row */
GP_DEV int gp_coded_count(int type) { return type == GP_F32 ? 4 : 2; }    /* rows: 16 elements a lane */
GP_DEV uint32_t gp_coded_near(int type) { return type == GP_F16 ? 0x47000000u : 0x77000000u; } /* care from here on */
GP_DEV uint32_t gp_coded_inf(int type) { return type == GP_F16 ? 0x477ff000u : 0x7f800000u; }  /* Inf from here on */
GP_DEV float gp_coded_most(int type) { return gp_bits_f32(type == GP_F16 ? 0x477fe000u : type == GP_BF16 ? 0x7f7f0000u : 0x7f7fffffu); }

/* What a block's largest code stands for; the scale beyond which it would leave f32. */
GP_DEV float gp_coded_top(int codec) { return codec == GP_CODEC_INT8 ? 126.0f : 416.0f; }
GP_DEV float gp_coded_inverse(int codec) { return gp_bits_f32(codec == GP_CODEC_INT8 ? 0x3c020821u : 0x3b1d89d9u); }
GP_DEV uint32_t gp_coded_limit(int codec) { return codec == GP_CODEC_INT8 ? 0x7c020000u : 0x7b1d0000u; }

/* --- single codes. care: they may be Inf, NaN, or too large --------------------------- */

GP_DEV float gp_care_value(int codec, int type, uint32_t code, float scale, uint32_t care)
{
    const float most = gp_coded_most(type);
    const uint32_t last = codec == GP_CODEC_INT8 ? 127 : 126;
    const uint32_t size = codec == GP_CODEC_INT8 && code & 0x80 ? 0x100 - code : codec == GP_CODEC_INT8 ? code : code & 0x7f;
    float f[4], x;

    if (care && size >= last)
        return gp_bits_f32(size > last ? 0x7fc00000u : 0x7f800000u | (code & 0x80) << 24);
    if (codec == GP_CODEC_INT8) {
        x = gp_mul_f32((float)(int8_t)code, scale);
    } else {
        gp_open_small_e4m3(code, f);
        x = gp_mul_f32(f[0], scale);
    }
    return !care ? x : x > most ? most : x < -most ? -most : x;
}

GP_DEV uint32_t gp_care_code(int codec, int type, float x, float inverse, uint32_t care)
{
    const uint32_t bits = gp_f32_bits(x), size = bits & 0x7fffffffu, negative = bits >> 31;
    const float top = gp_coded_top(codec);
    float t[4];

    if (care && size > 0x7f800000u)
        return codec == GP_CODEC_INT8 ? 0x80 : 0x7f;
    if (care && size >= gp_coded_inf(type))
        return codec == GP_CODEC_INT8 ? (negative ? 0x81 : 0x7f) : 0x7e | negative << 7;
    x = codec == GP_CODEC_INT8 ? gp_add_f32(gp_fma_f32(x, inverse, 12582912.0f), -12582912.0f) : gp_mul_f32(x, inverse);
    x = x > top ? top : x < -top ? -top : x;
    if (codec == GP_CODEC_INT8)
        return (uint32_t)(int32_t)x & 0xff;
    t[0] = x, t[1] = t[2] = t[3] = 0;
    return gp_pack_small_e4m3(t) & 0xff;
}

/* --- where a lane is ------------------------------------------------------------------- */

/* What a lane does of a step in a piece, alike in all its threads; positions are elements of the piece. */
typedef struct {
    const gp_coded *s;
    const uint64_t *far;
    uint64_t own, out, slot;   /* addresses; slot: of the lane's staging behind lane 0's */
    uint32_t scales, count;    /* where scales begin in a run; elements */
} gp_coded_piece;

typedef struct { float x[GP_CODED_ROWS][8]; } gp_coded_rows;
typedef struct { gp_v4 v[GP_CODED_ROWS]; } gp_coded_own;
typedef struct { uint32_t word[GP_CODED_ROWS][2], wire[GP_CODED_ROWS]; } gp_coded_run;

GP_DEV char *gp_coded_pointer(uint64_t at) { return (char *)(uintptr_t)at; }

/* The k-th run among the sources; the m-th among the destinations. */
GP_DEV uint64_t gp_coded_source(const gp_coded_piece *p, uint32_t k) { return (k ? p->far[k - 1] : p->s->run) + p->slot; }

GP_DEV uint64_t gp_coded_fill(const gp_coded_piece *p, uint32_t m)
{
    return (m ? p->far[(p->s->runs ? p->s->runs - 1 : 0) + m - 1] : p->s->fill) + p->slot;
}

/* offset: of the piece in the step's block; most: bytes that it has at most. */
GP_DEV gp_coded_piece gp_coded_open(const gp_work *w, const gp_coded *s, const int type, uint64_t slot, uint64_t offset, uint32_t most)
{
    const uint64_t left = offset < s->nbytes ? s->nbytes - offset : 0;
    const uint32_t nbytes = left < most ? (uint32_t)left : most;
    gp_coded_piece p = { s, (const uint64_t *)(const void *)((const char *)w + s->far), s->own ? s->own + offset : 0,
                         s->out ? s->out + offset : 0, slot, 0, nbytes / (uint32_t)gp_type_bytes(type) };

    p.scales = (p.count + GP_CODED_ALIGN - 1) / GP_CODED_ALIGN * GP_CODED_ALIGN;
    return p;
}

/* --- scales ----------------------------------------------------------------------------- */

GP_DEV uint32_t gp_max32(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* Of the rows' maxima in the lanes of a block: that of one row, which follows from the lane; two lanes have it. */
GP_DEV uint32_t gp_coded_exchange(const int type, uint32_t lane, const uint32_t m[GP_CODED_ROWS])
{
    const uint32_t high = lane & 4, odd = lane & 2;
    uint32_t a = m[0], b = m[1]; /* cppcheck-suppress uninitvar ; there are two rows at least */

    if (type == GP_F32) {
        a = high ? m[2] : m[0], b = high ? m[3] : m[1];
        a = gp_max32(a, gp_shuffle(high ? m[0] : m[2], lane ^ 4));
        b = gp_max32(b, gp_shuffle(high ? m[1] : m[3], lane ^ 4));
    }
    a = gp_max32(odd ? b : a, gp_shuffle(odd ? a : b, lane ^ 2));
    return gp_max32(a, gp_shuffle(a, lane ^ 1));
}

/* Which row that is, and a lane that has row u's. */
GP_DEV uint32_t gp_coded_mine(const int type, uint32_t lane) { return lane % (uint32_t)gp_coded_lanes(type) / 2; }

GP_DEV uint32_t gp_coded_keeper(const int type, uint32_t lane, int u)
{
    return (lane & ~((uint32_t)gp_coded_lanes(type) - 1)) + 2 * (uint32_t)u;
}

/* The bits of the scale for a block with this greatest magnitude. */
GP_DEV uint32_t gp_coded_fit(const int codec, uint32_t most)
{
    const uint32_t scale = gp_f32_bits(gp_mul_f32(gp_bits_f32(most), gp_coded_inverse(codec)));

    return gp_max32((scale + 0xffffu) & 0xffff0000u, 0x00800000u);
}

/* --- the short way ------------------------------------------------------------------------
 *
 * Where a lane's elements of a tile are in all operands; a row, a tile further is a number of bytes further. */

typedef struct {
    uint64_t own, code, scale;          /* addresses; code and scale of the first run */
    uint64_t code_out, scale_out, out;  /* of the first run among the destinations */
    uint32_t at;                        /* elements from the piece's beginning, of the wave's tile */
} gp_coded_spot;

GP_DEV uint32_t gp_coded_row_bytes(const int type) { return GP_WAVE * (uint32_t)gp_coded_each(type); }                 /* of codes */
GP_DEV uint32_t gp_coded_row_scales(const int type) { return GP_WAVE * (uint32_t)gp_coded_each(type) / GP_CODED_BLOCK * 2; }
GP_DEV uint32_t gp_coded_tile_rows(const int type) { return (uint32_t)gp_coded_count(type); }

GP_DEV uint64_t gp_coded_code_at(const int type, uint32_t lane, uint32_t at) { return at + lane * (uint32_t)gp_coded_each(type); }

GP_DEV uint64_t gp_coded_scale_at(const gp_coded_piece *p, const int type, uint32_t lane, uint32_t at)
{
    return p->scales + at / GP_CODED_BLOCK * 2 + lane / (uint32_t)gp_coded_lanes(type) * 2;
}

GP_DEV gp_coded_spot gp_coded_spot_of(const gp_coded_piece *p, const int type, uint32_t lane, uint32_t at)
{
    const uint64_t plain = (uint64_t)at * (uint64_t)gp_type_bytes(type) + lane * 16, code = gp_coded_code_at(type, lane, at);
    const uint64_t scale = gp_coded_scale_at(p, type, lane, at), run = gp_coded_source(p, 0), fill = gp_coded_fill(p, 0);
    const gp_coded_spot t = { p->own + plain, run + code, run + scale, fill + code,
                              fill + scale + gp_coded_mine(type, lane) * gp_coded_row_scales(type), p->out + plain, at };

    return t;
}

GP_DEV void gp_coded_next(const int type, gp_coded_spot *t)
{
    const uint32_t rows = gp_coded_tile_rows(type);

    t->own += rows * GP_WAVE * 16, t->out += rows * GP_WAVE * 16;
    t->code += rows * gp_coded_row_bytes(type), t->code_out += rows * gp_coded_row_bytes(type);
    t->scale += rows * gp_coded_row_scales(type), t->scale_out += rows * gp_coded_row_scales(type);
    t->at += rows * gp_coded_row_bytes(type);
}

GP_DEV void gp_short_load_own(const int type, uint64_t own, gp_coded_own *o)
{
    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++)
        o->v[u] = gp_ld16_nt(gp_coded_pointer(own) + u * GP_WAVE * 16);
}

GP_DEV void gp_short_load_run(const int type, uint64_t code_at, uint64_t scale_at, gp_coded_run *r)
{
    const char *code = gp_coded_pointer(code_at), *scale = gp_coded_pointer(scale_at);

    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++) {
        const char *at = code + u * (int)gp_coded_row_bytes(type);
        if (type == GP_F32) {
            r->word[u][0] = gp_ld4(at);
        } else {
            const uint64_t both = gp_ld8(at);
            r->word[u][0] = (uint32_t)both, r->word[u][1] = (uint32_t)(both >> 32);
        }
    }
    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++)
        r->wire[u] = gp_ld2(scale + u * (int)gp_coded_row_scales(type));
}

GP_DEV void gp_short_add_own(const int type, const gp_coded_own *o, int first, gp_coded_rows *a)
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

GP_DEV void gp_short_add_run(const int codec, const int type, const gp_coded_run *r, int first, gp_coded_rows *a)
{
    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++)
        GP_UNROLL
        for (int h = 0; h < gp_coded_each(type) / 4; h++) {
            float f[4];
            gp_open_codes(codec == GP_CODEC_INT8, r->word[u][h], gp_bits_f32(r->wire[u] << 16), f);
            GP_UNROLL
            for (int i = 0; i < 4; i++)
                a->x[u][4 * h + i] = first ? f[i] : gp_add_f32(a->x[u][4 * h + i], f[i]);
        }
}

/* Does a block of the wave's rows want care? */
GP_DEV int gp_short_cares(const int type, const gp_coded_run *r)
{
    uint32_t care = 0;

    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++)
        care |= r->wire[u];
    return gp_ballot((int)(care & 0x8000u)) != 0;
}

/* All sources, in order, an own one among them. 0: one wants care. */
GP_DEV int gp_short_add_all(const gp_coded_piece *p, const int codec, const int type, uint32_t lane, uint32_t at,
                            const gp_coded_own *own, gp_coded_rows *a)
{
    const uint32_t runs = p->s->runs, before = p->s->before;

    if (before == 0)
        gp_short_add_own(type, own, 1, a);
    GP_NO_UNROLL
    for (uint32_t k = 0; k < runs; k++) {
        const uint64_t from = gp_coded_source(p, k);
        gp_coded_run run;
        gp_short_load_run(type, from + gp_coded_code_at(type, lane, at), from + gp_coded_scale_at(p, type, lane, at), &run);
        if (gp_short_cares(type, &run))
            return 0;
        gp_short_add_run(codec, type, &run, k == 0 && before, a);
        if (before == k + 1)
            gp_short_add_own(type, own, 0, a);
    }
    return 1;
}

/* The scale of the lane's row; 0 in all lanes if a block wants care. */
GP_DEV uint32_t gp_short_choose(const int codec, const int type, uint32_t lane, const gp_coded_rows *a)
{
    uint32_t m[GP_CODED_ROWS], most;

    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++)
        m[u] = type == GP_F32 ? gp_magnitude(a->x[u]) : gp_max32(gp_magnitude(a->x[u]), gp_magnitude(a->x[u] + 4));
    most = gp_coded_exchange(type, lane, m);
    return gp_ballot(most >= gp_coded_near(type)) ? 0 : gp_coded_fit(codec, most);
}

/* Codes; gives: in `a` comes back what they stand for. */
GP_DEV void gp_short_encode(const int codec, const int type, const int gives, uint32_t lane, uint32_t mine, gp_coded_rows *a,
                            uint32_t word[GP_CODED_ROWS][2])
{
    const uint32_t inverse = gp_f32_bits(gp_inverse(gp_bits_f32(mine)));

    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++) {
        const uint32_t keeper = gp_coded_keeper(type, lane, u);
        const float by = gp_bits_f32(gp_shuffle(inverse, keeper)), scale = gp_bits_f32(gives ? gp_shuffle(mine, keeper) : 0);
        GP_UNROLL
        for (int h = 0; h < gp_coded_each(type) / 4; h++)
            word[u][h] = gp_make_codes(codec == GP_CODEC_INT8, gives, &a->x[u][4 * h], by, scale);
    }
}

GP_DEV void gp_short_put_run(const int type, uint32_t lane, char *code, char *scale, uint32_t mine, uint32_t word[GP_CODED_ROWS][2])
{
    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++) {
        char *at = code + u * (int)gp_coded_row_bytes(type);
        if (type == GP_F32)
            gp_st4(at, word[u][0]);
        else
            gp_st8(at, word[u][0] | (uint64_t)word[u][1] << 32);
    }
    if (!(lane & 1))
        gp_st2(scale, mine >> 16);
}

/* number: it cannot be NaN. */
GP_DEV void gp_short_put_plain(const int type, const int number, char *out, const gp_coded_rows *a)
{
    GP_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++) {
        gp_acc acc;
        gp_v4 v = gp_v4_make(gp_f32_bits(a->x[u][0]), gp_f32_bits(a->x[u][1]), gp_f32_bits(a->x[u][2]), gp_f32_bits(a->x[u][3]));
        GP_UNROLL
        for (int i = 0; i < gp_coded_each(type); i++)
            acc.f[i] = a->x[u][i];
        gp_st16(out + u * GP_WAVE * 16, type == GP_F32 && number ? v : gp_f32_close(&acc, type, GP_OP_SUM, 0));
    }
}

/* A tile of which all sources are added. 0: it wants care; nothing has been stored. */
GP_DEV int gp_short_store(const gp_coded_piece *p, const int codec, const int type, const int fills, const int gives, uint32_t lane,
                          const gp_coded_spot *t, gp_coded_rows *a)
{
    uint32_t word[GP_CODED_ROWS][2], mine;

    if (p->s->divisor) {
        const float by = gp_inverse((float)p->s->divisor);
        GP_UNROLL
        for (int u = 0; u < gp_coded_count(type); u++)
            GP_UNROLL
            for (int i = 0; i < gp_coded_each(type); i++)
                a->x[u][i] = gp_mul_f32(a->x[u][i], by);
    }
    if (fills) {
        mine = gp_short_choose(codec, type, lane, a);
        if (!mine)
            return 0;
        gp_short_encode(codec, type, gives, lane, mine, a, word);
        gp_short_put_run(type, lane, gp_coded_pointer(t->code_out), gp_coded_pointer(t->scale_out), mine, word);
        GP_NO_UNROLL
        for (uint32_t m = 1; m < p->s->fills; m++) {
            const uint64_t further = gp_coded_fill(p, m) - gp_coded_fill(p, 0);
            gp_short_put_run(type, lane, gp_coded_pointer(t->code_out + further), gp_coded_pointer(t->scale_out + further), mine, word);
        }
    }
    if (gives)
        gp_short_put_plain(type, fills, gp_coded_pointer(t->out), a);
    return 1;
}

/* Whole tiles from *first on, at most 32; those that want care are left: a bit each. own, run: the sources are the own one
 * (and) one run. What the next tile needs is asked for before this one is worked on. */
GP_DEV uint32_t gp_short_tiles(const gp_coded_piece *p, const int codec, const int type, const int own, const int run, const int fills,
                               const int gives, uint32_t lane, uint32_t whole, uint32_t *first)
{
    gp_coded_spot t = gp_coded_spot_of(p, type, lane, *first);
    uint32_t left = 0;
    gp_coded_own next_own;
    gp_coded_run next_run;

    if (own)
        gp_short_load_own(type, t.own, &next_own);
    if (run)
        gp_short_load_run(type, t.code, t.scale, &next_run);
    GP_NO_UNROLL
    for (uint32_t bit = 1; bit && t.at < whole; bit <<= 1) {
        const gp_coded_own now_own = next_own;
        const gp_coded_run now_run = next_run;
        const gp_coded_spot now = t;
        gp_coded_rows a;
        int fine = 1;
        gp_coded_next(type, &t);
        if (own && t.at < whole)
            gp_short_load_own(type, t.own, &next_own);
        if (run && t.at < whole)
            gp_short_load_run(type, t.code, t.scale, &next_run);
        if (own)
            gp_short_add_own(type, &now_own, 1, &a);
        if (run) { /* two are the same in either order */
            fine = !gp_short_cares(type, &now_run);
            gp_short_add_run(codec, type, &now_run, !own, &a);
        }
        if (!fine || !gp_short_store(p, codec, type, fills, gives, lane, &now, &a))
            left |= bit;
    }
    *first = t.at;
    return left;
}

/* The same, of one own source and several runs; with registers of its own. Returns what is left. */
GP_APART uint32_t gp_short_many(gp_coded_piece p, int codec, int type, int fills, uint32_t lane, uint32_t whole, uint32_t first)
{
    gp_coded_spot t = gp_coded_spot_of(&p, type, lane, first);
    uint32_t left = 0;

    GP_NO_UNROLL
    for (uint32_t bit = 1; bit && t.at < whole; bit <<= 1) {
        gp_coded_own own;
        gp_coded_rows a;
        gp_short_load_own(type, t.own, &own);
        if (!gp_short_add_all(&p, codec, type, lane, t.at, &own, &a) || !gp_short_store(&p, codec, type, fills, 1, lane, &t, &a))
            left |= bit;
        gp_coded_next(type, &t);
    }
    return left;
}

/* What steps are made of: push, push and keep, take, add and push on, add and keep. */
GP_DEV uint32_t gp_short_some(const gp_coded_piece *p, const int codec, const int type, uint32_t lane, uint32_t whole, uint32_t *first)
{
    const uint32_t runs = p->s->runs, fills = p->s->fills;

    if (!runs && !p->out)
        return gp_short_tiles(p, codec, type, 1, 0, 1, 0, lane, whole, first);
    if (!runs)
        return gp_short_tiles(p, codec, type, 1, 0, 1, 1, lane, whole, first);
    if (runs == 1 && !p->own)
        return gp_short_tiles(p, codec, type, 0, 1, 0, 1, lane, whole, first);
    if (runs == 1 && fills)
        return gp_short_tiles(p, codec, type, 1, 1, 1, 1, lane, whole, first);
    if (runs == 1)
        return gp_short_tiles(p, codec, type, 1, 1, 0, 1, lane, whole, first);
    const uint32_t tile = gp_coded_tile_rows(type) * gp_coded_row_bytes(type), from = *first;
    const uint32_t end = whole - from < 32 * tile ? whole : from + 32 * tile;
    *first = end;
    return fills ? gp_short_many(*p, codec, type, 1, lane, end, from) : gp_short_many(*p, codec, type, 0, lane, end, from);
}

/* --- the long way: with care, any length and alignment ------------------------------------------ */

GP_DEV uint32_t gp_coded_row(const int type, uint32_t at, int u) { return at + (uint32_t)u * GP_WAVE * (uint32_t)gp_coded_each(type); }

GP_DEV void gp_long_add_run(const gp_coded_piece *p, const int codec, const int type, const char *run, uint32_t at, int first,
                            gp_coded_rows *a)
{
    GP_NO_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++) {
        const uint32_t e = gp_coded_row(type, at, u);
        const uint32_t wire = e < p->count ? gp_ld2(run + p->scales + e / GP_CODED_BLOCK * 2) : 0;
        GP_NO_UNROLL
        for (int i = 0; i < gp_coded_each(type); i++) {
            const uint32_t code = e < p->count ? gp_ld1(run + e + i) : 0;
            const float x = gp_care_value(codec, type, code, gp_bits_f32((wire & 0x7fffu) << 16), wire & 0x8000u);
            a->x[u][i] = first ? x : gp_add_f32(a->x[u][i], x);
        }
    }
}

GP_DEV void gp_long_add_own(const gp_coded_piece *p, const int type, uint32_t at, int first, gp_coded_rows *a)
{
    const uint32_t each = (uint32_t)gp_coded_each(type), size = 16 / each;

    GP_NO_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++) {
        const uint32_t e = gp_coded_row(type, at, u);
        gp_acc acc;
        gp_f32_open(&acc, type, GP_OP_SUM,
                    e < p->count ? gp_load16_odd(gp_coded_pointer(p->own + e * size), (int64_t)(p->count - e) * size)
                                 : gp_v4_make(0, 0, 0, 0), 0, 0);
        GP_NO_UNROLL
        for (uint32_t i = 0; i < each; i++)
            a->x[u][i] = first ? acc.f[i] : gp_add_f32(a->x[u][i], acc.f[i]);
    }
}

GP_DEV void gp_long_sum(const gp_coded_piece *p, const int codec, const int type, uint32_t at, gp_coded_rows *a)
{
    const uint32_t runs = p->s->runs, before = p->own ? p->s->before : runs + 1;

    GP_NO_UNROLL
    for (uint32_t k = 0; k <= runs; k++) {
        if (k == before)
            gp_long_add_own(p, type, at, k == 0, a);
        if (k < runs)
            gp_long_add_run(p, codec, type, gp_coded_pointer(gp_coded_source(p, k)), at, k == 0 && before, a);
    }
    GP_NO_UNROLL
    for (int i = 0; p->s->divisor && i < 8 * gp_coded_count(type); i++)
        if (i % 8 < gp_coded_each(type))
            a->x[i / 8][i % 8] = gp_div_f32(a->x[i / 8][i % 8], (float)p->s->divisor);
}

/* The greatest magnitude of the lane's elements of each row, of those below `below`. */
GP_DEV void gp_long_max(const int type, const gp_coded_rows *a, uint32_t below, uint32_t m[GP_CODED_ROWS])
{
    GP_NO_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++) {
        m[u] = 0;
        GP_NO_UNROLL
        for (int i = 0; i < gp_coded_each(type); i++) {
            const uint32_t bits = gp_f32_bits(a->x[u][i]) & 0x7fffffffu;
            m[u] = gp_max32(m[u], bits < below ? bits : 0);
        }
    }
}

/* The scale of the lane's row; its lowest bit says whether the block wants care. */
GP_DEV uint32_t gp_long_choose(const int codec, const int type, uint32_t lane, const gp_coded_rows *a)
{
    uint32_t m[GP_CODED_ROWS] = { 0 }, scale, care;

    gp_long_max(type, a, ~0u, m);
    care = gp_coded_exchange(type, lane, m) >= gp_coded_near(type);
    gp_long_max(type, a, gp_coded_inf(type), m);
    scale = gp_coded_fit(codec, gp_coded_exchange(type, lane, m));
    if (care)
        scale = scale < gp_coded_limit(codec) ? scale : gp_coded_limit(codec);
    return scale | care;
}

/* Codes of a row into all runs; what they stand for comes back in x. */
GP_DEV void gp_long_put_row(const gp_coded_piece *p, const int codec, const int type, uint32_t e, uint32_t scale, float *x)
{
    const float inverse = gp_inverse(gp_bits_f32(scale & 0xffff0000u));

    GP_NO_UNROLL
    for (int i = 0; i < gp_coded_each(type); i++) {
        const uint32_t code = gp_care_code(codec, type, x[i], inverse, scale & 1);
        x[i] = gp_care_value(codec, type, code, gp_bits_f32(scale & 0xffff0000u), scale & 1);
        GP_NO_UNROLL
        for (uint32_t m = 0; e < p->count && m < p->s->fills; m++)
            gp_st1(gp_coded_pointer(gp_coded_fill(p, m) + e + i), code);
    }
}

GP_DEV void gp_long_put_plain(const gp_coded_piece *p, const int type, uint32_t e, const float *x)
{
    const uint32_t each = (uint32_t)gp_coded_each(type), size = 16 / each;
    gp_acc acc;

    GP_NO_UNROLL
    for (uint32_t i = 0; i < each; i++)
        acc.f[i] = x[i];
    if (e < p->count)
        gp_store16_odd(gp_coded_pointer(p->out + e * size), gp_f32_close(&acc, type, GP_OP_SUM, 0), (int64_t)(p->count - e) * size);
}

/* A tile. Called seldom, so that it shares no registers with the short way. */
GP_APART void gp_long_tile(const gp_work *w, const gp_coded *s, uint64_t slot, uint64_t offset, uint32_t most, uint32_t lane,
                          uint32_t first, int codec, int type)
{
    const gp_coded_piece p = gp_coded_open(w, s, type, slot, offset, most);
    const uint32_t at = first + lane * (uint32_t)gp_coded_each(type);
    uint32_t mine = 0;
    gp_coded_rows a;

    gp_long_sum(&p, codec, type, at, &a);
    if (s->fills)
        mine = gp_long_choose(codec, type, lane, &a);
    GP_NO_UNROLL
    for (int u = 0; u < gp_coded_count(type); u++) {
        const uint32_t e = gp_coded_row(type, at, u), scale = gp_shuffle(mine, gp_coded_keeper(type, lane, u));
        if (s->fills)
            gp_long_put_row(&p, codec, type, e, scale, a.x[u]);
        if (p.out)
            gp_long_put_plain(&p, type, e, a.x[u]);
    }
    const uint32_t block = gp_coded_row(type, at, (int)gp_coded_mine(type, lane)) / GP_CODED_BLOCK;
    GP_NO_UNROLL
    for (uint32_t m = 0; !(lane & 1) && block * GP_CODED_BLOCK < p.count && m < s->fills; m++)
        gp_st2(gp_coded_pointer(gp_coded_fill(&p, m) + p.scales + block * 2), mine >> 16 | (mine & 1) << 15);
}

/* --- steps ------------------------------------------------------------------------------------------- */

/* What stays in full precision: the own part of an all-to-all. */
GP_DEV void gp_coded_copy(const gp_coded_piece *p, const int type, uint32_t lane)
{
    const uint64_t nbytes = (uint64_t)p->count * (uint64_t)gp_type_bytes(type), row = GP_WAVE * 16;
    const uint64_t whole = p->s->quick ? nbytes / (4 * row) * 4 * row : 0;

    GP_NO_UNROLL
    for (uint64_t at = lane * 16; p->own != p->out && at < whole; at += 4 * row) {
        gp_v4 v[4];
        GP_UNROLL
        for (int u = 0; u < 4; u++)
            v[u] = gp_ld16_nt(gp_coded_pointer(p->own + at + (uint64_t)u * row));
        GP_UNROLL
        for (int u = 0; u < 4; u++)
            gp_st16(gp_coded_pointer(p->out + at + (uint64_t)u * row), v[u]);
    }
    GP_NO_UNROLL
    for (uint64_t at = whole + lane * 16; p->own != p->out && at < nbytes; at += row)
        gp_store16_odd(gp_coded_pointer(p->out + at), gp_load16_odd(gp_coded_pointer(p->own + at), (int64_t)(nbytes - at)),
                       (int64_t)(nbytes - at));
}

GP_DEV void gp_coded_move(const gp_ctx *c, const gp_coded *s, uint64_t offset, uint32_t most, const int codec, const int type)
{
    const uint64_t slot = (uint64_t)c->lane * c->stage;
    const gp_coded_piece p = gp_coded_open(c->w, s, type, slot, offset, most);
    const uint32_t tile = gp_coded_tile_rows(type) * gp_coded_row_bytes(type), whole = s->quick ? p.count / tile * tile : 0;
    uint32_t first = 0;

    if (!s->runs && !s->fills) {
        gp_coded_copy(&p, type, c->tid);
        return;
    }
    GP_NO_UNROLL
    while (first < whole) {
        uint32_t at = first, left = gp_short_some(&p, codec, type, c->tid, whole, &first);
        GP_NO_UNROLL
        for (; left; left >>= 1, at += tile)
            if (left & 1)
                gp_long_tile(c->w, s, slot, offset, most, c->tid, at, codec, type);
    }
    GP_NO_UNROLL
    for (; first < p.count; first += tile)
        gp_long_tile(c->w, s, slot, offset, most, c->tid, first, codec, type);
}

/* A lane has a part of every block for itself, and does it piece by piece. If they are many, lanes' first pieces are of four
 * lengths, so that not all push at one time and take at another: the link and the memory both have something to do. */
GP_DEV uint32_t gp_coded_first(const gp_plan *p, const int type, uint32_t lane)
{
    const uint32_t unit = GP_CODED_UNIT * (uint32_t)gp_type_bytes(type), quarter = p->piece_bytes / 4 / unit * unit;

    return p->block_bytes / 4 > p->piece_bytes ? p->piece_bytes - lane % 4 * quarter : p->piece_bytes;
}

/* 0: give up. */
GP_DEV int gp_coded_steps(gp_ctx *c, const int codec, const int type)
{
    const gp_coded *steps = (const gp_coded *)(const void *)(c->w + 1);
    const uint64_t part = c->p->block_bytes, begin = c->lane * part;
    uint64_t at = 0;
    uint32_t most = gp_coded_first(c->p, type, c->lane);

    GP_NO_UNROLL
    for (uint32_t piece = 0; at < part || !piece; piece++, at += most, most = c->p->piece_bytes) {
        const gp_turn t = { piece, piece - 1, piece == 0, at + most >= part };
        const uint32_t nbytes = part - at < most ? (uint32_t)(part - at) : most;
        GP_NO_UNROLL
        for (uint32_t i = 0; i < c->p->nsteps; i++) {
            const gp_coded *s = &steps[i];
            if (s->op == GP_SIGNAL)
                gp_signal_step(c, s->phase, s->lag, t);
            else if (s->op != GP_WAIT)
                gp_coded_move(c, s, begin + at, nbytes, codec, type);
            else if (!gp_wait_step(c, s->peer, s->phase, s->lag, t))
                return 0;
        }
    }
    return 1;
}

#endif

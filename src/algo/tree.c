/* Double binary tree: half of the message goes through each of two trees, and a
 * rank that has children in one is a leaf of the other, so all ranks work alike.
 *
 *   7 ranks, root 0; the other six stand in both trees
 *
 *            0                     0
 *            |                     |
 *            1                     6          tree 1 is tree 0 read from
 *          _/ \_                 _/ \_        right to left
 *         .     5               2     .
 *              / \             / \
 *             3   6           1   4
 *            / \                 / \
 *           2   4               3   5
 *   (positions 0..5 of tree 0 are ranks 1..6; with an odd number of them tree 1
 *   is tree 0 shifted by one place instead)
 *
 * A reduction climbs: wait for the children, their slots plus my own -> my slot,
 * signal. A broadcast descends: wait for the parent, its slot -> my slot and OUT,
 * signal. An all-reduce does both, with rank 0 as root, in the same slot: by the
 * time the sum comes down, the parent has read what went up; and when the children
 * signal the next piece, they have read what came down.
 *
 * Going up, the tree in which a rank is a leaf comes first, since nothing has to be
 * waited for; going down last, since nobody waits for it. */
#include "algo/parts.h"

#include "algo/algo.h"

enum { TREES = 2, PIECE_SLOTS = 8 };

typedef struct {
    int parent, nchild, child[2];
} node;

/* An in-order binary tree over positions 0..m-1: odd positions are leaves, and
 * position q hangs below the one whose lowest set bit is twice its own. */
static int parent_of(int q, int m)
{
    const int bit = q & -q, up = (q ^ bit) | bit << 1;

    if (!q)
        return -1;
    return up < m ? up : q ^ bit;
}

/* Rank r (relative to the root, 1..m) to its position in tree t and back. */
static int position(int r, int m, int t)
{
    const int q = r - 1;

    if (!t)
        return q;
    return m % 2 ? (q + m - 1) % m : m - 1 - q;
}

static int relative(int q, int m, int t)
{
    if (!t)
        return q + 1;
    return (m % 2 ? (q + 1) % m : m - 1 - q) + 1;
}

static int relative_parent(int r, int m, int t)
{
    const int up = r ? parent_of(position(r, m, t), m) : 0;

    return !r ? -1 : up < 0 ? 0 : relative(up, m, t);
}

static node find(const rcclx_shape *s, int root, int rank, int t)
{
    const int n = s->nranks, r = (rank - root + n) % n;
    const int up = relative_parent(r, n - 1, t);
    node me = { .parent = up < 0 ? -1 : (up + root) % n };

    for (int c = 1; c < n && me.nchild < 2; c++)
        if (relative_parent(c, n - 1, t) == r)
            me.child[me.nchild++] = (c + root) % n;
    return me;
}

static bool is_leaf(const rcclx_shape *s, int root, int rank, int t)
{
    return find(s, root, rank, t).nchild == 0;
}

/* The tree that comes first on the way up (the other first on the way down), and
 * from it the phase, 1 or 2, that says a rank is through with tree t. */
static int first_up(const rcclx_shape *s, int root, int rank)
{
    return !is_leaf(s, root, rank, 0) && is_leaf(s, root, rank, 1);
}

static int first_down(const rcclx_shape *s, int root, int rank)
{
    return is_leaf(s, root, rank, 0) && !is_leaf(s, root, rank, 1);
}

static int up_phase(const rcclx_shape *s, int root, int rank, int t)
{
    return first_up(s, root, rank) == t ? 1 : 2;
}

static int down_phase(const rcclx_shape *s, int root, int rank, int t)
{
    return first_down(s, root, rank) == t ? 1 : 2;
}

/* A broadcast may fill the slots again when all children have read them. */
static void wait_children_gone(rcclx_plan *p, int root)
{
    for (int t = 0; t < TREES; t++) {
        const node me = find(&p->shape, root, p->shape.rank, t);
        for (int i = 0; i < me.nchild; i++)
            rcclx_wait(p, me.child[i], 2, 1);
    }
}

static void climb(rcclx_plan *p, int root, int t, bool to_slot)
{
    const rcclx_shape *s = &p->shape;
    const node me = find(s, root, s->rank, t);

    for (int i = 0; i < me.nchild; i++)
        rcclx_wait(p, me.child[i], up_phase(s, root, me.child[i], t), 0);
    if (!me.nchild) {
        rcclx_part_copy(p, RCCLX_IN, s->rank, t, RCCLX_SCRATCH, t, 1);
        return;
    }
    rcclx_reduce_step(p, RCCLX_PROTO_SIMPLE, 1, me.parent < 0);
    rcclx_src(p, RCCLX_IN, s->rank, t, true);
    for (int i = 0; i < me.nchild; i++)
        rcclx_src(p, RCCLX_SCRATCH, me.child[i], t, is_leaf(s, root, me.child[i], t));
    if (me.parent < 0)
        rcclx_dst(p, RCCLX_OUT, s->rank, t);
    if (me.parent >= 0 || to_slot)
        rcclx_dst(p, RCCLX_SCRATCH, s->rank, t);
}

static void descend(rcclx_plan *p, int root, int t, int base)
{
    const rcclx_shape *s = &p->shape;
    const node me = find(s, root, s->rank, t);

    if (me.parent < 0) {
        rcclx_part_copy(p, RCCLX_IN, s->rank, t, RCCLX_OUT, t, 1);
    } else {
        rcclx_wait(p, me.parent, base + down_phase(s, root, me.parent, t), 0);
        rcclx_part_copy(p, RCCLX_SCRATCH, me.parent, t, RCCLX_OUT, t, 1);
    }
    if (me.nchild)
        rcclx_dst(p, RCCLX_SCRATCH, s->rank, t);
}

static void reduce_to(rcclx_plan *p, int root)
{
    const int first = first_up(&p->shape, root, p->shape.rank);

    for (int i = 0; i < TREES; i++) {
        const int t = i ? !first : first;
        const int parent = find(&p->shape, root, p->shape.rank, t).parent;
        if (parent >= 0)
            rcclx_wait(p, parent, up_phase(&p->shape, root, parent, t), 1);
        climb(p, root, t, false);
        rcclx_signal(p, i + 1);
    }
}

static void broadcast(rcclx_plan *p, int root)
{
    const int first = first_down(&p->shape, root, p->shape.rank);

    wait_children_gone(p, root);
    for (int i = 0; i < TREES; i++) {
        descend(p, root, i ? !first : first, 0);
        rcclx_signal(p, i + 1);
    }
}

static void all_reduce(rcclx_plan *p)
{
    const int root = 0, me = p->shape.rank;
    const int up = first_up(&p->shape, root, me), down = first_down(&p->shape, root, me);

    for (int i = 0; i < TREES; i++) {
        climb(p, root, i ? !up : up, true);
        rcclx_signal(p, i + 1);
    }
    for (int i = 0; i < TREES; i++) {
        if (me != root)
            descend(p, root, i ? !down : down, 2);
        rcclx_signal(p, i + 3);
    }
}

static void build(rcclx_plan *p, const rcclx_shape *s)
{
    rcclx_plan_init(p, s, "tree", RCCLX_CUT_SPLIT, TREES);
    p->pieced = true;
    rcclx_part_slots(p, PIECE_SLOTS);
    rcclx_wait(p, RCCLX_ALL, 0, 0);
    if (s->nranks == 1) {
        rcclx_part_alone(p);
        return;
    }
    switch (s->kind) {
    case RCCLX_ALL_REDUCE: all_reduce(p); break;
    case RCCLX_REDUCE_TO:  reduce_to(p, s->root); break;
    case RCCLX_BROADCAST:  broadcast(p, s->root); break;
    default: p->status = RCCLX_UNSUPPORTED;
    }
}

const rcclx_algo rcclx_algo_tree = {
    .name  = "tree",
    .nccl  = "Tree",
    .about = "double binary tree, piece by piece; few steps for many ranks",
    .kinds = 1u << RCCLX_ALL_REDUCE | 1u << RCCLX_REDUCE_TO | 1u << RCCLX_BROADCAST,
    .build = build,
};

#ifndef RCCLX_EXEC_PRECISION_H
#define RCCLX_EXEC_PRECISION_H

/* Which codec an operation's data have on the wire. What decides, the first that says something:
 *
 *   the call      op->precision: 1 + a codec, at any size. What cannot be done is an error.
 *   the team      rcclx_team.precision: a codec, for some kinds, from so many bytes on. What
 *                 cannot be done runs in full precision, and the log says why, once.
 *
 * All ranks come to the same answer from what is the same on all ranks; where it is not, their
 * signatures differ. The answer stays in the op: what is queued or captured keeps it, whatever
 * is set later. */
#include "exec/exec.h"

/* Fill in op->codec and op->coded_from; before anything else looks at the op. Team, kind, count, type,
 * operator, root, bias and precision stand already; codec and coded_from are 0. */
rcclx_status rcclx_op_resolve_asked(rcclx_op *op);

static inline rcclx_status rcclx_op_resolve(rcclx_op *op)
{
    if (!op->precision && !atomic_load_explicit(&op->team->precision.codec, memory_order_relaxed))
        return RCCLX_OK;
    return rcclx_op_resolve_asked(op);
}

/* The codec of one message of an AlltoAllv, Send or Recv, by its own length; both sides get the same.
 * What a rank sends to itself goes through no wire: NONE, that is for the caller. */
static inline rcclx_codec_id rcclx_message_codec(const rcclx_op *op, size_t count)
{
    return count && count * rcclx_type_size(op->type) >= op->coded_from ? (rcclx_codec_id)op->codec : RCCLX_CODEC_NONE;
}

/* At init: what rank 0's settings ask of all, and what they got from it. */
void rcclx_precision_decide(rcclx_agreed *a);
void rcclx_precision_agree(rcclx_team *t, const rcclx_agreed *a);
/* Later: for all kinds. min_bytes 0: by kind, ranks and device. */
void rcclx_precision_set(rcclx_team *t, rcclx_codec_id codec, size_t min_bytes);

/* "off", "fp8", "int8". */
const char *rcclx_precision_name(int codec);
/* "int8 from 1048576 bytes on (RCCLX_LOW_PRECISION)": what holds for the team. */
void        rcclx_precision_words(const rcclx_team *t, char *text, size_t nbytes);

/* Bytes from which the team's codec is used for this kind and type; SIZE_MAX: never. Bytes of the longest
 * buffer of any rank; of the message for AlltoAllv, Send and Recv. */
size_t rcclx_precision_minimum(const rcclx_team *t, rcclx_kind kind, rcclx_type type);

/* Who asked for it: a setting or a function. */
const char *rcclx_precision_from(const rcclx_team *t);

#endif

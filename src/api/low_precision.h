#ifndef RCCLX_API_LOW_PRECISION_H
#define RCCLX_API_LOW_PRECISION_H

#include "base/status.h"

/* The codec a name that a caller gave stands for, 0: off. ARGUMENT lists the names; `call` and `what` are for its text. */
rcclx_status rcclx_args_codec(const char *call, const char *what, const char *name, int *codec);

#endif

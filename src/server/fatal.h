/* No memory for bookkeeping: one line, and the end of the process. */
#ifndef SERVER_FATAL_H
#define SERVER_FATAL_H
#include <stddef.h>
_Noreturn void server_fatal(size_t wanted);
#endif

/* What libmicrohttpd refuses by itself, in front of a request or inside of its body: what isn't HTTP. It
 * words such answers in HTML, and has no hook for them; but it queues them by the function that programs
 * queue theirs by, and the linker finds the one of malformed.c first. (Where it can't, as with a library that
 * is linked in, statuses are libmicrohttpd's and so are the words.) */
#ifndef SERVER_MALFORMED_H
#define SERVER_MALFORMED_H
#include "server/exchange.h"

/* The error of a body beyond the limit; false, as api_fail(). */
bool body_too_large(api_error *e, const http *h);
/* Says at once what x is refused for, unless it has been said; nothing more can be sent then. */
void send_refusal(exchange *x);
/* The library's MHD_queue_response(). */
enum MHD_Result queue_response(struct MHD_Connection *c, unsigned status, struct MHD_Response *r);
#endif

/* Open connections: how long each may take to send a request (one that sends a byte now and then isn't idle,
 * but never gets done), whose client has left in the middle of one, and which has to go when there are too
 * many: the one that a request has been expected of for longest. */
#ifndef SERVER_WATCH_H
#define SERVER_WATCH_H
#include "server/stream.h"

typedef struct watch watch;
typedef struct watched watched;

watch *watch_new(size_t most); /* NULL: the system has no descriptor for it */
void watch_free(watch *w);
watched *watch_add(watch *w, int socket); /* a request is expected from now on */
void watch_remove(watch *w, watched *c);
void watch_serving(watch *w, watched *c); /* it is there */
/* An answer to it is being made: until watch_expecting() s is told when the client leaves, at once where it
 * has left. */
void watch_answering(watch *w, watched *c, stream *s);
void watch_expecting(watch *w, watched *c); /* the next one may come */
size_t watch_count(watch *w);
/* Waits so many milliseconds at most, a signal ends that; then shuts those down that have been expected for
 * longer than that many seconds. On the way those whose clients have left are told so. */
void watch_sweep(watch *w, int wait, double seconds);
#endif

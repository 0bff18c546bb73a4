/* Open connections, and how long each may take to send a request: one that sends a byte now and then isn't
 * idle, but never gets done. */
#ifndef SERVER_WATCH_H
#define SERVER_WATCH_H
#include <stddef.h>

typedef struct watch watch;
typedef struct watched watched;

watch *watch_new(void);
void watch_free(watch *w);
watched *watch_add(watch *w, int socket); /* a request is expected from now on */
void watch_remove(watch *w, watched *c);
void watch_serving(watch *w, watched *c);   /* it is there */
void watch_expecting(watch *w, watched *c); /* the next one may come */
size_t watch_count(watch *w);
/* Shuts those down that have been expected for longer than that. */
void watch_sweep(watch *w, double seconds);
#endif

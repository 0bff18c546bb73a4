/* HTTP over libmicrohttpd: one thread; requests that wait for the model are suspended. */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H
#include "server/exchange.h"

/* Serves h->o, m, q, metrics, watch, which are set, at a listening socket, which is its own from here on. */
bool http_start(http *h, int socket, err *e);
void http_refuse(http *h); /* no new connections; /health says so */
/* Sends what is ready, for two seconds at most, and closes all. No job may be under way. */
void http_stop(http *h);
#endif

/* The listening socket. */
#ifndef SERVER_LISTEN_H
#define SERVER_LISTEN_H
#include "base/err.h"
#include <stdbool.h>

typedef struct {
    int fd;
    int port;         /* the one that it got */
    char address[64]; /* numeric, an IPv6 address in brackets */
    bool loopback;    /* reachable from this machine only */
} listener;

/* Resolves host, refuses with ERR_USAGE what is not loopback unless `open` is given, binds and listens. */
bool listener_open(listener *l, const char *host, int port, bool open, err *e);
#endif

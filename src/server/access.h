/* Who may use the server: keys, and what a browser says about where a request comes from. */
#ifndef SERVER_ACCESS_H
#define SERVER_ACCESS_H
#include "base/arena.h"
#include "base/err.h"

typedef struct {
    const char (*digest)[65]; /* SHA-256 of each key, in hexadecimal */
    size_t n_key;
    const char *const *host; /* names of this server beside those of the machine itself */
    size_t n_host;
    const char *const *origin; /* pages of these may call, "*": of any */
    size_t n_origin;
} access_rules;

/* One key a line; empty lines and those that begin with # count for nothing. ERR_FORMAT when there is none,
 * or one holds anything but printable ASCII. */
bool access_read_keys(access_rules *r, arena *a, const char *path, err *e);
/* Value of the Authorization header, NULL: none. The time that it takes says nothing about the keys. */
bool access_key(const access_rules *r, const char *authorization);
/* Value of the Host header, for a server that listens to this machine only: a page of elsewhere whose name
 * was made to point here (DNS rebinding) still sends its own. */
bool access_host(const access_rules *r, const char *host);
/* Value of the Origin header; NULL, which other programs than browsers send, is fine, and so is the server's
 * own page. */
bool access_origin(const access_rules *r, const char *origin, const char *host);
/* Whether to tell the browser that pages of the origin may read answers. */
bool access_shares(const access_rules *r, const char *origin);
#endif

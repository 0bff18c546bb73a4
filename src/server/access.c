#include "server/access.h"
#include "base/file.h"
#include "base/sha256.h"
#include <string.h>
#include <strings.h>

static void digest(const char *s, size_t n, char hex[SHA256_HEX]) {
    sha256 h;
    sha256_init(&h);
    sha256_update(&h, s, n);
    sha256_final(&h, hex);
}

static bool printable(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] < 0x21 || s[i] > 0x7E) return false;
    return true;
}

bool access_read_keys(access_rules *r, arena *a, const char *path, err *e) {
    file_map f;
    if (!file_open_map(&f, path, e)) return false;
    size_t cap = 0, line = 1;
    char(*list)[SHA256_HEX] = NULL;
    const char *s = (const char *)f.data, *end = s + f.size;
    for (const char *next; s < end; s = next + 1, line++) {
        next = memchr(s, '\n', (size_t)(end - s));
        if (!next) next = end;
        size_t n = (size_t)(next - s);
        if (n && s[n - 1] == '\r') n--;
        if (!n || *s == '#') continue;
        if (!printable(s, n)) {
            file_unmap(&f);
            return err_set(e, ERR_FORMAT, "%s: line %zu: a key is printable ASCII without spaces", path,
                           line);
        }
        list = arena_grow(a, list, r->n_key, &cap, r->n_key + 1, sizeof *list);
        digest(s, n, list[r->n_key++]);
    }
    file_unmap(&f);
    r->digest = (const char(*)[65])list;
    return r->n_key || err_set(e, ERR_FORMAT, "%s: no key in it", path);
}

bool access_key(const access_rules *r, const char *authorization) {
    if (!r->n_key) return true;
    bool bearer = authorization && !strncasecmp(authorization, "Bearer ", 7);
    const char *key = bearer ? authorization + 7 : "";
    char hex[SHA256_HEX];
    digest(key, strlen(key), hex);
    unsigned found = 0;
    for (size_t i = 0; i < r->n_key; i++) { /* all of them, to the end */
        unsigned differs = 0;
        for (size_t k = 0; k < SHA256_HEX; k++) differs |= (unsigned char)(r->digest[i][k] ^ hex[k]);
        found |= !differs;
    }
    return bearer && found;
}

/* Length of the name in "name", "name:port", "[v6]", "[v6]:port". */
static size_t name_length(const char *host) {
    if (*host == '[') return strcspn(host, "]") + (strchr(host, ']') != NULL);
    return strcspn(host, ":");
}

static bool is_name(const char *host, size_t n, const char *name) {
    return strlen(name) == n && !strncasecmp(host, name, n);
}

bool access_host(const access_rules *r, const char *host) {
    if (!host) return true; /* HTTP/1.0; browsers always send one */
    size_t n = name_length(host);
    static const char *const own[] = {"localhost", "[::1]"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (is_name(host, n, own[i])) return true;
    if (n > 4 && !strncmp(host, "127.", 4) && strspn(host, "0123456789.") == n) return true;
    for (size_t i = 0; i < r->n_host; i++)
        if (is_name(host, n, r->host[i])) return true;
    return false;
}

bool access_shares(const access_rules *r, const char *origin) {
    for (size_t i = 0; origin && i < r->n_origin; i++)
        if (!strcmp(r->origin[i], "*") || !strcasecmp(r->origin[i], origin)) return true;
    return false;
}

bool access_origin(const access_rules *r, const char *origin, const char *host) {
    if (!origin || access_shares(r, origin)) return true;
    const char *at = strstr(origin, "://");
    return at && host && !strcasecmp(at + 3, host);
}

#include "base/map.h"
#include <string.h>

typedef struct {
    const char *key;
    uint32_t len, value, hash;
} entry;

struct map {
    arena *a;
    entry *e;
    size_t cap, count; /* cap is a power of two */
};

uint64_t hash_bytes(const void *data, size_t n, uint64_t seed) {
    const unsigned char *p = data;
    uint64_t h = seed ? seed : 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

map *map_new(arena *a, size_t expect) {
    map *m = ARENA_NEW(a, map);
    m->a = a;
    m->cap = 16;
    while (m->cap < expect * 2) m->cap *= 2;
    m->e = ARENA_ARRAY(a, entry, m->cap);
    return m;
}

static entry *find(const map *m, const char *key, size_t len, uint32_t hash) {
    for (size_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        entry *e = &m->e[i];
        if (!e->key || (e->hash == hash && e->len == len && !memcmp(e->key, key, len))) return e;
    }
}

static uint32_t fold(const char *key, size_t len) {
    uint64_t h = hash_bytes(key, len, 0);
    return (uint32_t)(h ^ h >> 32);
}

bool map_add(map *m, const char *key, size_t len, uint32_t value) {
    if ((m->count + 1) * 4 > m->cap * 3) {
        map old = *m;
        m->cap *= 2;
        m->e = ARENA_ARRAY(m->a, entry, m->cap);
        for (size_t i = 0; i < old.cap; i++)
            if (old.e[i].key) *find(m, old.e[i].key, old.e[i].len, old.e[i].hash) = old.e[i];
    }
    uint32_t hash = fold(key, len);
    entry *e = find(m, key, len, hash);
    if (e->key) return false;
    *e = (entry){key, (uint32_t)len, value, hash};
    m->count++;
    return true;
}

uint32_t map_get(const map *m, const char *key, size_t len) {
    const entry *e = find(m, key, len, fold(key, len));
    return e->key ? e->value : MAP_NONE;
}

size_t map_count(const map *m) {
    return m->count;
}

/* Hash map from byte strings to 32-bit numbers, in an arena. Keys are borrowed: they must outlive the map. */
#ifndef BASE_MAP_H
#define BASE_MAP_H
#include "base/arena.h"
#include <stdbool.h>

typedef struct map map;
#define MAP_NONE UINT32_MAX

/* expect: how many keys are likely (the map grows beyond it). */
map *map_new(arena *a, size_t expect);
/* Returns false and changes nothing if the key is there already. value must not be MAP_NONE. */
bool map_add(map *m, const char *key, size_t len, uint32_t value);
/* MAP_NONE when absent. */
uint32_t map_get(const map *m, const char *key, size_t len);
size_t map_count(const map *m);
uint64_t hash_bytes(const void *data, size_t n, uint64_t seed); /* FNV-1a, seed 0 = the standard basis */
#endif

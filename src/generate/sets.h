/* Which packages of a directory play which part of a description. */
#ifndef GENERATE_SETS_H
#define GENERATE_SETS_H
#include "base/str.h"
#include "generate/describe.h"

typedef struct {
    const char *dir;
    const char *lone;         /* only this package counts (its last name); NULL: all in dir */
    const char *const *name;  /* packages, by name */
    const char *const *other; /* what else lies there, by name */
    size_t n_name, n_other;
} set_directory;

/* dir is a directory, or a package, which then counts alone with what lies beside it. */
void set_scan(set_directory *s, arena *a, const char *path, bool is_package);

typedef struct {
    const char *const *path; /* of each package, in the order in which a token goes through them */
    const size_t *role;      /* which of description.package it is */
    size_t n;
    bool certain; /* the metadata file is there and says what the description asks for */
} set_parts;

/* False: *lacks gets what is missing ("meta.yaml", "a package chunk_{i}"). */
bool set_arrange(set_parts *p, arena *a, const set_directory *s, const description *d, str *lacks);
#endif

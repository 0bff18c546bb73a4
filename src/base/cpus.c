#define _GNU_SOURCE
#include "base/cpus.h"
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first line of a file, without its end; false: there is none that fits. */
static bool read_line(char *line, int size, const char *path) {
    FILE *f = fopen(path, "re");
    bool ok = f && fgets(line, size, f);
    if (f) fclose(f);
    if (ok) line[strcspn(line, "\n")] = 0;
    return ok;
}

static bool among(const unsigned *id, unsigned n, unsigned wanted) {
    for (unsigned i = 0; i < n; i++)
        if (id[i] == wanted) return true;
    return false;
}

/* Whether a CPU before this one, and among the allowed, is of the same core. list: "0,4", "2-3". */
static bool has_elder(const char *list, const unsigned *allowed, unsigned n, unsigned id) {
    while (*list) {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;
        if (end == list) return false;
        if (*end == '-') last = strtoul(end + 1, &end, 10);
        for (unsigned long k = first; k <= last && k < id; k++)
            if (among(allowed, n, (unsigned)k)) return true;
        list = *end == ',' ? end + 1 : "";
    }
    return false;
}

static bool shares_core(const char *root, const unsigned *allowed, unsigned n, unsigned id) {
    char path[PATH_MAX], list[4096];
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", root, id);
    return read_line(list, sizeof list, path) && has_elder(list, allowed, n, id);
}

/* CPUs that a group's "QUOTA PERIOD" pays for, rounded up; n: it says "max", or nothing that makes sense. */
static unsigned paid_by(const char *path, unsigned n) {
    char line[128];
    unsigned long long quota, period;
    if (!read_line(line, sizeof line, path) || sscanf(line, "%llu %llu", &quota, &period) != 2) return n;
    unsigned long long paid = quota && period ? quota / period + (quota % period > 0) : n;
    return paid < n ? (unsigned)paid : n;
}

/* The group that this process is in, "" for the topmost; false: not known. */
static bool own_group(char *group, int size, const char *root) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    bool found = false;
    while (f && !found && fgets(group, size, f)) found = strncmp(group, "0::/", 4) == 0;
    if (f) fclose(f);
    if (!found) return false;
    group[strcspn(group, "\n")] = 0;
    memmove(group, group + 3, strlen(group + 3) + 1);
    if (!strcmp(group, "/")) *group = 0;
    return true;
}

/* A group is bound by those above it, too. */
static unsigned paid_for(const char *root, unsigned n) {
    char path[PATH_MAX], group[2048];
    for (char *end = own_group(group, sizeof group, root) ? group : NULL; end;) {
        snprintf(path, sizeof path, "%s/sys/fs/cgroup%s/cpu.max", root, group);
        n = paid_by(path, n);
        if ((end = strrchr(group, '/'))) *end = 0;
    }
    return n;
}

void cpus_of(cpus *c, const char *root, const unsigned *allowed, unsigned n) {
    unsigned twins[CPUS_MAX], more = 0;
    c->n = n < CPUS_MAX ? n : CPUS_MAX;
    c->cores = 0;
    for (unsigned i = 0; i < c->n; i++)
        if (shares_core(root ? root : "", allowed, c->n, allowed[i]))
            twins[more++] = allowed[i];
        else
            c->id[c->cores++] = allowed[i];
    memcpy(c->id + c->cores, twins, more * sizeof *twins);
    c->paid = paid_for(root ? root : "", c->n);
}

static unsigned allowed_here(unsigned id[CPUS_MAX]) {
    unsigned n = 0;
    cpu_set_t set;
    CPU_ZERO(&set);
    bool known = sched_getaffinity(0, sizeof set, &set) == 0;
    for (unsigned i = 0; i < CPU_SETSIZE && n < CPUS_MAX && known; i++)
        if (CPU_ISSET(i, &set)) id[n++] = i;
    return n ? n : (id[0] = 0, 1);
}

void cpus_here(cpus *c) {
    unsigned allowed[CPUS_MAX], n = allowed_here(allowed);
    cpus_of(c, NULL, allowed, n);
}

unsigned cpus_usable(void) {
    unsigned allowed[CPUS_MAX];
    return paid_for("", allowed_here(allowed));
}

void cpus_pin(unsigned id) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(id, &set);
    sched_setaffinity(0, sizeof set, &set);
}
